"""Who is told of what: once each, by rows, whoever runs the sweep and however often."""

import threading
from datetime import timedelta

import pytest
from django.db import connection

from plans.models import Approval
from plans.states import AbandonReason, State
from reviewer.notifications import finding
from reviewer.notifications.finding import find_news, forget_old
from reviewer.notifications.models import Channel, Delivery, Escalation, Mark, Mute, Notice, Preference, TargetPace
from reviewer.notifications.occasions import Occasion
from tests.makers import make_agent, make_person, make_plan, make_target, reread, take_to
from tests.reviewer.notifications.doubles import eventually
from tests.time_passing import pass_time, pass_time_to_expiry

pytestmark = pytest.mark.usefixtures("database", "mail_server")


def told(plan=None):
    """(person, occasion) of every notice, by name."""
    rows = Notice.objects.filter(plan=plan) if plan else Notice.objects.all()
    return sorted((notice.person.email, notice.occasion) for notice in rows.select_related("person"))


def approve_as(plan, person):
    return Approval.objects.create(plan=plan, reviewer=person, seen_digest="0" * 64, approved_at=plan.received_at)


def test_everybody_who_may_decide_a_plan_is_told_once_that_it_waits(make_reader):
    reviewer, owner = (
        make_reader("reviewer", email="r@x.example"),
        make_reader("reviewer", "admin", email="o@x.example"),
    )
    make_reader("admin", email="admin@x.example")
    make_person("auditor")
    target = make_target()
    plan = make_plan(target=target, made=make_agent(target, owner=owner))
    assert find_news() == 1
    assert find_news() == 0
    assert told(plan) == [("r@x.example", "waiting")]
    [delivery] = Delivery.objects.all()
    assert delivery.channel.person == reviewer
    assert delivery.message is None


def test_a_plan_that_asks_for_nobody_has_expired_or_ended_is_no_news(make_reader, owner_connection):
    make_reader()
    make_plan(target=make_target(approvals=0))
    make_plan("committed")
    expired = make_plan()
    pass_time_to_expiry(owner_connection, expired, 1)
    assert find_news() == 0


def test_who_has_approved_already_is_not_asked_again(make_reader):
    first, second = make_reader(email="a@x.example"), make_reader(email="b@x.example")
    plan = make_plan(target=make_target(approvals=2))
    approve_as(plan, first)
    find_news()
    assert told() == [(second.email, "waiting")]


