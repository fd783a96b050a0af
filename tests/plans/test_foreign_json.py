"""What a target's JSON says, however oddly it is spelled; and that whatever is kept of it can be stored and read."""

import json

import pytest

from audit.canonical import RawJson, serialise_payload
from plans import changes
from plans.targets.foreign_json import (
    elements_of,
    is_flat_enough,
    is_like_object,
    members_of,
    redact,
    redact_json,
    shorten,
    string_of,
    text_of,
)

TOKEN = "pt-secret/tökén"
ODD = {
    "half a pair": b'{"a":"x\\ud800y"}',
    "the other half": b'{"a":"\\udc00"}',
    "halves in the wrong order": b'{"a":"\\udc00\\ud800"}',
    "half a pair in a name": b'{"a\\uDBFF":1}',
    "U+0000": b'{"a":"\\u0000"}',
    "U+0000 in a name": b'{"\\u0000":"\\u0000"}',
    "a name twice": b'{"a":1,"a":{"a":2,"a":3}}',
    "a name twice, and more": b'{"a":1,"a":2,"b":"\\ud800\\u0000"}',
    "a large number": b'{"a":1e999,"b":-1E+400}',
    "many digits": b'{"a":' + b"9" * 10_000 + b"}",
    "blanks": b' \r\n{ "a" :\t[ 1 , 2 ] , "b" : { } } \n',
    "no object": b'"\\ud800"',
    "a number": b" -0.0e-0 ",
    "escapes": b'{"\\"\\\\\\/\\b":"\\\\ud800 \\n \\u2028 \\u00e9 \\ud83d\\ude00"}',
    "many members": b"{" + b",".join(b'"m%d":%d' % (n, n) for n in range(20_000)) + b"}",
}
NOT = {
    "NaN": b'{"a":NaN}',
    "a name twice, then NaN": b'{"a":1,"a":2,"b":NaN}',
    "half a pair, then Infinity": b'{"a":"\\ud800","b":[-Infinity]}',
    "no UTF-8": b'{"a":"\xff"}',
    "half a pair in UTF-8": b'{"a":"\xed\xa0\x80"}',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "cut short": b'{"a":1',
    "two": b"{}{}",
    "nothing": b"",
    "blanks": b"  ",
    "a raw control character": b'"\x00"',
    "very deep": b"[" * 500_000 + b"]" * 500_000,
    "digits of another script": '{"a":\u0661}'.encode(),
}


@pytest.mark.parametrize("body", ODD.values(), ids=ODD)
def test_odd_json_is_read_and_what_is_kept_of_it_every_reader_takes(body):
    text = text_of(body)
    assert text is not None
    kept = redact_json(text, TOKEN)
    serialise_payload("x", {"result": RawJson(kept)})
    changes.read_value(kept)
    changes.read_members(kept)
    assert "\x00" not in kept
    if "\\u" not in text:
        assert kept == text
    for name, value in members_of(text):
        assert value in text
        assert value == value.strip()
        assert isinstance(name, str)


@pytest.mark.parametrize("body", NOT.values(), ids=NOT)
def test_what_is_not_json_is_not_read(body):
    assert text_of(body) is None


def test_an_object_is_known_as_one_though_it_cannot_be_read():
    for body in (b'{"a', b" \n{", b"\xef\xbb\xbf{}", "{}".encode("utf-16"), "{}".encode("utf-32-be"), b'{"a":' * 9_999):
        assert is_like_object(body)
    for body in (b"", b"gone", b"[{}]", b'"{"', b"<p>{"):
        assert not is_like_object(body)


def test_members_and_elements_are_the_text_as_received():
    assert members_of(' { "a" : 1.10 , "\\u0061":[ 1,{} ],"":"\\ud800"} ') == [
        ("a", "1.10"), ("a", "[ 1,{} ]"), ("", '"\\ud800"'),
    ]  # fmt: skip
    assert members_of("{ }") == members_of("[]") == members_of('"{}"') == members_of(None) == []
    assert list(elements_of(' [ 1.10,"a" , [ ] ]')) == ["1.10", '"a"', "[ ]"]
    assert list(elements_of("[ ]")) == list(elements_of("{}")) == list(elements_of("1")) == []


def test_only_a_string_is_a_string():
    assert string_of('"\\u00e9"') == "é"
    for text in ("1", "null", "true", "{}", "[]", None):
        assert string_of(text) is None


def test_levels_are_counted_and_not_brackets_in_texts():
    assert is_flat_enough("[" * 32 + "]" * 32)
    assert not is_flat_enough("[" * 33 + "]" * 33)
    assert is_flat_enough('["' + "[" * 99 + '"]')
    assert is_flat_enough('["\\ud800",' + ",".join(["{}"] * 99) + "]")


@pytest.mark.parametrize(
    "text",
    [
        '{"id":"re_1","note":"a\\u0000b"}',
        '{"id":"re_1","id":"re_2","note":"caf\\u00e9"}',
        '{"n":1.10,"big":9007199254740993,"s":"\\u0070t-secret"}',
    ],
)
def test_what_holds_no_token_is_kept_as_received(text):
    assert redact_json(text, TOKEN) == text


SPELLINGS = {
    "plainly": json.dumps(TOKEN, ensure_ascii=False),
    "with its escapes": json.dumps(TOKEN),
    "with a slash escaped": json.dumps(TOKEN).replace("/", "\\/"),
    "in escapes throughout": '"' + "".join(f"\\u{ord(one):04X}" for one in TOKEN) + '"',
}


@pytest.mark.parametrize("spelled", SPELLINGS.values(), ids=SPELLINGS)
@pytest.mark.parametrize(
    "around",
    [
        '{"id": 1.10, "you_sent": %s}',
        '{"id": 1.10, "id": 1.10, "x": {%s: "\\u0000"}}',
        '{"id": 1.10, "y": ["\\ud800", %s]}',
    ],
)
def test_the_token_is_found_however_it_is_spelled_and_nothing_else_is_lost(around, spelled):
    kept = redact_json(around % spelled, TOKEN)
    assert kept == around.replace("\\ud800", "\\\\ud800") % '"[plan token]"'
    assert redact_json(around % spelled.replace('"', '"<', 1), TOKEN).count('"<[plan token]"') == 1


def test_half_a_pair_stays_readable_as_its_escape_and_cannot_spell_the_token():
    assert json.loads(redact_json('{"a":"x\\uD800"}', TOKEN)) == {"a": "x\\ud800"}
    assert "\\ud800" not in json.loads(redact_json('"x\\ud800"', "\\ud800"))


def test_text_for_a_column_holds_neither_token_nor_what_a_column_cannot():
    assert redact(f"a {TOKEN} b\x00c\ud800", TOKEN) == "a [plan token] b\ufffdc\ufffd"
    assert shorten("x" * 512, 512) == "x" * 512
    assert shorten("x" * 513, 512) == "x" * 511 + "…"
