"""Fingerprints agree with the RFC 8785 vectors, and refuse what would be rounded."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from plans.fingerprints import FingerprintRefused, canonical_form, fingerprint, fingerprint_of_text
from plans.strict_json import Number, StrictJsonError, loads

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "jcs.json").read_text("utf-8"))
ACCEPTED: dict[str, dict[str, Any]] = {row["name"]: row for row in VECTORS["accept"]}
ABOUT_CANONICALISATION_ALONE = {"escapes-control", "nul-key"}
REASONS = {
    "duplicate-key": "duplicate_key",
    "lone-surrogate": "lone_surrogate",
    "unsafe-integer": "unsafe_integer",
    "non-finite": "non_finite",
    "not-json": "invalid_json",
    "empty": "invalid_json",
    "bom": "bom",
    "not-utf8": "invalid_utf8",
    "too-deep": "too_deep",
}
RECIPES = {
    "deep-2000": b"[" * 2000 + b"]" * 2000,
    "deep-100000": b"[" * 100_000 + b"]" * 100_000,
    "huge-int-digits": b'{"n":' + b"9" * 5000 + b"}",
}


def tree_of(row: dict[str, Any]) -> Any:
    if row["name"] in ABOUT_CANONICALISATION_ALONE:
        return json.loads(row["input"], parse_int=Number, parse_float=Number)
    return loads(row["input"].encode())


@pytest.mark.parametrize("row", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_every_accepted_vector_has_its_bytes_and_its_fingerprint(row: dict[str, Any]) -> None:
    tree = tree_of(row)
    assert canonical_form(tree) == bytes.fromhex(row["canonical_hex"]) == row["canonical_utf8"].encode()
    assert fingerprint(tree) == row["fingerprint"] == "sha256:" + row["sha256"]


@pytest.mark.parametrize("name", sorted(ABOUT_CANONICALISATION_ALONE))
def test_the_vectors_with_u0000_are_refused_as_text(name: str) -> None:
    with pytest.raises(StrictJsonError) as caught:
        fingerprint_of_text(ACCEPTED[name]["input"].encode())
    assert caught.value.reason == "nul"


@pytest.mark.parametrize("names", VECTORS["same_fingerprint_groups"], ids="=".join)
def test_the_vectors_of_a_group_share_one_fingerprint(names: list[str]) -> None:
    assert len({fingerprint_of_text(ACCEPTED[name]["input"].encode()) for name in names}) == 1


def test_only_the_vectors_of_a_group_share_a_fingerprint() -> None:
    by_print: dict[str, set[str]] = {}
    for row in ACCEPTED.values():
        by_print.setdefault(fingerprint(tree_of(row)), set()).add(row["canonical_utf8"])
    assert all(len(forms) == 1 for forms in by_print.values())


@pytest.mark.parametrize("row", VECTORS["reject"], ids=lambda row: row["name"])
def test_every_rejected_vector_is_refused_for_its_reason(row: dict[str, Any]) -> None:
    body = base64.b64decode(row["input_b64"]) if "input_b64" in row else RECIPES[row["name"]]
    caught: pytest.ExceptionInfo[Any]
    with pytest.raises((StrictJsonError, FingerprintRefused)) as caught:
        fingerprint_of_text(body)
    assert isinstance(caught.value, StrictJsonError | FingerprintRefused)
    assert REASONS[caught.value.reason] == row["reason"]


@pytest.mark.parametrize(
    "number", [2**53, -(2**53), 2**63, 10**5000, -(10**5000)], ids=["2^53", "-2^53", "2^63", "long", "-long"]
)
def test_an_integer_that_would_be_rounded_is_named_by_its_place(number: int) -> None:
    with pytest.raises(FingerprintRefused) as caught:
        fingerprint({"state": {"a/b": [1, number]}})
    assert (caught.value.reason, caught.value.pointer) == ("unsafe-integer", "/state/a~1b/1")
    assert "string" in caught.value.detail and len(caught.value.detail) < 200


@pytest.mark.parametrize("value", [float("nan"), float("inf"), Number("1e400")])
def test_what_is_not_finite_has_no_fingerprint(value: Any) -> None:
    with pytest.raises(FingerprintRefused) as caught:
        fingerprint([value])
    assert caught.value.reason == "non-finite"


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1}, {"\ud800": 2**60}])
def test_half_a_pair_has_no_fingerprint(value: Any) -> None:
    with pytest.raises(FingerprintRefused) as caught:
        fingerprint(value)
    caught.value.pointer.encode()


def test_plain_data_and_a_tree_of_the_same_value_have_one_fingerprint() -> None:
    plain: dict[str, Any] = {
        "operation": "refund",
        "inputs": {"n": 48000, "x": None},
        "state": {"invoice/4412": {"paid": True}},
    }
    mixed = plain | {"inputs": loads(b'{"x": null, "n": 48000}')}
    assert fingerprint(plain) == fingerprint(mixed) == fingerprint_of_text(json.dumps(plain).encode())
    assert fingerprint([Number("1.0")]) == fingerprint([1]) != fingerprint([True]) != fingerprint(["1"])
    assert fingerprint(("a", 1)) == fingerprint(["a", 1])


@pytest.mark.parametrize("value", [b"x", {1: 2}, {1, 2}, object()])
def test_what_is_no_json_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError):
        fingerprint(value)
