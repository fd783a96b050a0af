"""The bytes of payloads, commitments and leaves: what is stored is what was meant, to the last digit."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from audit.canonical import (
    LEAF_MAX_BYTES,
    PayloadError,
    RawJson,
    build_leaf,
    commit_to,
    format_at,
    parse_at,
    serialise_payload,
)
from audit.kinds import Kind
from audit.merkle import hash_leaf
from audit.models import Event
from audit.recording import MAX_CHARACTERS, Actor
from tests.audit.making import make_event

# Everything PostgreSQL can hold in a text: no U+0000, no lone surrogates.
TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00"), max_size=60)
IN_DATABASE = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


def test_numbers_of_foreign_json_stay_as_they_were_spelled() -> None:
    foreign = '{"a": 1.10, "b":9007199254740993, "a2":1e2 , "c":-0.0}'
    payload = serialise_payload("Zoë", {"inputs": RawJson(foreign), "seen": True, "number": 2**53 + 1, "none": None})
    expected = (
        '{"actor_name":"Zoë","data":{"inputs":' + foreign + ',"seen":true,"number":9007199254740993,"none":null}}'
    )
    assert payload == expected


@pytest.mark.parametrize(
    "fragment", ["", "1,2", '{"a":1', "nul", '1}, "data": {"forged": true', "NaN", '"\ud800"', "[" * 5000]
)
def test_foreign_text_that_is_not_one_json_text_is_refused(fragment: str) -> None:
    with pytest.raises(PayloadError):
        serialise_payload("x", {"inputs": RawJson(fragment)})


@pytest.mark.parametrize(
    "name",
    ["plan_token", "token", "API-Key", "apikey", "api_key", "webhook_secret", "Password", "bearer", "credentials"],
)
def test_l127_a_name_that_announces_a_secret_is_refused_at_any_depth(name: str) -> None:
    with pytest.raises(PayloadError):
        serialise_payload("x", {"outer": [{name: "hidden"}]})


def test_a_name_that_only_sounds_like_a_secret_is_kept() -> None:
    assert "tokenizer" in serialise_payload("x", {"tokenizer": "on", "secretary": "Ann"})


@pytest.mark.parametrize("value", [1.5, b"bytes", {1, 2}, timedelta(1)])
def test_a_value_with_no_one_spelling_is_refused(value: Any) -> None:
    with pytest.raises(PayloadError):
        serialise_payload("x", {"value": value})


def test_a_lone_surrogate_in_our_own_text_is_escaped_and_not_an_error() -> None:
    assert json.loads(serialise_payload("x", {"email": "a\ud800\x00"}).encode())["data"] == {"email": "a\ud800\x00"}


def test_l118_times_have_six_decimals_and_z_whatever_zone_they_came_in() -> None:
    assert format_at(datetime(2026, 3, 14, 9, 31, 2, tzinfo=UTC)) == "2026-03-14T09:31:02.000000Z"
    assert format_at(datetime(2026, 3, 14, 9, 31, 20, 5, tzinfo=UTC)) == "2026-03-14T09:31:20.000005Z"
    elsewhere = datetime(2026, 3, 14, 10, 31, 2, tzinfo=timezone(timedelta(hours=1)))
    assert format_at(elsewhere) == "2026-03-14T09:31:02.000000Z"
    with pytest.raises(ValueError, match="zone"):
        format_at(datetime(2026, 3, 14))  # noqa: DTZ001 - that is the point


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-14T09:31:12",
        "2026-03-14",
        "1773480672",
        "2026-02-30T00:00:00Z",
        "2026-03-14 09:31:12Z",
        "",
        "20260314T093112Z",
        "٢026-03-14T09:31:12Z",
        "0001-01-01T00:00:00+23:59",
        "2026-03-14T24:00:00Z",
    ],
)
def test_a_time_without_an_offset_or_out_of_the_calendar_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="time"):
        parse_at(text)


def test_the_leaf_in_the_database_is_what_rfc_8785_says(database: None) -> None:
    @IN_DATABASE
    @given(TEXT, TEXT, st.none() | TEXT, st.none() | TEXT, st.none() | st.integers(1, 2**31 - 1))
    def leaf_is_equal(actor_id: str, agent: str, target: str | None, plan_id: str | None, plan_seq: int | None) -> None:
        recorded = make_event(
            actor=Actor("person", actor_id, agent),
            agent=agent,
            target=target,
            plan_id=plan_id,
            plan_seq=plan_seq,
            on_behalf_of=target,
            operation=agent,
            task_id=plan_id,
            request_id=agent,
            data={"text": agent},
        )
        event = Event.objects.select_related("payload").get(pk=recorded.id, at=recorded.at)
        leaf = bytes(event.leaf)
        assert leaf == build_leaf(
            event_id=recorded.id,
            kind="plan.viewed",
            at=recorded.at,
            actor_type="person",
            actor_id=actor_id,
            on_behalf_of=target,
            agent=agent,
            target=target,
            plan_id=plan_id,
            plan_seq=plan_seq,
            operation=agent,
            task_id=plan_id,
            request_id=agent,
            commitment=commit_to(bytes(event.payload.salt), event.payload.body.encode()),
            nonce=bytes.fromhex(json.loads(leaf)["nonce"]),
        )
        assert bytes(event.leaf_hash) == hash_leaf(leaf)
        assert json.loads(event.payload.body) == {"actor_name": agent, "data": {"text": agent}}

    leaf_is_equal()


def test_a_payload_made_in_sql_is_the_one_made_here(database: None) -> None:
    @IN_DATABASE
    @given(TEXT)
    def payload_is_equal(text: str) -> None:
        data = serialise_payload(None, {"text": text}).removeprefix('{"actor_name":null,"data":')[:-1]
        with connection.cursor() as cursor:
            cursor.execute("SELECT audit_payload_text(%s, %s)", [text, data])
            assert cursor.fetchone() == (serialise_payload(text, {"text": text}),)

    payload_is_equal()


def test_the_longest_ids_still_make_a_leaf_that_fits_into_a_tile(database: None) -> None:
    longest = "\x01" * MAX_CHARACTERS
    recorded = make_event(
        actor=Actor("person", longest, ""),
        agent=longest,
        target=longest,
        plan_id=longest,
        on_behalf_of=longest,
        operation=longest,
        task_id=longest,
        request_id=longest,
    )
    assert len(Event.objects.get(pk=recorded.id).leaf) <= LEAF_MAX_BYTES
    with pytest.raises(ValueError, match="1024"):
        make_event(agent=longest + "x")


def test_two_events_of_the_same_content_share_no_commitment_and_no_leaf(database: None) -> None:
    first, second = (Event.objects.get(pk=make_event(Kind.PLAN_VIEWED, data={"a": 1}).id) for _ in range(2))
    assert bytes(first.leaf_hash) != bytes(second.leaf_hash)
    assert json.loads(bytes(first.leaf))["commitment"] != json.loads(bytes(second.leaf))["commitment"]
