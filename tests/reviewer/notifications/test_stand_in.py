"""Out of office: a stand-in is told instead, of what they may decide anyway; nothing is left with nobody."""

from datetime import timedelta

import pytest

from plans import clock
from plans.models import Approval
from reviewer.notifications.finding import find_news
from reviewer.notifications.models import Channel, Mute, Notice, Preference
from tests.makers import make_agent, make_plan, make_target

pytestmark = pytest.mark.usefixtures("database", "mail_server")


def away(person, stand_in=None, *, days=(-1, 1)):
    now = clock.now()
    Preference.objects.filter(person=person).update(
        away_from=now + timedelta(days=days[0]), away_until=now + timedelta(days=days[1]), stand_in=stand_in
    )


def told(plan):
    rows = Notice.objects.filter(plan=plan).select_related("person", "for_person")
    return sorted((row.person.email, row.for_person and row.for_person.email) for row in rows)


@pytest.fixture
def absent(make_reader):
    return make_reader(email="absent@x.example")


def test_a_stand_in_is_told_instead_also_of_what_they_muted_for_themselves(make_reader, absent):
    stand_in = make_reader(email="in@x.example")
    target = make_target()
    Mute.objects.create(person=stand_in, target=target)
    away(absent, stand_in)
    plan = make_plan(target=target)
    assert find_news() == 1
    assert told(plan) == [("in@x.example", "absent@x.example")]
    assert find_news() == 0


def test_a_stand_in_who_is_told_for_themselves_is_not_told_twice(make_reader, absent):
    away(absent, make_reader(email="in@x.example"))
    plan = make_plan()
    find_news()
    assert told(plan) == [("in@x.example", None)]


def test_without_a_stand_in_what_still_waits_is_told_when_they_are_back(absent):
    away(absent)
    plan = make_plan()
    assert find_news() == 0
    away(absent, days=(-2, -1))
    find_news()
    assert told(plan) == [("absent@x.example", None)]


def test_a_stand_in_who_may_not_decide_the_plan_leaves_it_with_whom_it_is_for(make_reader, absent):
    stand_in = make_reader(email="in@x.example")
    away(absent, stand_in)
    target = make_target()
    own = make_plan(target=target, made=make_agent(target, owner=stand_in))
    find_news()
    assert told(own) == [("absent@x.example", None)]


def test_a_stand_in_who_has_approved_already_is_not_asked_for_somebody_else(make_reader, absent):
    stand_in = make_reader(email="in@x.example")
    away(absent, stand_in)
    plan = make_plan(target=make_target(approvals=2))
    Approval.objects.create(plan=plan, reviewer=stand_in, seen_digest="0" * 64, approved_at=plan.received_at)
    find_news()
    assert told(plan) == []


@pytest.mark.parametrize("why", ["disabled", "role", "away", "channel"])
def test_a_stand_in_who_cannot_leaves_the_news_with_whom_it_is_for(make_reader, absent, why):
    stand_in = make_reader("reviewer", "admin", email="in@x.example")
    away(absent, stand_in)
    if why == "disabled":
        stand_in.is_active = False
    elif why == "role":
        stand_in.is_reviewer = False
    elif why == "away":
        away(stand_in)
    else:
        Channel.objects.filter(person=stand_in).update(is_on=False)
    stand_in.save()
    plan = make_plan()
    find_news()
    assert ("absent@x.example", None) in told(plan)


def test_being_away_starts_and_ends_by_itself(make_reader, absent):
    stand_in = make_reader(email="in@x.example")
    Preference.objects.filter(person=stand_in).update(occasions=[])
    away(absent, stand_in, days=(1, 2))
    first = make_plan()
    find_news()
    assert told(first) == [("absent@x.example", None)]
