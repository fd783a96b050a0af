"""What strangers' bytes reach first: a value or the parser's own error, in time that grows with the size, and no more.

The strict JSON loader, the verifier of webhook signatures, the parser of idempotency keys.
"""

import gc
import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plans.idempotency import KeyInvalid, KeyMissing, parse_key
from plans.schema import Envelope, FedPlan
from plans.signatures import BadSignature, Secret, sign, verify
from plans.strict_json import InvalidBody, StrictJsonError, canonical, decode, loads

SECRETS: Final = [Secret(b"a" * 32), Secret(b"b" * 32)]
NOW: Final = 1_800_000_000

Parser = Callable[[bytes], object]


def read_json(body: bytes) -> object:
    """The loader, into the shapes of the feed, and the one form of what it read."""
    for shape in (Envelope, FedPlan, msgspec.Raw):
        try:
            decode(body, shape)
        except (StrictJsonError, InvalidBody) as error:
            str(error).encode("utf-8")
    try:
        return canonical(loads(body))
    except StrictJsonError as error:
        return error.reason


def read_signature(text: bytes) -> object:
    """The verifier, with the text as each of its headers in turn, and as the body."""
    right = {
        "webhook_id": "m_1",
        "timestamp": str(NOW),
        "signature": sign(SECRETS[0], "m_1", NOW, b"{}"),
        "body": b"{}",
    }
    answers = []
    for name in right:
        given_here: dict[str, Any] = {**right, name: text}
        try:
            answers.append(verify(SECRETS, now=NOW, **given_here))
        except BadSignature as error:
            answers.append(error.reason)
    return answers


def read_key(text: bytes) -> object:
    """The parser of keys, of the header as bytes and as the text that a server makes of it."""
    try:
        return parse_key(text), parse_key(text.decode("latin-1"))
    except (KeyMissing, KeyInvalid) as error:
        return str(error)


PARSERS: Final = [read_json, read_signature, read_key]
UNITS: Final = {
    read_json: [
        b"[", b"]", b"{", b'{"a":', b"[1,", b"1,", b"9", b"0", b'"', b"\\", b'\\"', rb"\u0000", rb"\ud800",
        rb"\ud83d\ude00",
        b'"a":1,', b'"\xc3\xa9",', b" ", b"\n", b"-", b"1e9", b".", b"null,", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80",
        b'{"a":1,"a":2},', b'{"":{}},', b"//", b"NaN,", b"1e400,", b"~1/", b"}{",
    ],
    read_signature: [
        b"v1,", b"v1,AAAA ", b"v1,AAAA= ", b"v1a,x ", b"v2,y ", b"A", b"=", b" ", b",", b"-.", b"0", b"9", b"\xff",
        b"\0", b"v1,AAAA=== ", b"_", b"m_1 ", b"\t",
    ],
    read_key: [b"a", b'"', b"\\", b'\\"', b",", b'"k",', b";a=1", b" ", b"\t", b":", b".", b"\xff", b"\0", b"k-1"],
}  # fmt: skip
ENDS: Final = [
    b"",
    b"[",
    b"]",
    b'"',
    b'{"plan":{"actions":[',
    b"]}}",
    b"v1,",
    b" ",
    b"x",
    b'{"data":',
    b"}",
    b"[[",
    b"]]",
]

quick = settings(
    max_examples=120, derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@st.composite
def made_of(draw: st.DrawFn, units: list[bytes]) -> tuple[bytes, bytes, bytes]:
    """A start, a unit that is repeated, an end."""
    unit = b"".join(draw(st.lists(st.sampled_from(units), min_size=1, max_size=4)))
    return draw(st.sampled_from(ENDS)), unit, draw(st.sampled_from(ENDS))


def of_size(pieces: tuple[bytes, bytes, bytes], size: int) -> bytes:
    start, unit, end = pieces
    return start + unit * (size // len(unit)) + end


@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: parse.__name__)
def test_any_bytes_are_a_value_or_the_parsers_own_error_and_the_same_again(parse: Parser) -> None:
    @quick
    @given(st.binary(max_size=300) | made_of(UNITS[parse]).map(lambda pieces: of_size(pieces, 200)))
    def once(text: bytes) -> None:
        assert parse(text) == parse(text)

    once()


def seconds_for(parse: Parser, text: bytes) -> float:
    """Processor time of this thread, the least of three, without collections, whose cost is the whole run's garbage."""
    least = float("inf")
    for _ in range(3):
        gc.disable()
        began = time.thread_time()
        parse(text)
        least = min(least, time.thread_time() - began)
        gc.enable()
    return least


SMALL, LARGE = 16 * 1024, 128 * 1024
TOLD_APART = 0.004
"""Seconds below which a measurement says nothing about growth."""


@pytest.mark.slow
@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: parse.__name__)
def test_time_grows_with_the_size_and_no_faster(parse: Parser) -> None:
    @settings(quick, max_examples=60)
    @given(made_of(UNITS[parse]))
    def grow(pieces: tuple[bytes, bytes, bytes]) -> None:
        large = seconds_for(parse, of_size(pieces, LARGE))
        if large < TOLD_APART:
            return
        small = seconds_for(parse, of_size(pieces, SMALL))
        # Eight times the size; work that grew with its square would take 64 times as long.
        assert large < 24 * max(small, TOLD_APART / 8), (pieces, small, large)

    grow()


@pytest.mark.slow
@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: parse.__name__)
def test_a_quarter_of_the_largest_body_costs_no_more_than_a_hundred_plain_readings_of_it(parse: Parser) -> None:
    plain = min(seconds_for(json.loads, b"[" + b"1," * (128 * 1024) + b"1]") for _ in range(5))
    for unit in UNITS[parse]:
        for end in (b"", b"]", b'"'):
            body = of_size((end and b"[", unit, end), 256 * 1024)
            if seconds_for(parse, body) > 100 * plain:  # twice, or the machine was busy with something else
                assert seconds_for(parse, body) < 100 * plain, (unit, end)


@pytest.mark.slow
@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: parse.__name__)
def test_nothing_is_kept_of_what_was_read(parse: Parser) -> None:
    def feed(round_number: int) -> None:
        for place, unit in enumerate(UNITS[parse]):
            # New text every time, so that whoever remembers by value would be seen.
            parse(b'{"%d-%d":[%s' % (round_number, place, unit * 50) + b"]}")
            parse(unit * 50 + b"%d" % round_number)
            parse(b'{"n%d":%d%d,"s":"%dx"}' % (round_number, round_number, place, round_number))

    for warm in range(3):
        feed(warm)
    gc.collect()
    tracemalloc.start()
    try:
        feed(3)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for number in range(4, 64):
            feed(number)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 32 * 1024, f"{after - before} bytes stayed after 60 rounds"
