"""Signatures follow Standard Webhooks 1.0 to the byte, and every refusal looks the same."""

import base64
import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plans.signatures import BadSignature, Header, Secret, make_secret, parse_secret, sign, verify

VECTORS: dict[str, Any] = json.loads((Path(__file__).parents[1] / "vectors" / "webhooks.json").read_text("utf-8"))
ROWS: list[dict[str, Any]] = VECTORS["vectors"]
NOW = 1_796_083_200
OLD, NEW = parse_secret(VECTORS["keys"]["S1"]), parse_secret(VECTORS["keys"]["S2"])
BODY = b'{"a":1}'
# Published with 18 bytes: right by the scheme, and too short to be taken into use.
OF_A_SHORT_SECRET = {"published-svix-vector"}


def is_asymmetric(row: dict[str, Any]) -> bool:
    return any(key.startswith("whpk_") for key in row["trusted_keys"])


SYMMETRIC_ROWS = [row for row in ROWS if not is_asymmetric(row)]
ASYMMETRIC_ROWS = [row for row in ROWS if is_asymmetric(row)]


def secrets_of(row: dict[str, Any]) -> list[Secret]:
    if row["name"] in OF_A_SHORT_SECRET:
        return [Secret(base64.b64decode(key.removeprefix("whsec_"))) for key in row["trusted_keys"]]
    return [parse_secret(key) for key in row["trusted_keys"]]


def verify_row(row: dict[str, Any], secrets: list[Secret]) -> str:
    headers = {name.lower(): value for name, value in row["headers"].items()}
    return verify(
        secrets,
        webhook_id=headers.get("webhook-id"),
        timestamp=headers.get("webhook-timestamp"),
        signature=headers.get("webhook-signature"),
        body=base64.b64decode(row["body_b64"]),
        now=row["now"],
        tolerance=row["tolerance_seconds"],
    )


def reason_of(
    signature: Header, *, secrets: list[Secret] | None = None, timestamp: Header = str(NOW), webhook_id: Header = "m_1"
) -> str:
    with pytest.raises(BadSignature) as caught:
        verify(
            [OLD] if secrets is None else secrets,
            webhook_id=webhook_id, timestamp=timestamp, signature=signature, body=BODY, now=NOW,
        )  # fmt: skip
    assert str(caught.value) == "The signature is not valid."
    return caught.value.reason


def test_the_vectors_hold_both_kinds() -> None:
    assert len(SYMMETRIC_ROWS) > 60 and len(ASYMMETRIC_ROWS) > 8
    assert {row["expect"]["valid"] for row in SYMMETRIC_ROWS} == {True, False}


@pytest.mark.parametrize("row", SYMMETRIC_ROWS, ids=lambda row: row["name"])
def test_every_vector_gets_its_answer(row: dict[str, Any]) -> None:
    secrets = secrets_of(row)
    if row["expect"]["valid"]:
        assert verify_row(row, secrets) == {k.lower(): v for k, v in row["headers"].items()}["webhook-id"]
        return
    with pytest.raises(BadSignature) as caught:
        verify_row(row, secrets)
    assert caught.value.reason == row["expect"]["reason"]


@pytest.mark.parametrize("row", ASYMMETRIC_ROWS, ids=lambda row: row["name"])
def test_a_public_key_is_never_a_secret(row: dict[str, Any]) -> None:
    """Only `v1` is spoken here: a receiver can't be given a public key, so none of these rows can pass."""
    secrets: list[Secret] = []
    for key in row["trusted_keys"]:
        if key.startswith("whpk_"):
            with pytest.raises(ValueError, match="whsec_"):
                parse_secret(key)
        else:
            secrets.append(parse_secret(key))
    with pytest.raises(BadSignature):
        verify_row(row, secrets)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row["expect"]["valid"] and not is_asymmetric(row)], ids=lambda r: r["name"]
)
def test_signing_gives_one_of_the_signatures_of_each_valid_vector(row: dict[str, Any]) -> None:
    headers = {name.lower(): value for name, value in row["headers"].items()}
    body = base64.b64decode(row["body_b64"])
    made = {sign(secret, headers["webhook-id"], int(headers["webhook-timestamp"]), body) for secret in secrets_of(row)}
    assert made & set(headers["webhook-signature"].split(" "))


