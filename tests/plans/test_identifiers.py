"""Names are drawn from a closed ASCII alphabet."""

import re

import msgspec
import pytest

from plans.identifiers import IDENTIFIER, IDENTIFIER_PATTERN, is_idempotency_key, is_identifier, is_webhook_id

GOOD = ["a", "plan_8f21c", "refund:ticket-9913", "PL-1", "pl-1", "9", "a.b:c-d_e", "x" * 128]
BAD = [
    "caf\u00e9", "cafe\u0301", "PL-1 ", " PL-1", "PL-1\n", "x" * 129, "", ".", "..", "-a", "_a", ":a", "a/b", "a%00b",
    "a\0b", "\u0430cme", "prod\u200b", "\u0661", "a b", "a,b", "\uff41", "a\u2011b",
]  # fmt: skip


@pytest.mark.parametrize("text", GOOD)
def test_an_identifier_of_the_documented_set_is_taken(text: str) -> None:
    assert is_identifier(text)
    assert re.fullmatch(IDENTIFIER, text)
    assert re.search(IDENTIFIER_PATTERN, text)


@pytest.mark.parametrize("text", BAD)
def test_p57_an_identifier_outside_the_documented_set_is_refused(text: str) -> None:
    assert not is_identifier(text)
    assert not re.fullmatch(IDENTIFIER, text)
    assert not re.search(IDENTIFIER_PATTERN, text)


def test_the_anchored_pattern_serves_msgspec_and_json_schema() -> None:
    assert IDENTIFIER_PATTERN.startswith("^") and "\\Z" not in IDENTIFIER_PATTERN and "\\A" not in IDENTIFIER_PATTERN
    assert msgspec.Meta(pattern=IDENTIFIER_PATTERN).pattern == IDENTIFIER_PATTERN


@pytest.mark.parametrize(
    ("text", "is_good"),
    [
        ("msg_2mVb9-x", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("", False),
        ("a.b", False),
        ("a:b", False),
        ("a\n", False),
        ("\u00e9", False),
    ],
)
def test_i67_a_webhook_id_holds_no_full_stop_and_at_most_128_characters(text: str, is_good: bool) -> None:
    assert is_webhook_id(text) is is_good


@pytest.mark.parametrize(
    ("text", "is_good"),
    [
        ("k-1", True),
        (".", True),
        ("x" * 255, True),
        ("x" * 256, False),
        ("", False),
        ("a b", False),
        ('"a"', False),
        ("a\n", False),
    ],
)
def test_i67_an_idempotency_key_has_1_to_255_characters(text: str, is_good: bool) -> None:
    assert is_idempotency_key(text) is is_good
