"""Payloads end, proofs do not: erasure, minimum times, disposal and legal holds."""

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import DatabaseError, connection, connections
from django.test import Client
from psycopg.errors import InsufficientPrivilege

from audit import retention
from audit.canonical import RawJson
from audit.erasure import ErasureRefused, Selection, erase, find_erasable
from audit.filters import FilterError, Filters
from audit.kinds import Kind
from audit.models import Payload
from audit.proofs import prove_event
from audit.queries import get_event
from audit.recording import SYSTEM, Actor
from audit.retention import (
    Disposal,
    Rule,
    dispose,
    find_due,
    find_holds,
    find_rules,
    place_hold,
    release_hold,
    set_rule,
)
from audit.verification import verify_log
from tests.audit.auditing import told
from tests.audit.making import make_event
from tests.audit.sequencing import sequence

ADA = Actor("person", "7", "Ada")
REASON = "she asked for it"


@pytest.fixture(autouse=True)
def _settings(settings: Any, tmp_path: Path) -> None:
    settings.ROOT_URLCONF = "tests.audit.urls"
    settings.AUDIT_STATE_FILE = str(tmp_path / "signed")


def make(count: int = 3, **members: Any) -> list[str]:
    return [make_event(actor=ADA, data={"n": n}, agent="refund-bot", **members).id for n in range(count)]


def take(filters: Filters, ids: tuple[UUID, ...] = ()) -> Selection:
    found = find_erasable(filters, ids)
    return erase(filters, ids, fingerprint=found.fingerprint, reason=REASON, actor=SYSTEM)


def payloads() -> set[str]:
    return {str(pk) for pk in Payload.objects.values_list("pk", flat=True)}


def age(owner: psycopg.Connection[Any], days: int, kind: str = "plan.viewed", **columns: str) -> str:
    """One event with its payload, of `days` ago, past the one writer."""
    at = datetime.now(UTC) - timedelta(days=days)
    owner.execute("SELECT audit_make_partition(%s)", [at])
    names = ["id", "at", "kind", "actor_type", "actor_id", "leaf", *columns]
    row = owner.execute(
        f"INSERT INTO audit_event ({', '.join(names)}) SELECT audit_new_id(%s), %s, %s, 'person', '7', 'x'"
        f"{', %s' * len(columns)} RETURNING id",
        [at, at, kind, *columns.values()],
    ).fetchone()
    assert row is not None
    owner.execute("INSERT INTO audit_payload VALUES (%s, sha256('x'), '{}')", [row[0]])
    owner.execute("INSERT INTO audit_pending VALUES (%s, %s)", [at, row[0]])
    return str(row[0])


def test_an_erasure_leaves_every_proof_valid_and_is_an_event(database: None, tmp_path: Path) -> None:
    first, second, third = make()
    sequence(tmp_path)
    before = prove_event(UUID(second))
    dry = find_erasable(Filters(), (UUID(second),))
    assert (len(dry.ids), dry.kinds, payloads()) == (1, {"plan.viewed": 1}, {first, second, third})
    done = erase(Filters(), (UUID(second),), fingerprint=dry.fingerprint, reason=REASON, actor=ADA)
    assert (done.ids, payloads() >= {first, third}, second in payloads()) == ((UUID(second),), True, False)
    assert prove_event(UUID(second)) == before
    (data,) = told("audit.erased")
    assert data == {"reason": REASON, "filters": {}, "count": 1, "events": [second]}
    at_once = verify_log(actor=SYSTEM, via="test")
    assert at_once.is_whole, list(at_once.lines())
    sequence(tmp_path)
    report = verify_log(actor=SYSTEM, via="test")
    assert report.is_whole, list(report.lines())
    assert any("What 1 of the events said" in sentence for sentence in report.not_proven)


def test_an_erased_event_is_told_as_erased_by_every_door(client: Client, tmp_path: Path) -> None:
    (gone,) = make(1)
    sequence(tmp_path)
    take(Filters(), (UUID(gone),))
    event = get_event(UUID(gone))
    assert event is not None
    assert (event.is_erased, event.data, event.actor_name, event.actor_id) == (True, None, None, "7")
    answer = json.loads(client.get(f"/api/v1/audit/events/{gone}").content)
    assert (answer["erased"], answer["data"]) == (True, None)
    export = b"".join(client.get("/api/v1/audit/export?format=jsonl&plan_id=none-such")).decode()  # type: ignore[call-overload]
    assert json.loads(export.splitlines()[-1])["export"]["rows"] == 0
    lines = b"".join(client.get("/api/v1/audit/export?format=jsonl&actor=person:7")).decode().splitlines()  # type: ignore[call-overload]
    assert [json.loads(line).get("erased") for line in lines if gone in line] == [True]


