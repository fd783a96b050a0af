"""When something is told: at once, in a digest, not in quiet hours, and on the two odd days of a year."""

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from reviewer.notifications.timing import AT_ONCE, DAILY, EVERY, Rhythm, due_at

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = (time(22), time(7))


def utc(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def due(text, *, is_urgent=False, **rhythm):
    return due_at(utc(text), Rhythm(zone=rhythm.pop("zone", BERLIN), **rhythm), is_urgent=is_urgent)


def test_news_is_told_at_once_where_nobody_said_otherwise():
    assert due("2026-03-10T12:00:01") == utc("2026-03-10T12:00:01")


@pytest.mark.parametrize(
    ("now", "minutes", "wanted"),
    [
        ("2026-03-10T12:00:01", 30, "2026-03-10T12:30:00"),
        ("2026-03-10T12:30:00", 30, "2026-03-10T12:30:00"),
        ("2026-03-10T23:59:59", 60, "2026-03-11T00:00:00"),
        ("2026-03-10T12:01:00", 1440, "2026-03-11T00:00:00"),
    ],
)
def test_a_digest_collects_what_happens_between_two_multiples(now, minutes, wanted):
    assert due(now, pace=EVERY, every=timedelta(minutes=minutes)) == utc(wanted)


@pytest.mark.parametrize(
    ("now", "wanted"),
    [
        ("2026-03-10T07:59:59", "2026-03-10T08:00:00"),  # 09:00 in Berlin
        ("2026-03-10T08:00:00", "2026-03-11T08:00:00"),
        ("2026-07-10T06:59:59", "2026-07-10T07:00:00"),  # summer: an hour earlier
        ("2026-03-28T09:00:00", "2026-03-29T07:00:00"),  # the night between, the clocks went forward
    ],
)
def test_a_daily_digest_is_at_a_time_of_the_persons_own_day(now, wanted):
    assert due(now, pace=DAILY, daily_at=time(9)) == utc(wanted)


@pytest.mark.parametrize(
    ("now", "wanted"),
    [
        ("2026-03-10T20:59:59", "2026-03-10T20:59:59"),  # 21:59:59
        ("2026-03-10T21:00:00", "2026-03-11T06:00:00"),  # 22:00
        ("2026-03-11T05:59:59", "2026-03-11T06:00:00"),  # 06:59:59
        ("2026-03-11T06:00:00", "2026-03-11T06:00:00"),  # 07:00: over
        ("2026-03-28T22:00:00", "2026-03-29T05:00:00"),  # over the night in which an hour is missing
        ("2026-10-24T21:00:00", "2026-10-25T06:00:00"),  # over the night that has one twice
    ],
)
def test_quiet_hours_over_midnight_hold_news_until_they_end(now, wanted):
    assert due(now, quiet=NIGHT) == utc(wanted)


def test_quiet_hours_within_a_day_end_the_same_day():
    quiet = (time(12), time(14))
    assert due("2026-03-10T11:30:00", quiet=quiet) == utc("2026-03-10T13:00:00")
    assert due("2026-03-10T13:00:00", quiet=quiet) == utc("2026-03-10T13:00:00")


def test_quiet_hours_that_end_in_the_missing_hour_end_when_the_clocks_have_moved():
    # 02:30 on 29 March 2026 does not exist in Berlin: by the old offset it is 01:30 UTC, which is 03:30.
    assert due("2026-03-29T00:30:00", quiet=(time(22), time(2, 30))) == utc("2026-03-29T01:30:00")


def test_quiet_hours_that_end_in_the_hour_that_comes_twice_are_quiet_both_times():
    quiet = (time(22), time(2, 30))  # on 25 October 2026, 02:00 to 03:00 comes at 00:00 and at 01:00 UTC
    assert due("2026-10-25T00:15:00", quiet=quiet) == utc("2026-10-25T00:30:00")
    assert due("2026-10-25T00:30:00", quiet=quiet) == utc("2026-10-25T00:30:00")
    assert due("2026-10-25T01:15:00", quiet=quiet) == utc("2026-10-25T01:30:00")


def test_a_daily_digest_in_the_hour_that_comes_twice_comes_once():
    daily = {"pace": DAILY, "daily_at": time(2, 30)}
    assert due("2026-10-25T00:15:00", **daily) == utc("2026-10-25T00:30:00")
    assert due("2026-10-25T00:30:00", **daily) == utc("2026-10-26T01:30:00")


def test_a_daily_digest_in_the_missing_hour_comes_all_the_same():
    assert due("2026-03-29T00:00:00", pace=DAILY, daily_at=time(2, 30)) == utc("2026-03-29T01:30:00")


def test_a_digest_that_falls_into_quiet_hours_waits_for_their_end():
    digest = {"pace": EVERY, "every": timedelta(minutes=60), "quiet": NIGHT}
    assert due("2026-03-10T20:30:00", **digest) == utc("2026-03-11T06:00:00")


def test_only_urgent_news_breaks_through_and_only_where_the_person_says_so():
    held = {"quiet": NIGHT, "pace": DAILY, "daily_at": time(9)}
    now, morning = "2026-03-10T23:00:00", utc("2026-03-11T08:00:00")
    assert due(now, is_urgent=True, **held) == morning
    assert due(now, is_urgent=False, urgent_breaks_through=True, **held) == morning
    assert due(now, is_urgent=True, urgent_breaks_through=True, **held) == utc(now)


@pytest.mark.parametrize("zone", ["Pacific/Apia", "Australia/Lord_Howe", "Asia/Kathmandu", "America/St_Johns", "UTC"])
def test_nothing_is_ever_due_in_the_past_nor_two_days_away(zone):
    for hours in range(0, 24 * 366, 5):
        now = utc("2026-01-01T00:07:00") + timedelta(hours=hours)
        for pace in (AT_ONCE, EVERY, DAILY):
            at = due_at(now, Rhythm(zone=ZoneInfo(zone), pace=pace, quiet=NIGHT), is_urgent=False)
            assert now <= at <= now + timedelta(hours=36), (now, pace, at)