def test_w70_the_signature_covers_every_byte_of_the_body() -> None:
    body = b'{ "b" : "\\u001B",\n"a":1 }\n'
    signature = sign(OLD, "m_1", NOW, body)
    headers: dict[str, Any] = {"webhook_id": "m_1", "timestamp": str(NOW), "signature": signature, "now": NOW}
    assert verify([OLD], body=body, **headers) == "m_1"
    for other in (body.replace(b" :", b":"), body.replace(b"1B", b"1b"), body[:-1], body + b"\n"):
        with pytest.raises(BadSignature):
            verify([OLD], body=other, **headers)


@pytest.mark.parametrize(
    ("timestamp", "reason"),
    [
        (str(NOW - 360), "timestamp_too_old"),
        (str(NOW - 301), "timestamp_too_old"),
        (str(NOW + 301), "timestamp_too_new"),
        (None, "missing_header"),
        ("", "missing_header"),
        ("abc", "invalid_timestamp"),
        (f"{NOW}000", "timestamp_too_new"),
        ("9" * 400, "invalid_timestamp"),
        (f"0{NOW}", "invalid_timestamp"),
        (f"{NOW}\n", "invalid_timestamp"),
    ],
)
def test_w72_a_stale_a_missing_or_a_malformed_timestamp_is_refused(timestamp: str | None, reason: str) -> None:
    signature = (
        sign(OLD, "m_1", int(timestamp), BODY)
        if timestamp and timestamp.isdecimal() and len(timestamp) < 15
        else "v1,AA=="
    )
    assert reason_of(signature, timestamp=timestamp) == reason


def test_w72_the_timestamp_is_covered_by_the_signature() -> None:
    assert reason_of(sign(OLD, "m_1", NOW - 360, BODY), timestamp=str(NOW)) == "no_matching_signature"


def test_w72_the_edges_of_the_tolerance_pass_and_a_fraction_beyond_does_not() -> None:
    for at in (NOW - 300, NOW + 300):
        signature = sign(OLD, "m_1", at, BODY)
        verify([OLD], webhook_id="m_1", timestamp=str(at), signature=signature, body=BODY, now=NOW)
    with pytest.raises(BadSignature):
        verify(
            [OLD],
            webhook_id="m_1",
            timestamp=str(NOW - 300),
            signature=sign(OLD, "m_1", NOW - 300, BODY),
            body=BODY,
            now=NOW + 0.001,
        )


def test_w76_any_of_several_signatures_by_any_of_several_secrets_is_enough() -> None:
    old, new, wrong = sign(OLD, "m_1", NOW, BODY), sign(NEW, "m_1", NOW, BODY), sign(make_secret(), "m_1", NOW, BODY)
    good: list[tuple[list[Secret], Header]] = [
        ([OLD], f"{wrong} {old}"), ([OLD, NEW], old), ([OLD, NEW], new), ([NEW], f"{old} {new}"),
        ([OLD], f"v2,anything-at_all v1a,x {old} v9.x,~"), ([OLD], old.encode()),
    ]  # fmt: skip
    for secrets, signature in good:
        verify(secrets, webhook_id="m_1", timestamp=str(NOW), signature=signature, body=BODY, now=NOW)
    assert reason_of(old, secrets=[NEW]) == "no_matching_signature"
    assert reason_of(old.replace("v1,", "v2,")) == "no_matching_signature"


