"""Secrets at rest: sealed, bound to their place, and moved to a newer key while the desk runs."""

import json
import secrets

import pytest
from django.core.management import CommandError, call_command

from plans import resealing, sealing, vault
from plans.checks import check_seal_keys
from tests.makers import make_plan, make_target, reread

pytestmark = pytest.mark.usefixtures("database")


@pytest.fixture
def two_keys(settings):
    """An installation that has just got a newer key, with one sealed value of each kind under the older one."""
    vault.lookup_key()
    plan = make_plan(target=make_target(bearer="target-credential"))
    old = settings.SEAL_KEYS
    settings.SEAL_KEYS = [secrets.token_bytes(32), *old]
    yield plan
    settings.SEAL_KEYS = [*old, *settings.SEAL_KEYS]
    list(resealing.reseal_all())  # the lookup key outlives a test


def test_a_sealed_value_opens_only_where_it_belongs():
    sealed = sealing.seal(b"secret", purpose="here")
    assert sealing.unseal(sealed, purpose="here") == b"secret"
    assert b"secret" not in sealed
    with pytest.raises(sealing.SealError):
        sealing.unseal(sealed, purpose="elsewhere")


def test_a_changed_value_does_not_open():
    sealed = bytearray(sealing.seal(b"secret", purpose="here"))
    sealed[-1] ^= 1
    with pytest.raises(sealing.SealError):
        sealing.unseal(bytes(sealed), purpose="here")


def test_everything_moves_to_the_newest_key_and_still_opens(two_keys, settings, capsys):
    before = resealing.progress()
    assert before.done == 0
    assert before.total >= 5
    call_command("reseal", "--json")
    assert json.loads(capsys.readouterr().out) == {"sealed": before.total, "total": before.total}
    settings.SEAL_KEYS = settings.SEAL_KEYS[:1]
    plan = reread(two_keys)
    assert vault.open_token(plan).startswith("pt-")
    assert vault.open_credentials(plan.address) == "target-credential"
    assert check_seal_keys(databases=["default"]) == []


def test_start_is_refused_while_a_row_needs_a_key_that_is_gone(two_keys, settings):
    gone = sealing.key_id(settings.SEAL_KEYS[-1]).hex()
    kept = settings.SEAL_KEYS
    settings.SEAL_KEYS = kept[:1]
    found = check_seal_keys(databases=["default"])
    assert [message.id for message in found] == ["plans.E001"]
    assert gone in found[0].msg
    with pytest.raises(CommandError, match=gone):
        call_command("reseal")
    settings.SEAL_KEYS = kept


def test_every_sealed_column_is_known_to_the_rotation():
    from django.apps import apps
    from django.db.models import BinaryField

    sealed = {
        (model, field.name)
        for model in apps.get_models()
        for field in model._meta.get_fields()
        if isinstance(field, BinaryField) and "sealed" in field.name
    }
    assert sealed == set(resealing.PLACES)
