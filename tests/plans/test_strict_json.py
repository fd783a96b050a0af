"""The loader keeps every rule of the contract, for any bytes, in bounded time."""

import json
import pickle
import sys
import time
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plans.strict_json import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_POINTER,
    InvalidBody,
    Json,
    Number,
    StrictJsonError,
    canonical,
    decode,
    decode_part,
    loads,
    pointer_to,
)

NUMBERS = ["1", "1.0", "1.10", "-0", "-0.0", "1e2", "1E+2", "0.10000000000000000001"]


class Act(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    op: Literal["update", "delete"]
    to: msgspec.Raw
    target: Annotated[str, msgspec.Meta(min_length=1, max_length=8)] = "t"
    from_: msgspec.Raw | msgspec.UnsetType = msgspec.field(name="from", default=msgspec.UNSET)


class Plan(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    actions: Annotated[list[Act], msgspec.Meta(min_length=1)]
    seq: int = 0
    code: Annotated[str, msgspec.Meta(pattern="^[a-z]+$")] = "a"
    by_name: dict[str, int] = {}


class Body(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    plan: Plan


def refusal(body: bytes) -> StrictJsonError:
    with pytest.raises(StrictJsonError) as caught:
        loads(body)
    return caught.value


def invalid(body: bytes, shape: type[Any] = Body) -> tuple[str, str]:
    with pytest.raises(InvalidBody) as caught:
        decode(body, shape)
    assert len(caught.value.errors) == 1
    return caught.value.errors[0]


def test_numbers_keep_the_text_received() -> None:
    body = f"[{', '.join(NUMBERS)}]".encode()
    assert loads(body) == [Number(text) for text in NUMBERS]


def test_one_and_one_point_zero_and_true_and_the_string_are_four_values() -> None:
    values: list[object] = [Number("1"), Number("1.0"), True, "1"]
    assert len({repr(v) for v in values}) == 4
    assert all(a != b for i, a in enumerate(values) for b in values[i + 1 :])
    assert len({canonical(loads(t)) for t in (b"1", b"1.0", b"true", b'"1"')}) == 4


def test_a_number_is_frozen_hashable_and_prints_its_text() -> None:
    number = Number("1.10")
    with pytest.raises(AttributeError):
        number.text = "2"
    with pytest.raises(AttributeError):
        del number.text
    assert str(number) == "1.10" and repr(number) == "Number('1.10')"
    assert len({number, Number("1.10"), Number("1.1")}) == 2
    assert pickle.loads(pickle.dumps(number)) == number
    assert not isinstance(number, str)


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (rb'{"a": {"to": "x\u0000"}}', "/a/to"),
        (rb'{"a": [1, {"target": "\u0000"}]}', "/a/1/target"),
        (rb'{"a": {"b": {"k\u0000y": 1}}}', "/a/b"),
        (rb'{"plan_id": "a\u0000b"}', "/plan_id"),
        (rb'"\u0000"', ""),
    ],
)
def test_p37_a_nul_is_422_and_named_by_its_path(body: bytes, pointer: str) -> None:
    error = refusal(body)
    assert (error.reason, error.is_syntax, error.pointer) == ("nul", False, pointer)
    assert pointer in error.detail


def test_p37_a_backslash_before_u0000_is_no_nul() -> None:
    assert loads(rb'"\\u0000"') == "\\u0000"


def test_p37_a_raw_nul_is_not_json() -> None:
    assert refusal(b'"\0"').reason == "not-json"
    assert refusal(b"{}\0").reason == "not-json"


@pytest.mark.parametrize("text", [rb"\ud83d", rb"\udc00x", rb"\ude00\ud83d", rb"\ud83d\ud83d\ude00", rb"\uDFFF"])
def test_p38_half_a_pair_is_422_in_a_value_and_in_a_name(text: bytes) -> None:
    error = refusal(b'{"to": ["' + text + b'"]}')
    assert (error.reason, error.is_syntax, error.pointer) == ("lone-surrogate", False, "/to/0")
    error = refusal(b'{"to": {"' + text + b'": 1}}')
    assert (error.reason, error.is_syntax, error.pointer) == ("lone-surrogate", False, "/to")


def test_p38_every_part_of_a_refusal_can_be_encoded() -> None:
    bodies = [rb'{"\ud800": {"a": 1, "a": 2}}', rb'{"\ud800": 1e999}', rb'{"\ud800": NaN}', rb'["\ud800"]']
    for body in bodies:
        error = refusal(body)
        json.dumps([error.pointer, error.detail], ensure_ascii=False).encode("utf-8")


def test_p38_a_whole_pair_is_kept() -> None:
    assert loads(rb'"\ud83d\ude00"') == "\U0001f600" == loads('"\U0001f600"'.encode())


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity"])
def test_p39_nan_and_infinity_are_400(literal: str) -> None:
    error = refusal(f'{{"to": [{literal}]}}'.encode())
    assert (error.reason, error.is_syntax, error.pointer) == ("not-json", True, "/to/0")


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1" * 400 + ".0", "1E999999999999999999999"])
def test_p39_a_number_that_becomes_infinite_is_422(number: str) -> None:
    error = refusal(f'{{"to": {number}}}'.encode())
    assert (error.reason, error.is_syntax, error.pointer) == ("non-finite", False, "/to")
    assert number not in error.detail


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 5000, str(2**63), str(-(2**63) - 1), "1e-400"])
def test_p40_integers_of_any_length_stay_exact(number: str) -> None:
    assert loads(number.encode()) == Number(number)
    assert canonical(loads(f"[{number}]".encode())) == f"[{number}]".encode()


