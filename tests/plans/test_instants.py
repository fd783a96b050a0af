"""Instants are read in one form and written in one form, whatever zone the host is in."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plans.instants import format_instant, format_instant_exact, parse_instant


@pytest.fixture(params=["UTC", "Asia/Kolkata", "America/Los_Angeles"])
def host_zone(request: pytest.FixtureRequest) -> Iterator[str]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = request.param
    time.tzset()
    yield request.param
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-03-14T09:31:12Z", datetime(2026, 3, 14, 9, 31, 12, tzinfo=UTC)),
        ("2026-03-14T09:31:12.5Z", datetime(2026, 3, 14, 9, 31, 12, 500_000, tzinfo=UTC)),
        ("2026-03-14T09:31:12.000001Z", datetime(2026, 3, 14, 9, 31, 12, 1, tzinfo=UTC)),
        ("2026-03-14T15:01:12+05:30", datetime(2026, 3, 14, 9, 31, 12, tzinfo=UTC)),
        ("2026-03-14T01:31:12-08:00", datetime(2026, 3, 14, 9, 31, 12, tzinfo=UTC)),
        ("2026-03-14T09:31:12-00:00", datetime(2026, 3, 14, 9, 31, 12, tzinfo=UTC)),
        ("2028-02-29T23:59:59+23:59", datetime(2028, 2, 29, 0, 0, 59, tzinfo=UTC)),
        ("9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
    ],
)
def test_an_instant_with_an_offset_is_read_as_utc(text: str, instant: datetime) -> None:
    read = parse_instant(text)
    assert read == instant and read.utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    "text", ["2031-05-01T10:00:00", "2031-05-01T10:00:00.25", "2031-05-01 10:00", "2031-05-01T10:00"]
)
def test_x25_an_instant_without_an_offset_says_that_it_needs_one(text: str) -> None:
    with pytest.raises(ValueError, match="offset required"):
        parse_instant(text)


@pytest.mark.usefixtures("host_zone")
def test_x26_the_zone_of_the_host_plays_no_part() -> None:
    assert parse_instant("2031-05-01T10:00:00Z").timestamp() == 1_935_396_000
    assert format_instant(parse_instant("2031-05-01T15:30:00+05:30")) == "2031-05-01T10:00:00Z"


@pytest.mark.parametrize(
    "text",
    [
        "2031-06-30T23:59:60Z",
        "2031-06-30T24:00:00Z",
        "2031-06-30T23:59:59.9999999999Z",
        "2031-06-30T23:60:00Z",
        "2031-06-30T23:59:61Z",
        "2031-02-29T00:00:00Z",
        "2031-13-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
    ],
)
def test_x27_leap_seconds_hour_24_long_fractions_and_impossible_dates_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"[A-Z].*\.") as caught:
        parse_instant(text)
    assert text not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "infinity", "1e20", "0", "-1", "", "null", "2031-W01-1T00:00Z", "20310101T000000Z", "2031-01-01",
        "2031-01-01T00:00Z", "2031-01-01t00:00:00Z", "2031-01-01T00:00:00z", "2031-01-01 00:00:00Z",
        "2031-01-01T00:00:00,5Z", "2031-01-01T00:00:00.Z", "2031-01-01T00:00:00+0530", "2031-01-01T00:00:00+05",
        "2031-01-01T00:00:00+24:00", "2031-01-01T00:00:00+05:60", "2031-01-01T00:00:00Z\n", " 2031-01-01T00:00:00Z",
        "+2031-01-01T00:00:00Z", "12031-01-01T00:00:00Z", "2031-001T00:00:00Z", "2031-01-01T00:00:00 Z",
        "\u0662\u0660\u0663\u0661-01-01T00:00:00Z", "2031-01-01T00:00:00Z" * 100_000, "2031-01-01T00:00:00\u22125:00",
    ],
)  # fmt: skip
def test_x29_only_rfc_3339_with_an_offset_is_an_instant(text: str) -> None:
    with pytest.raises(ValueError, match=r"[A-Z].*\.|offset required"):
        parse_instant(text)


def test_x29_the_end_of_time_is_an_instant_whose_distance_is_for_others_to_judge() -> None:
    assert parse_instant("9999-12-31T23:59:59Z").year == 9999


def test_l118_instants_are_written_in_utc_with_z_and_zero_or_six_decimals() -> None:
    plain = datetime(2026, 3, 14, 10, 31, 2, tzinfo=timezone(timedelta(hours=1)))
    fine = plain.replace(microsecond=20)
    assert format_instant(plain) == "2026-03-14T09:31:02Z"
    assert format_instant(fine) == format_instant_exact(fine) == "2026-03-14T09:31:02.000020Z"
    assert format_instant_exact(plain) == "2026-03-14T09:31:02.000000Z"
    assert format_instant(datetime(1, 1, 1, tzinfo=UTC)) == "0001-01-01T00:00:00Z"


def test_an_instant_without_an_offset_is_not_written() -> None:
    for write in (format_instant, format_instant_exact):
        with pytest.raises(ValueError, match="offset"):
            write(datetime.fromisoformat("2026-03-14T00:00:00"))


@given(st.datetimes(timezones=st.just(UTC)))
def test_what_is_written_is_read_back(instant: datetime) -> None:
    assert parse_instant(format_instant(instant)) == instant == parse_instant(format_instant_exact(instant))


@given(st.text() | st.from_regex(r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)\Z"))
def test_any_text_is_an_instant_or_a_value_error(text: str) -> None:
    try:
        instant = parse_instant(text)
    except ValueError as refused:
        sentence = str(refused)
    else:
        assert instant.utcoffset() == timedelta(0)
        return
    assert "offset" in sentence or sentence.endswith(".")