def test_what_was_not_looked_at_is_not_erased(database: None) -> None:
    make(2)
    dry = find_erasable(Filters(actor="person:7"))
    make(1)
    with pytest.raises(ErasureRefused, match="not what was looked at"):
        erase(Filters(actor="person:7"), fingerprint=dry.fingerprint, reason=REASON, actor=SYSTEM)
    with pytest.raises(ErasureRefused, match="reason"):
        erase(Filters(actor="person:7"), fingerprint=dry.fingerprint, reason=" ", actor=SYSTEM)
    with pytest.raises(FilterError, match="Say what to erase"):
        find_erasable(Filters())
    assert (len(payloads()), told("audit.erased")) == (3, [])


def test_an_erasure_of_many_is_all_or_nothing_and_names_each(database: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audit.erasure.PER_EVENT", 2)
    made = make(5)
    assert len(take(Filters(actor="7")).ids) == 5
    assert sorted(event for data in told("audit.erased") for event in data["events"]) == sorted(made)
    assert [data["count"] for data in told("audit.erased")] == [2, 2, 1]


def test_words_by_which_it_was_found_are_not_in_what_tells_of_an_erasure(database: None) -> None:
    """It is never erased: the name that somebody wanted gone would be in the log for good."""
    found = make_event(actor=ADA, data={"to": "lena@example.com"}, agent="refund-bot").id
    make()
    assert [str(one) for one in take(Filters(agent="refund-bot", words=("lena@example.com",))).ids] == [found]
    (data,) = told("audit.erased")
    assert data["filters"] == {"agent": "refund-bot"}
    assert data["by_words"] is True
    assert not Payload.objects.filter(body__icontains="lena").exists()


@pytest.mark.parametrize("asked", ["Müller", "MÜLLER", "müller", "Mül", "😀", 'a.(ü"\\\\'])
def test_an_erasure_finds_a_word_however_its_json_spelled_it(database: None, asked: str) -> None:
    text = 'Müller 😀 a.(ü"\\\\'
    escaped = json.dumps({"to": text})
    spelled = [escaped, escaped.replace("\\u00fc", "\\u00FC"), json.dumps({"to": text}, ensure_ascii=False)]
    made = {make_event(actor=ADA, data={"inputs": RawJson(one)}).id for one in spelled}
    make_event(actor=ADA, data={"inputs": RawJson('{"to": "Muller axu"}')})
    assert {str(one) for one in find_erasable(Filters(words=(asked,))).ids} == made


def test_what_tells_of_an_erasure_cannot_be_erased(database: None) -> None:
    take(Filters(), (UUID(make(1)[0]),))
    found = find_erasable(Filters(kinds=(Kind.AUDIT_ERASED,)))
    assert (found.ids, found.kept) == ((), {"log": 1})


def test_a_hold_beats_an_erasure_and_its_release_ends_that(database: None) -> None:
    held, free = make(1, plan_id="p1") + make(1, plan_id="p2")
    place_hold("case-17", Filters(plan_id="p1"), reason="a lawsuit", actor=ADA)
    with pytest.raises(ErasureRefused, match="already"):
        place_hold("case-17", Filters(), reason="again", actor=ADA)
    done = take(Filters(actor="person:7", kinds=(Kind.PLAN_VIEWED,)))
    assert ({str(i) for i in done.ids}, done.kept, held in payloads()) == ({free}, {"held": 1}, True)
    (hold,) = find_holds()
    assert (hold.name, hold.covers) == ("case-17", {"plan_id": "p1"})
    release_hold("case-17", reason="settled", actor=ADA)
    with pytest.raises(ErasureRefused, match="No hold"):
        release_hold("case-17", reason="settled", actor=ADA)
    take(Filters(plan_id="p1"))
    assert held not in payloads()
    assert [(data["change"], data["hold"]) for data in told("audit.held")] == [
        ("placed", "case-17"),
        ("released", "case-17"),
    ]


@pytest.mark.parametrize(
    "filters",
    [
        Filters(),
        Filters(kinds=(Kind.PLAN_VIEWED,)),
        Filters(agent="refund-bot"),
        Filters(actor="7"),
        Filters(actor="person:7"),
        Filters(from_at=datetime(2020, 1, 1, tzinfo=UTC), to_at=datetime(2100, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_hold_keeps_what_it_covers_even_from_the_owner_s_own_hand(
    filters: Filters, database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    made = make(2)
    place_hold("all", filters, reason="a lawsuit", actor=ADA)
    with pytest.raises(InsufficientPrivilege, match="a hold covers it"):
        owner_connection.execute("DELETE FROM audit_payload WHERE event_id = %s", [made[0]])
    assert set(made) <= payloads()


@pytest.mark.parametrize(
    "filters", [Filters(kinds=(Kind.PLAN_APPROVED,)), Filters(agent="a"), Filters(actor="8"), Filters(plan_id="p")]
)
def test_a_hold_keeps_nothing_else(filters: Filters, database: None) -> None:
    (gone,) = make(1)
    place_hold("other", filters, reason="a lawsuit", actor=ADA)
    take(Filters(), (UUID(gone),))
    assert gone not in payloads()


def test_a_hold_placed_during_an_erasure_waits_for_it_or_stops_it(
    database: None, owner_connection: psycopg.Connection[Any], ground: Any
) -> None:
    make(1)
    with ground.connect_as_owner() as other, other.transaction():
        other.execute("DELETE FROM audit_payload")
        owner_connection.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            owner_connection.execute("INSERT INTO audit_hold (name, reason) VALUES ('late', 'x')")


def test_a_minimum_keeps_a_payload_and_its_kind_s_rule_comes_first(
    database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    set_rule(Rule("*", 30, None), reason="the law", actor=ADA)
    set_rule(Rule("login.succeeded", 5, 10), reason="the law", actor=ADA)
    young, old = age(owner_connection, 20), age(owner_connection, 40)
    login = age(owner_connection, 7, "login.succeeded")
    with pytest.raises(InsufficientPrivilege, match="its time is not up"):
        owner_connection.execute("DELETE FROM audit_payload WHERE event_id = %s", [young])
    done = take(Filters(actor="7"))
    assert ({str(i) for i in done.ids}, done.kept) == ({old, login}, {"minimum": 1, "log": 2})
    assert [(rule.kind, rule.minimum_days, rule.dispose_after_days) for rule in find_rules()] == [
        ("*", 30, None),
        ("login.succeeded", 5, 10),
    ]
    assert [data["kind"] for data in told("log.changed")] == ["*", "login.succeeded"]


@pytest.mark.parametrize("rule", [Rule("*", -1, None), Rule("*", 10, 9), Rule("*", 0, 0), Rule("no.such", 1, None)])
def test_a_rule_that_makes_no_sense_is_refused(rule: Rule, database: None) -> None:
    with pytest.raises(ErasureRefused):
        set_rule(rule, reason="the law", actor=ADA)
    assert (find_rules(), told("log.changed")) == ([], [])


def test_disposal_takes_what_is_due_and_a_hold_beats_it(
    database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    set_rule(Rule("plan.viewed", 10, 30), reason="the law", actor=ADA)
    due = [age(owner_connection, 31 + n) for n in range(3)]
    held = age(owner_connection, 50, plan_id="p1")
    kept = [age(owner_connection, 29), age(owner_connection, 90, "plan.approved")]
    place_hold("case-17", Filters(plan_id="p1"), reason="a lawsuit", actor=ADA)
    dry = find_due()
    assert (dry.kinds, dry.kept, set(due) <= payloads()) == ({"plan.viewed": 3}, {"held": 1}, True)
    assert dispose(dry.fingerprint, actor=ADA) == (3, 0)
    assert payloads() & {*due, held, *kept} == {held, *kept}
    (data,) = told("audit.disposed")
    assert (data["count"], sorted(data["events"])) == (3, sorted(due))
    assert (find_due().count, dispose(find_due().fingerprint, actor=ADA)) == (0, (0, 0))


def test_disposal_is_of_what_was_looked_at_alone(
    database: None, owner_connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_rule(Rule("*", 0, 30), reason="the law", actor=ADA)
    for n in range(5):
        age(owner_connection, 31 + n)
    dry = find_due()
    place_hold("late", Filters(to_at=datetime.now(UTC) - timedelta(days=33, hours=1)), reason="a lawsuit", actor=ADA)
    with pytest.raises(ErasureRefused, match="Look again"):
        dispose(dry.fingerprint, actor=ADA)
    with pytest.raises(ErasureRefused, match="no fingerprint"):
        dispose("nonsense", actor=ADA)
    assert told("audit.disposed") == []
    monkeypatch.setattr("audit.retention.PER_EVENT", 2)
    assert dispose(find_due().fingerprint, actor=ADA) == (3, 0)
    assert find_due().kept == {"held": 2}


def test_a_hold_that_is_released_while_a_disposal_runs_was_in_force_for_all_of_it(
    database: None, owner_connection: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_rule(Rule("*", 0, 30), reason="the law", actor=ADA)
    for n in range(5):
        age(owner_connection, 31 + n)
    place_hold("late", Filters(to_at=datetime.now(UTC) - timedelta(days=33, hours=1)), reason="a lawsuit", actor=ADA)
    dry = find_due()
    releasing: list[threading.Thread] = []

    def release() -> None:
        try:
            release_hold("late", reason="settled", actor=ADA)
        finally:
            connections.close_all()

    def look_then_release(as_of: datetime | None) -> Disposal:
        found = look(as_of)
        releasing.append(threading.Thread(target=release))
        releasing[0].start()
        releasing[0].join(1)
        return found

    look = retention._find_due
    with monkeypatch.context() as patched:
        patched.setattr(retention, "_find_due", look_then_release)
        assert dispose(dry.fingerprint, actor=ADA) == (3, 0)
    releasing[0].join(20)
    assert sum(find_due().kinds.values()) == 2


@pytest.mark.slow
def test_a_rule_without_its_minimum_is_refused_and_changes_nothing(database: None, manage: Any) -> None:
    set_rule(Rule("login.succeeded", 365, None), reason="the law", actor=ADA)
    done = manage("audit", "retention", "login.succeeded", "--dispose-after", "400", "--reason", "x")
    assert done.returncode != 0
    assert "Say --minimum DAYS" in done.stderr
    assert [rule.minimum_days for rule in find_rules() if rule.kind == "login.succeeded"] == [365]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM audit_payload",
        "INSERT INTO audit_hold (name, reason) VALUES ('a', 'b')",
        "UPDATE audit_hold SET released_at = now()",
        "DELETE FROM audit_hold",
        "INSERT INTO audit_retention VALUES ('*', 0, 1)",
        "UPDATE audit_retention SET minimum_days = 0",
        "ALTER TABLE audit_payload DISABLE TRIGGER audit_payload_kept",
        "CREATE OR REPLACE FUNCTION audit_why_kept(e audit_event) RETURNS text LANGUAGE sql AS 'SELECT NULL::text'",
    ],
)
def test_the_application_s_role_can_erase_nothing_and_change_no_rule(statement: str, database: None) -> None:
    make(1)
    with connection.cursor() as cursor, pytest.raises(DatabaseError) as refused:
        cursor.execute(statement)
    assert isinstance(refused.value.__cause__, InsufficientPrivilege)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM audit_hold",
        "TRUNCATE audit_hold",
        "UPDATE audit_hold SET to_at = now()",
        "UPDATE audit_hold SET agent = 'another', released_at = now()",
        "UPDATE audit_hold SET released_at = NULL",
        "DELETE FROM audit_retention",
        "TRUNCATE audit_retention",
        "UPDATE audit_pending SET at = now()",
    ],
)
def test_a_hold_and_a_rule_cannot_be_taken_away_even_by_the_owner(
    statement: str, database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    make(1)
    set_rule(Rule("*", 3, None), reason="x", actor=ADA)
    place_hold("a", Filters(), reason="b", actor=ADA)
    with pytest.raises(InsufficientPrivilege, match="append-only"):
        owner_connection.execute(statement)
    assert ([hold.name for hold in find_holds()], [rule.kind for rule in find_rules()]) == (["a"], ["*"])


def test_a_released_hold_stays_released_and_as_it_was(
    database: None, owner_connection: psycopg.Connection[Any]
) -> None:
    place_hold("a", Filters(), reason="b", actor=ADA)
    release_hold("a", reason="c", actor=ADA)
    for change in ("released_at = NULL", "released_at = now()", "reason = 'another'"):
        with pytest.raises(InsufficientPrivilege, match="append-only"):
            owner_connection.execute(f"UPDATE audit_hold SET {change}")
    assert find_holds() == []


@pytest.mark.slow
def test_the_commands_look_first_and_then_do(manage: Callable[..., Any], database: None) -> None:
    make(2, plan_id="p1")
    dry = json.loads(manage("audit", "erase", "--plan-id", "p1", "--json").stdout)
    assert (dry["erased"], dry["payloads"], len(payloads())) == (False, 2, 2)
    refused = manage("audit", "erase", "--plan-id", "p1", "--confirm", dry["fingerprint"])
    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)
    arguments = ("audit", "erase", "--plan-id", "p1", "--reason", REASON, "--confirm", dry["fingerprint"])
    assert manage(*arguments).stdout == "2 payloads erased.\n"
    assert manage("audit", "hold", "case", "--agent", "a", "--reason", "x").stdout == "The hold case is in force.\n"
    assert '"a"' in manage("audit", "hold").stdout
    assert manage("audit", "release", "case", "--reason", "x").stdout == "The hold case is released.\n"
    assert manage("audit", "release", "case", "--reason", "x").returncode == 1
    set_ = manage("audit", "retention", "*", "--minimum", "3", "--dispose-after", "9", "--reason", "x")
    assert set_.stdout == "*: at least 3 days, due after 9\n"
    due = json.loads(manage("audit", "dispose", "--json").stdout)
    assert (due["disposed"], due["payloads"]) == (False, 0)
    assert manage("audit", "dispose", "--confirm", due["fingerprint"]).stdout == "0 payloads disposed of.\n"