def test_p41_integers_beyond_2_53_stay_distinct() -> None:
    assert loads(b"9007199254740992") != loads(b"9007199254740993")


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 20_000 + b"]" * 20_000,
        b'{"a":' * 101 + b"1" + b"}" * 101,
        b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
        b"[" * 500_000,
        b'["' + rb"\"[" * 40 + b'",' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"]",
    ],
)
def test_p42_deep_nesting_is_400_whatever_the_recursion_limit(body: bytes) -> None:
    limit = sys.getrecursionlimit()
    for lower in (limit, 300):
        sys.setrecursionlimit(lower)
        try:
            error = refusal(body)
        finally:
            sys.setrecursionlimit(limit)
        assert (error.reason, error.is_syntax) == ("too-deep", True)
    assert loads(b"{}") == {}


def test_p42_the_deepest_level_and_brackets_in_strings_pass() -> None:
    assert canonical(loads(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)) == b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    text = '[{"' * 50 + "\\" * 3
    assert loads(json.dumps([text, {text: "]"}]).encode()) == [text, {text: "]"}]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'{"actions": [1], "actions": [2]}', ""),
        (b'{"data": {"actions": [{"to": 1, "op": 2, "to": 1}]}}', "/data/actions/0"),
        (rb'{"x": {"a": 1, "\u0061": 2}}', "/x"),
        (b'{"a/b": {"~": {"c": 1, "c": 1}}}', "/a~1b/~0"),
        (b'{"": {"k": 1, "k": 1}}', "/"),
    ],
)
def test_p43_a_repeated_name_is_400_duplicate_key(body: bytes, pointer: str) -> None:
    error = refusal(body)
    assert (error.reason, error.is_syntax, error.pointer) == ("duplicate-key", True, pointer)
    assert "duplicate key" in error.detail


def test_p43_a_syntax_flaw_is_told_before_a_forbidden_value() -> None:
    assert refusal(rb'{"n": 1e400, "z": "\u0000", "a": {"b": 1, "b": 2}}').reason == "duplicate-key"
    assert refusal(rb'[1e400, "\u0000"]').pointer == "/0"
    assert refusal(rb'["\u0000", 1e400]').reason == "nul"


def test_p44_the_largest_body_passes_and_one_byte_more_does_not() -> None:
    body = b'"' + b"a" * (MAX_BYTES - 2) + b'"'
    assert loads(body) == "a" * (MAX_BYTES - 2)
    error = refusal(body + b" ")
    assert error.reason == "too-large" and str(MAX_BYTES) in error.detail


@pytest.mark.parametrize("text", ["0.1", "10.10", "1e2", "1.0", '"10.10"'])
def test_p45_every_spelling_stays_as_received(text: str) -> None:
    body = f'{{"plan":{{"actions":[{{"op":"update","to":{text}}}]}}}}'.encode()
    assert bytes(decode(body, Body).plan.actions[0].to) == text.encode()
    assert canonical(loads(text.encode())) == text.encode()


