"""Whether a remote target can be reached: one question about a plan that does not exist. Changes nothing anywhere."""

import secrets
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from plans import clock, strict_json, vault
from plans.bulkhead import AT_ONCE, place_at
from plans.errors import TargetBusy
from plans.models import Target
from plans.outgoing import Answer, NoAnswer, NotSent, exchange
from plans.targets.http import address_of

TIMEOUT: Final = timedelta(seconds=10)
SPARE_OPERATION: Final = "test"
UNREACHED, UNAUTHENTICATED, AS_EXPECTED, ODD = "unreached", "unauthenticated", "as-expected", "odd"


@dataclass(frozen=True, slots=True)
class Probe:
    """What came back from `url` at `at`, after `took`. `status` None: no answer, and `detail` says why not.

    The answer's body is not kept: a target may echo what it was sent.
    """

    at: datetime
    took: timedelta
    url: str
    status: int | None
    verdict: str
    detail: str
    size: int = 0
    is_json: bool = False


def probe_target(*, name: str) -> Probe | None:
    """GET the state of a made-up plan id at the target's present address, with its credentials, once.

    None for a hosted target. A target that follows the contract answers 404. Holds no transaction; may be repeated.
    """
    target = Target.objects.get(name=name)
    if target.is_hosted:
        return None
    where = target.addresses.select_related("target").order_by("-id")[0]
    address = address_of(
        base_url=where.base_url,
        commit_path=where.commit_path,
        status_path=where.status_path,
        operation=target.operations[0] if target.operations else SPARE_OPERATION,
        plan_id=f"plandesk-test-{secrets.token_hex(8)}",
        credentials=vault.open_credentials(where),
    )
    headers = {"Authorization": f"Bearer {address.credentials}"} if address.credentials else {}
    at, started = clock.now(), time.monotonic()
    try:
        with place_at(target.pk, patience=AT_ONCE):
            answer = exchange("GET", address.status_url, headers=headers, body=None, timeout=TIMEOUT)
    except (NotSent, NoAnswer, TargetBusy) as error:
        detail = error.sentence if isinstance(error, TargetBusy) else error.args[0]
        return Probe(at, _since(started), address.status_url, None, UNREACHED, detail)
    return Probe(
        at, _since(started), address.status_url, answer.status, _verdict(answer), "", len(answer.body), _is_json(answer)
    )


def _since(started: float) -> timedelta:
    return timedelta(seconds=time.monotonic() - started)


def _verdict(answer: Answer) -> str:
    if answer.status in (401, 403):
        return UNAUTHENTICATED
    return AS_EXPECTED if answer.status == 404 else ODD


def _is_json(answer: Answer) -> bool:
    try:
        strict_json.loads(answer.body)
    except strict_json.StrictJsonError:
        return False
    return True