@pytest.mark.parametrize("size", [24, 32, 64])
def test_w77_a_secret_is_read_with_and_without_its_prefix(size: int) -> None:
    text = base64.b64encode(bytes(range(size))).decode()
    assert parse_secret(text) == parse_secret("whsec_" + text) == Secret(bytes(range(size)))
    assert parse_secret(text).reveal() == "whsec_" + text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("whsec_", "0"),
        ("v1,whsec_" + "A" * 32, "version"),
        ("v1a," + "A" * 32, "version"),
        ("whsec_" + "A" * 31, "base64"),
        ("whsec_" + "-_" * 16, "base64"),
        ("whsec_whsec_" + "A" * 32, "base64"),
        ("whsec_" + "A" * 20 + "!" * 12, "base64"),
        ("whsec_" + "A" * 28, "24 to 64"),
        ("whsec_" + "A" * 88, "24 to 64"),
        (" whsec_" + "A" * 32, "white space"),
        ("whsec_" + "A" * 32 + "\n", "white space"),
        ("whsec_" + "\u00e9" * 32, "base64"),
        ("whpk_" + "A" * 44, "asymmetric"),
        ("whsk_" + "A" * 44, "asymmetric"),
        ("MFRGG" * 8 + "===", "base64"),
    ],
)
def test_w77_a_secret_that_cannot_be_read_says_why_and_not_what(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        parse_secret(text)
    assert "AAAA" not in str(caught.value) and caught.value.__context__ is None


@pytest.mark.parametrize(
    ("signature", "reason"),
    [
        (b"v1,\xe9", "malformed_signature"),
        ("v1,\u00e9", "malformed_signature"),
        ("v1,\ud800", "malformed_signature"),
        ("v1," + "A" * 65_536, "malformed_signature"),
        ("", "missing_header"),
        (b"", "missing_header"),
        (None, "missing_header"),
        ("v1", "malformed_signature"),
        ("v1,", "malformed_signature"),
        (" ", "malformed_signature"),
        ("v1,AAAA  v1,AAAA", "malformed_signature"),
        ("v1,AAAA\n", "malformed_signature"),
        ("v1,A=AA", "malformed_signature"),
        ("V1,AAAA", "no_matching_signature"),
        (b"\xff\xfe", "malformed_signature"),
        ("v1,AAAA,v1,AAAA", "malformed_signature"),
    ],
)
def test_w78_an_odd_signature_header_is_a_bad_signature_like_any_other(signature: Header, reason: str) -> None:
    assert reason_of(signature) == reason


def test_w78_an_odd_id_or_timestamp_is_a_bad_signature_too() -> None:
    for webhook_id in ("\u00e9", b"\xe9", "a.b", "x" * 129, "x" * 10**6, "a b", "a\n"):
        assert reason_of("v1,AAAA", webhook_id=webhook_id) == "invalid_id"
    for timestamp in (b"\xe9", "\u0661" * 10, "\ud800"):
        assert reason_of("v1,AAAA", timestamp=timestamp) == "invalid_timestamp"


@pytest.mark.parametrize("row", [row for row in ROWS if row["name"] in OF_A_SHORT_SECRET], ids=lambda row: row["name"])
def test_w77_a_secret_shorter_than_24_bytes_is_not_taken_into_use(row: dict[str, Any]) -> None:
    for key in row["trusted_keys"]:
        with pytest.raises(ValueError, match="24 to 64"):
            parse_secret(key)


def test_w82_without_secrets_everything_is_refused() -> None:
    assert reason_of(sign(OLD, "m_1", NOW, BODY), secrets=[]) == "no_trusted_keys"
    with pytest.raises(ValueError, match="empty"):
        Secret(b"")


def test_a_secret_shows_and_pickles_itself_to_nobody() -> None:
    secret = make_secret()
    assert len(secret.key) == 32 and secret != make_secret() and secret == Secret(secret.key)
    assert secret != secret.key and len({secret, Secret(secret.key)}) == 1
    for text in (repr(secret), str(secret), f"{secret}", f"{[secret]}"):
        assert "hidden" in text and secret.reveal()[6:] not in text
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            copied(secret)
    assert not hasattr(secret, "__dict__")


def test_signing_refuses_an_id_that_could_be_cut_in_two_ways() -> None:
    for webhook_id in ("a.1", "", "x" * 129):
        with pytest.raises(ValueError, match="webhook-id"):
            sign(OLD, webhook_id, NOW, BODY)
    with pytest.raises(ValueError, match="timestamp"):
        sign(OLD, "m_1", -1, BODY)


HEADERS = (
    st.none()
    | st.text(max_size=80)
    | st.binary(max_size=80)
    | st.sampled_from(["m_1", str(NOW), "v1,AAAA", "v1,AAAA "])
)


@given(HEADERS, HEADERS, HEADERS, st.binary(max_size=20))
def test_any_headers_give_a_bad_signature_and_no_other_error(
    one: Header, two: Header, three: Header, body: bytes
) -> None:
    with pytest.raises(BadSignature):
        verify([OLD, NEW], webhook_id=one, timestamp=two, signature=three, body=body, now=NOW)


@given(st.binary(min_size=24, max_size=64), st.binary(max_size=200), st.integers(min_value=0, max_value=10**12))
def test_what_is_signed_verifies(key: bytes, body: bytes, at: int) -> None:
    secret = Secret(key)
    signature = sign(secret, "m_1", at, body)
    assert verify([parse_secret(secret.reveal())], webhook_id="m_1", timestamp=str(at), signature=signature, body=body,
                  now=at) == "m_1"  # fmt: skip