def test_two_sweeps_at_once_write_everything_once(make_reader):
    for _ in range(5):
        make_reader()
    plans = [make_plan() for _ in range(4)]
    made = []

    def sweep():
        try:
            made.append(find_news())
        finally:
            connection.close()

    threads = [threading.Thread(target=sweep) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sum(made) == 20
    assert Notice.objects.count() == Delivery.objects.count() == 5 * len(plans)


def test_a_sweep_that_another_one_overtakes_writes_nothing_and_does_not_fail(make_reader, owner_connection):
    person, plan = make_reader(), make_plan()
    made = []

    def sweep():
        try:
            made.append(find_news())
        finally:
            connection.close()

    with owner_connection.transaction():
        owner_connection.execute(
            """INSERT INTO notifications_notice (plan_id, person_id, occasion, made_at)
               VALUES (%s, %s, 'waiting', clock_timestamp())""",
            [plan.pk, person.pk],
        )
        thread = threading.Thread(target=sweep)
        thread.start()
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        eventually(lambda: owner_connection.execute(waits).fetchone()[0])
    thread.join(20)
    assert made == [0]
    assert told() == [(person.email, "waiting")]


def test_a_sweep_that_dies_halfway_leaves_nothing_half_written(make_reader, monkeypatch):
    make_reader()
    make_plan()

    def die(*args, **kwargs):
        raise SystemExit

    monkeypatch.setattr(finding, "due_at", die)
    with pytest.raises(SystemExit):
        find_news()
    assert (Notice.objects.count(), Delivery.objects.count()) == (0, 0)
    monkeypatch.undo()


def test_a_plan_that_expires_soon_is_told_to_reviewers_first_and_then_to_admins(make_reader, owner_connection):
    make_reader(email="r@x.example")
    admin, target = make_reader("admin", email="admin@x.example"), make_target()
    plan = make_plan(target=target, made=make_agent(target, owner=admin))
    find_news()
    pass_time(owner_connection, plan, 390)  # 210 of 600 s left: more than a third
    assert find_news() == 0
    pass_time(owner_connection, plan, 60)  # 150 s: a third, not yet a sixth
    find_news()
    assert told() == [("r@x.example", "soon"), ("r@x.example", "waiting")]
    pass_time(owner_connection, plan, 60)  # 90 s
    assert find_news() == 1
    assert ("admin@x.example", "escalated") in told()
    assert find_news() == 0


def test_long_lived_plans_are_told_of_no_earlier_than_the_settings_say(make_reader, owner_connection, settings):
    from datetime import timedelta

    make_reader(email="r@x.example")
    plan = make_plan(lifetime=timedelta(hours=20))
    pass_time_to_expiry(owner_connection, plan, -3700)
    find_news()
    assert told() == [("r@x.example", "waiting")]
    pass_time(owner_connection, plan, 200)
    find_news()
    assert ("r@x.example", "soon") in told()


def test_admins_may_name_one_person_who_hears_instead_of_them(make_reader, owner_connection):
    make_reader("admin", email="admin@x.example")
    named = make_reader("reviewer", email="named@x.example")
    Escalation.objects.create(pk=1, person=named)
    plan = make_plan()
    pass_time(owner_connection, plan, 590)
    find_news()
    assert [pair for pair in told() if pair[1] == "escalated"] == [("named@x.example", "escalated")]
    named.is_active = False
    named.save()
    other = make_plan()
    pass_time(owner_connection, other, 590)
    find_news()
    assert ("admin@x.example", "escalated") in told(other)


def test_admins_hear_at_once_of_a_plan_that_too_few_may_decide(make_reader):
    admin, target = make_reader("admin", email="admin@x.example"), make_target(approvals=2)
    make_reader("reviewer", email="only@x.example")
    plan = make_plan(target=target, made=make_agent(target, owner=admin))
    find_news()
    assert told(plan) == [("admin@x.example", "undecidable"), ("only@x.example", "waiting")]


def test_an_unknown_outcome_is_told_to_who_approved_it_and_to_everybody_once_it_can_be_settled(
    make_reader, owner_connection
):
    approver, other = make_reader(email="a@x.example"), make_reader(email="b@x.example")
    plan = make_plan()
    approve_as(plan, approver)
    take_to(plan, State.UNKNOWN, person=approver, reason=AbandonReason.EXPIRED, changes=(), result=None)
    find_news()
    assert told() == []  # the desk first tries to find out by itself
    pass_time(owner_connection, plan, 31)
    find_news()
    assert told() == [("a@x.example", "unknown")]
    pass_time_to_expiry(owner_connection, plan, 61)
    find_news()
    assert told() == [("a@x.example", "unknown"), (other.email, "unknown")]


@pytest.mark.parametrize("state", ["conflicted", "refused", "abandoned"])
def test_who_approved_a_plan_hears_that_it_ended_other_than_written(make_reader, state):
    approver = make_reader(email="a@x.example")
    make_reader(email="b@x.example")
    Mark.objects.create(pk=1, read_until=make_plan().received_at)
    plan = make_plan()
    approve_as(plan, approver)
    take_to(plan, State(state), person=approver, reason=AbandonReason.SUPERSEDED, changes=(), result=None)
    find_news()
    assert told(plan) == [("a@x.example", "ended")]
    find_news()
    assert told(plan) == [("a@x.example", "ended")]


def test_a_plan_that_was_written_is_no_news_unless_its_outcome_was_unknown(make_reader):
    from django.db import transaction

    from audit.kinds import Kind
    from plans.chronicle import SWEEP, tell
    from plans.locks import lock_plan

    approver = make_reader(email="a@x.example")
    Mark.objects.create(pk=1, read_until=make_plan("rejected").received_at)
    plan = make_plan()
    approve_as(plan, approver)
    take_to(plan, State.COMMITTED, person=approver, reason=AbandonReason.EXPIRED, changes=(), result="{}")
    find_news()
    assert told(plan) == []
    with transaction.atomic():
        tell(lock_plan(plan.pk), Kind.COMMIT_RESOLVED, actor=SWEEP, data={"how": "state", "state": "committed"})
    find_news()
    assert told(plan) == [("a@x.example", "ended")]


def test_the_first_sweep_ever_does_not_tell_the_past(make_reader):
    approver = make_reader()
    plan = make_plan()
    approve_as(plan, approver)
    take_to(plan, State.CONFLICTED, person=approver, reason=AbandonReason.EXPIRED, changes=(), result=None)
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    Mark.objects.create(pk=1, read_until="2020-01-01T00:00:00Z")
    facts = finding._facts(reread(plan).received_at)
    assert facts["since"] == reread(plan).received_at - finding.CATCHES_UP


def test_an_occasion_or_a_target_that_somebody_does_not_want_is_not_told(make_reader):
    person = make_reader(email="r@x.example")
    muted, heard = make_target(), make_target()
    Mute.objects.create(person=person, target=muted)
    make_plan(target=muted)
    find_news()
    assert told() == []
    plan = make_plan(target=heard)
    Preference.objects.filter(person=person).update(occasions=[Occasion.UNKNOWN.value])
    find_news()
    assert told() == []
    Preference.objects.filter(person=person).update(occasions=[Occasion.WAITING.value])
    find_news()
    assert told() == [("r@x.example", "waiting")]
    assert Notice.objects.get().plan == plan


def test_how_often_somebody_hears_of_plans_under_a_policy_is_their_choice_for_each(make_reader):
    person = make_reader(pace="daily", daily_at="09:00")
    at_once, every, usual = make_target(), make_target(), make_target()
    TargetPace.objects.create(person=person, target=at_once, pace="at_once")
    TargetPace.objects.create(person=person, target=every, pace="every")
    make_reader(email="other@x.example")
    plans = [make_plan(target=target) for target in (at_once, every, usual)]
    assert find_news() == 6
    own = Delivery.objects.filter(notice__person=person).select_related("notice")
    due = {one.notice.plan_id: one.due_at - one.notice.made_at for one in own}
    first, second, third = (due[plan.pk] for plan in plans)
    assert first < timedelta(seconds=10)
    at = own.get(notice__plan=plans[1]).due_at
    assert (at.minute % 30, at.second) == (0, 0)
    assert second <= timedelta(minutes=30)
    at = own.get(notice__plan=plans[2]).due_at
    assert (at.hour, at.minute) == (9, 0)
    assert third <= timedelta(hours=24)
    others = Delivery.objects.exclude(notice__person=person).select_related("notice")
    assert all(one.due_at - one.notice.made_at < timedelta(seconds=10) for one in others)


def test_who_has_no_channel_that_is_on_is_told_when_they_have_one(make_reader):
    person = make_reader()
    Channel.objects.filter(person=person).update(is_on=False)
    make_plan()
    assert find_news() == 0
    Channel.objects.filter(person=person).update(is_on=True)
    assert find_news() == 1


def test_without_a_mail_server_nobody_is_told_by_mail(make_reader, settings):
    settings.EMAIL_HOST = ""
    make_reader()
    make_plan()
    assert find_news() == 0


def test_a_notice_is_kept_while_its_plan_lives_and_forgotten_30_days_after(make_reader, owner_connection):
    make_reader()
    plan, ended = make_plan(), make_plan()
    find_news()
    take_to(ended, State.ABANDONED, person=None, reason=AbandonReason.TASK_ENDED, changes=(), result=None)
    assert forget_old() == 0
    Notice.objects.update(made_at="2026-01-01T00:00:00Z")
    assert forget_old() == 1
    assert list(Notice.objects.values_list("plan_id", flat=True)) == [plan.pk]
