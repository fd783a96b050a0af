"""One key, bare or quoted; anything else names the header."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plans.idempotency import KeyInvalid, KeyMissing, parse_key


@pytest.mark.parametrize("header", ["k-1", '"k-1"', b"k-1", b'"k-1"', " k-1 ", '\t"k-1" '])
def test_a_key_is_the_same_bare_and_quoted(header: str | bytes) -> None:
    assert parse_key(header) == "k-1"


@pytest.mark.parametrize("key", ["a", "x" * 255, "8f14e45f-ceea-467f-9575-6b0f6a7f3f0e", "order:1.2_3"])
def test_every_key_of_the_alphabet_is_taken(key: str) -> None:
    assert parse_key(key) == key == parse_key(f'"{key}"')


@pytest.mark.parametrize("header", [None, "", b"", " ", "\t \t", b"  "])
def test_i67_no_key_or_a_blank_one_is_missing(header: str | bytes | None) -> None:
    with pytest.raises(KeyMissing, match="Idempotency-Key"):
        parse_key(header)


@pytest.mark.parametrize(
    "header",
    [
        "x" * 256, '"' + "x" * 256 + '"', "5f" * 4096, "caf\u00e9", b"caf\xe9", "k-1,k-2", "k-1, k-2", '"k-1", "k-2"',
        '""', '"', '" k-1"', '"k-1', 'k-1"', '""k-1""', '"k-1";a=1', r'"k\-1"', r'"k\"1"', "'k-1'", "k 1", "k-1\n",
        "k\0", ":k-1:\x7f", "k/1", "\u212a", "\ud800",
    ],
)  # fmt: skip
def test_i67_what_is_not_one_key_is_invalid_and_names_the_header(header: str | bytes) -> None:
    with pytest.raises(KeyInvalid, match="Idempotency-Key") as caught:
        parse_key(header)
    assert "caf" not in str(caught.value)


@given(st.text() | st.binary())
def test_any_header_is_a_key_or_one_of_two_errors(header: str | bytes) -> None:
    try:
        key = parse_key(header)
    except (KeyMissing, KeyInvalid):
        return
    assert parse_key(key) == parse_key(f'"{key}"') == key