def test_p46_foreign_json_keeps_its_order_and_spacing_and_equal_data_has_one_form() -> None:
    foreign = b'{ "z" : 1.10,\n"aa":{"b":1,"a":2} }'
    body = b'{"plan": {"actions": [{"op": "update", "to": ' + foreign + b"}]}}"
    tree, typed = loads(body), decode_part(body, Body)
    assert bytes(typed.plan.actions[0].to) == foreign
    assert canonical(tree) == canonical(
        loads(b'{"plan":{"actions":[{"to":{"aa":{"a":2,"b":1},"z":1.10},"op":"update"}]}}')
    )
    assert canonical(loads(b"[1.10]")) != canonical(loads(b"[1.1]"))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"\xff", "not-utf8"),
        (b"\xef\xbb\xbf{}", "bom"),
        ('{"a":1}'.encode("utf-16"), "not-utf8"),
        ('{"a":1}'.encode("utf-16-le"), "not-json"),
        ('{"a":1}'.encode("utf-32-le"), "not-json"),
        (b'"\xc0\xaf"', "not-utf8"),
        (b'"\xed\xa0\xbd\xed\xb8\x80"', "not-utf8"),
        (b"", "empty"),
        (b"  \n", "not-json"),
        (b"\xc2\xa0{}", "not-json"),
        (b"{'a':1}", "not-json"),
        (b'{"a":1,}', "not-json"),
        (b"[01]", "not-json"),
        (b"[+1]", "not-json"),
        (b"[1.]", "not-json"),
        (b"[.5]", "not-json"),
        (b'"a\nb"', "not-json"),
        (b"{} {}", "not-json"),
        (b'"\\x41"', "not-json"),
        (b'"\\u 041"', "not-json"),
        (b'"\\u+041"', "not-json"),
        ("[\u0661]".encode(), "not-json"),
        (b"True", "not-json"),
    ],
)
def test_p58_a_body_that_is_not_json_is_400_with_the_true_reason(body: bytes, reason: str) -> None:
    error = refusal(body)
    assert (error.reason, error.is_syntax) == (reason, True)


@pytest.mark.parametrize("body", [b"[]", b'"x"', b"null", b"1", b"true"])
def test_p58_json_of_another_shape_is_refused_at_the_root(body: bytes) -> None:
    loads(body)
    pointer, detail = invalid(body)
    assert pointer == "" and detail.startswith("Expected `object`, got")


def test_no_refusal_holds_or_chains_the_body() -> None:
    secret = "pt_sentinel"
    bodies = [
        f'{{"t": "{secret}"',
        f'{{"t": "{secret}", "t": 1}}',
        f'["{secret}", "\\u0000{secret}", 1e999]',
        f'["{secret}\\ud800"]',
        f'{{"plan": {{"actions": [{{"op": "{secret}", "to": 1}}]}}}}',
        f'{{"plan": {{"actions": [{{"op": "update", "to": 1, "target": "{secret}"}}]}}}}',
        f'{{"plan": {{"actions": [{{"op": "update", "to": 1}}], "code": "{secret}"}}}}',
        f'{{"plan": "{secret}"}}',
    ]
    for body in [*(text.encode() for text in bodies), f'"{secret}'.encode() + b"\xff"]:
        with pytest.raises((StrictJsonError, InvalidBody)) as caught:
            decode(body, Body)
        assert secret not in repr(vars(caught.value)) + str(caught.value) + repr(caught.value)
        assert caught.value.__context__ is None and caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("plan", "pointer", "says"),
    [
        ('{"actions": [{"op": "update"}]}', "/plan/actions/0/to", "required"),
        (
            '{"actions": [{"op": "update", "to": 1}, {"op": "update", "to": 1, "zz": 1}]}',
            "/plan/actions/1/zz",
            "not known",
        ),
        ('{"actions": [{"op": "drop", "to": 1}]}', "/plan/actions/0/op", "accepted values"),
        ('{"actions": [{"op": 1, "to": 1}]}', "/plan/actions/0/op", "Expected `string`, got `integer`"),
        ('{"actions": [{"op": "update", "to": 1, "target": ""}]}', "/plan/actions/0/target", "length >= 1"),
        ('{"actions": [{"op": "update", "to": 1, "target": "123456789"}]}', "/plan/actions/0/target", "length <= 8"),
        ('{"actions": []}', "/plan/actions", "length >= 1"),
        ('{"actions": null}', "/plan/actions", "Expected `array`, got `null`"),
        ('{"actions": {}}', "/plan/actions", "Expected `array`, got `object`"),
        ('{"actions": [{"op": "update", "to": 1}], "seq": 1.5}', "/plan/seq", "Expected `integer`, got `number`"),
        (f'{{"actions": [{{"op": "update", "to": 1}}], "seq": {"9" * 5000}}}', "/plan/seq", "out of range"),
        ('{"actions": [{"op": "update", "to": 1}], "code": "A"}', "/plan/code", "accepted form"),
        ('{"actions": [{"op": "update", "to": 1}], "by_name": {"q": "x"}}', "/plan/by_name", "Expected `integer`"),
        ('{"actions": [{"op": "update", "to": 1}], "a/b~": 1}', "/plan/a~1b~0", "not known"),
        ('{"actions": [{"op": "update", "to": 1}], "x` - at `$.plan": 1}', "/plan/x` - at `$.plan", "not known"),
    ],
)
def test_a_wrong_member_is_named_by_its_pointer(plan: str, pointer: str, says: str) -> None:
    found, detail = invalid(f'{{"plan": {plan}}}'.encode())
    assert found == pointer and says in detail


def test_an_unknown_member_of_the_root_may_be_named_like_a_place() -> None:
    assert invalid(b'{"plan": {"actions": [{"op": "update", "to": 1}]}, "q` - at `$.plan.actions[0]": 1}')[
        0
    ].startswith("/q`")
    assert invalid(b'{"plan` - at `$": 1}')[0] == "/plan` - at `$"


def test_p48_null_missing_empty_and_zero_are_different_texts() -> None:
    texts = ["null", '""', "[]", "{}", "0", "false"]
    actions = ",".join(f'{{"op":"update","to":{text},"from":{text}}}' for text in texts)
    typed = decode(f'{{"plan":{{"actions":[{actions},{{"op":"update","to":1}}]}}}}'.encode(), Body)
    assert [bytes(action.to).decode() for action in typed.plan.actions[:-1]] == texts
    assert typed.plan.actions[-1].from_ is msgspec.UNSET


def test_a_pointer_stops_before_it_grows_too_long() -> None:
    assert pointer_to("a" * MAX_POINTER, 1) == ""
    assert pointer_to("a", "b" * MAX_POINTER) == "/a"
    assert pointer_to("a", 0, "/~") == "/a/0/~1~0"
    assert len(refusal(b'{"%s": 1e999}' % (b"k" * 500_000)).detail) < 200


def test_canonical_refuses_what_is_no_strict_tree() -> None:
    for value in (1, 1.5, b"x", (1,)):
        with pytest.raises(TypeError):
            canonical(value)  # type: ignore[arg-type]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON_VALUES, st.booleans())
def test_whatever_python_writes_is_read_alike_and_has_one_form(value: Any, is_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)
    has_nul = any("\0" in part for part in _texts(value))
    if has_nul:
        assert refusal(text.encode()).reason == "nul"
        return
    tree = loads(text.encode())
    assert json.loads(canonical(tree)) == value
    assert canonical(loads(canonical(tree))) == canonical(tree)
    assert canonical(loads(json.dumps(value, indent=1, ensure_ascii=not is_ascii).encode())) == canonical(tree)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    if isinstance(value, dict):
        return [text for name, item in value.items() for text in [name, *_texts(item)]]
    return []


FRAGMENTS = [
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", rb"\u0000", rb"\ud800", rb"\udc00", b"1", b"-", b"e400", b".5",
    b"NaN", b"true", b"null", b'"plan":', b'"actions":', b'"op":"update"', b'"to":', b'"a"', b" ", b"\xff", b"\xc3\xa9",
    b"9" * 400, b"` - at `$.plan", b"Infinity", b'{"plan":{"actions":[{"op":"update","to":', b"}]}}", b"[" * 33,
]  # fmt: skip


@settings(max_examples=400)
@given(st.binary(max_size=60) | st.lists(st.sampled_from(FRAGMENTS), max_size=12).map(b"".join))
def test_any_bytes_give_a_value_or_one_of_the_two_errors(body: bytes) -> None:
    for shape in (Body, Plan, Act, msgspec.Raw, list[int], dict[str, float]):
        try:
            decode(body, shape)
        except StrictJsonError as error:
            json.dumps([error.pointer, error.detail], ensure_ascii=False).encode()
        except InvalidBody as error:
            json.dumps(error.errors, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"[]," * 340_000 + b"[]]",
        b"[" + b",".join(b"%d" % n for n in range(150_000)) + b"]",
        b"{" + b",".join(b'"%x":0' % n for n in range(100_000)) + rb',"z":"\u0000"}',
        b'"' + b'\\"' * 500_000,
        b'"\\' * 500_000,
        b"9" * 1_000_000,
        b"9" * 1_000_000 + b".5",
    ],
    ids=["arrays", "numbers", "names", "quotes", "openings", "digits", "fraction"],
)
def test_a_hostile_mebibyte_costs_less_than_two_seconds(body: bytes) -> None:
    assert len(body) <= MAX_BYTES
    started = time.process_time()
    try:
        tree: Json = loads(body)
        del tree
    except StrictJsonError:
        pass
    # About 0.1 s on an idle machine; the bound only tells linear from quadratic.
    assert time.process_time() - started < 2
