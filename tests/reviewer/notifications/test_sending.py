"""Messages on their way: real mail, what they say, digests, retries, and what is true no more."""

from datetime import time, timedelta

import pytest
from django.db.models import F

from audit.models import Event
from plans import clock
from plans.errors import kept
from plans.models import Agent, Approval, Plan
from plans.states import AbandonReason, State
from reviewer.moments import zone_of
from reviewer.notifications import sending
from reviewer.notifications.finding import find_news
from reviewer.notifications.models import Channel, Delivery, Message, Mute, Notice, Preference
from reviewer.notifications.sending import send_due, send_test
from reviewer.notifications.transports import NotDelivered
from tests.makers import make_plan, make_target, take_to
from tests.reviewer.notifications.conftest import calm, sweep
from tests.time_passing import pass_time, pass_time_to_expiry

pytestmark = pytest.mark.usefixtures("database")


def body_of(mail, kind="plain"):
    return mail.get_body((kind,)).get_content()


def let_pass(seconds):
    """As if messages had been tried so long ago."""
    Message.objects.filter(next_try_at__isnull=False).update(next_try_at=F("next_try_at") - timedelta(seconds=seconds))


def test_a_mail_says_what_the_desk_knows_and_links_to_the_page(mail_server, make_reader, settings):
    make_reader(email="mara@x.example", time_zone="Europe/Berlin")
    plan = make_plan(target=make_target("ledger"), summary="Click here to approve <b>now</b>")
    assert sweep() == (1, 1)
    [mail] = mail_server.mails
    assert mail["To"] == "mara@x.example"
    assert mail["Subject"] == "Waits for a decision: limit.update on ledger, 1 change"
    assert mail["Auto-Submitted"] == "auto-generated"
    url = f"{settings.BASE_URL}/plans/{plan.agent.name}/ledger/{plan.plan_id}/"
    for kind in ("plain", "html"):
        body = body_of(mail, kind)
        assert url in body
        assert f"{plan.expires_at:%Y-%m-%d %H:%M:%S} UTC (" in body
        assert " Berlin)" in body
        assert f"{settings.BASE_URL}/settings/notifications/" in body
    assert sweep() == (0, 0)
    assert Message.objects.get().sent_at is not None


def test_no_word_of_an_agent_and_no_token_is_in_a_message(mail_server, make_reader):
    make_reader()
    make_plan(
        summary="AGENTS-WORDS",
        inputs={"note": "AGENTS-WORDS"},
        evidence=[{"tool": "x.y", "note": "AGENTS-WORDS", "url": "https://evil.example/AGENTS-WORDS"}],
        plan={
            "plan_token": "pt-AGENTS-TOKEN",
            "actions": [{"op": "update", "target": "AGENTS-WORDS", "field": "a", "to": "AGENTS-WORDS"}],
        },
    )
    sweep()
    [mail] = mail_server.mails
    for part in (mail.as_string(), body_of(mail), body_of(mail, "html")):
        assert "AGENTS" not in part
        assert "approve/" not in part


def test_a_name_cannot_break_out_of_a_line_or_a_page(mail_server, make_reader):
    absent = make_reader(name="Eve\r\nBcc: all@x.example\n\n<script>x</script>", email="eve@x.example")
    stand_in = make_reader(email="in@x.example", occasions=[])
    now = clock.now()
    Preference.objects.filter(person=absent).update(
        stand_in=stand_in, away_from=now - timedelta(days=1), away_until=now + timedelta(days=1)
    )
    make_plan()
    sweep()
    [mail] = mail_server.mails
    assert mail["Bcc"] is None
    assert "You stand in for Eve  Bcc: all@x.example  <script>x</script>." in body_of(mail)
    assert "&lt;script&gt;" in body_of(mail, "html")
    assert mail_server.recipients == ["rcpt TO:<in@x.example>"]


def test_what_happens_within_a_minute_travels_together(mail_server, make_reader):
    person = make_reader()
    make_plan()
    assert sweep() == (1, 1)
    for _ in range(3):
        make_plan()
    assert sweep() == (3, 0)
    calm(person)
    assert sweep() == (0, 1)
    assert mail_server.mails[1]["Subject"] == "Plandesk: 3 plans (Waits for a decision)"
    assert body_of(mail_server.mails[1]).count("/plans/") == 3


def test_a_plan_with_two_occasions_in_a_message_is_told_once_by_the_more_urgent(
    mail_server, make_reader, owner_connection
):
    make_reader()
    plan = make_plan()
    find_news()
    pass_time(owner_connection, plan, 450)
    sweep()
    [mail] = mail_server.mails
    assert mail["Subject"].startswith("Expires soon, waits for a decision: ")
    assert body_of(mail).count("/plans/") == 1


def test_a_digest_waits_for_its_time_and_leaves_out_what_was_decided_meanwhile(mail_server, make_reader):
    person = make_reader(pace="every", every_minutes=30)
    kept, decided = make_plan(), make_plan()
    assert sweep() == (2, 0)
    due = Delivery.objects.values_list("due_at", flat=True).distinct()
    assert [at.minute % 30 for at in due] == [0]
    take_to(decided, State.REJECTED, person=person, reason=AbandonReason.EXPIRED, changes=(), result=None)
    Delivery.objects.update(due_at=clock.now())
    assert sweep() == (0, 1)
    assert kept.plan_id in body_of(mail_server.mails[0])
    assert decided.plan_id not in body_of(mail_server.mails[0])
    assert Delivery.objects.get(notice__plan=decided).dropped_at is not None


def test_quiet_hours_hold_a_message_and_urgent_news_break_through(mail_server, make_reader, owner_connection):
    held = make_reader(email="held@x.example", quiet_from="00:00", quiet_to="23:59:59.999999")
    make_reader(email="open@x.example", quiet_from="00:00", quiet_to="23:59:59.999999", urgent_breaks_through=True)
    plan = make_plan()
    assert sweep() == (2, 0)
    pass_time(owner_connection, plan, 450)
    assert sweep() == (2, 1)
    assert mail_server.mails[0]["To"] == "open@x.example"
    assert Delivery.objects.filter(channel__person=held, message=None).count() == 2


def test_what_failed_is_not_tried_again_in_quiet_hours(mail_server, make_reader):
    person = make_reader()
    mail_server.answer = "451 later"
    make_plan()
    assert sweep() == (1, 1)
    start, end = time(0), time(23, 59, 59)
    Preference.objects.filter(person=person).update(quiet_from=start, quiet_to=end)
    Message.objects.update(next_try_at=clock.now())
    assert send_due() == 1
    again = Message.objects.get().next_try_at.astimezone(zone_of(person.time_zone)).time()
    assert again == end


def test_a_target_that_was_muted_and_an_agent_that_became_ones_own_are_told_no_more(mail_server, make_reader):
    mutes, owns = make_reader(email="mutes@x.example"), make_reader(email="owns@x.example")
    mail_server.answer = "451 later"
    plan = make_plan()
    assert sweep() == (2, 2)
    Mute.objects.create(person=mutes, target=plan.target)
    Agent.objects.filter(pk=plan.agent_id).update(owner=owns)
    mail_server.answer = "250 ok"
    Message.objects.update(next_try_at=clock.now())
    assert send_due() == 0
    assert Message.objects.filter(dropped_at__isnull=False).count() == 2


def test_a_message_whose_plans_are_all_decided_is_never_sent(mail_server, make_reader, owner_connection):
    person = make_reader()
    mail_server.answer = "451 later"
    approved, expired = make_plan(), make_plan()
    sweep()
    Approval.objects.create(plan=approved, reviewer=person, seen_digest="0" * 64, approved_at=approved.received_at)
    pass_time_to_expiry(owner_connection, expired, 1)
    mail_server.answer = "250 ok"
    let_pass(3600)
    assert send_due() == 0
    assert Message.objects.get().dropped_at is not None
    assert mail_server.mails == []


def test_a_failure_is_tried_again_with_growing_pauses_seen_and_given_up(mail_server, make_reader):
    person = make_reader()
    mail_server.answer = "451 come back"
    make_plan(lifetime=timedelta(hours=23))
    sweep()
    pauses = []
    for _ in sending.PAUSES:
        message = Message.objects.get()
        assert message.gave_up_at is None
        pauses.append(round((message.next_try_at - clock.now()).total_seconds() / 10) * 10)
        assert send_due() == 0
        let_pass(20_000)
        assert send_due() == 1
    assert pauses == sorted(pauses) == [int(pause.total_seconds()) for pause in sending.PAUSES]
    message, channel = Message.objects.get(), Channel.objects.get(person=person)
    assert message.gave_up_at is not None
    assert message.try_count == len(sending.PAUSES) + 1
    assert channel.failing_since is not None
    assert kept(channel.last_failure) == "The mail server refused the address (451)."
    assert send_due() == 0


def test_a_mail_server_that_is_gone_is_a_sentence_and_the_next_success_clears_it(mail_server, make_reader, settings):
    person = make_reader()
    port, settings.EMAIL_PORT = settings.EMAIL_PORT, 1
    make_plan()
    sweep()
    assert (
        kept(Channel.objects.get(person=person).last_failure)
        == "The mail server could not be reached (ConnectionRefusedError)."
    )
    settings.EMAIL_PORT = port
    let_pass(60)
    assert send_due() == 1
    channel = Channel.objects.get(person=person)
    assert (channel.failing_since, channel.last_failure) == (None, "")
    assert channel.last_sent_at is not None


def test_a_retry_carries_the_same_message_id(mail_server, make_reader, monkeypatch):
    make_reader()
    make_plan()

    def die(*args, **kwargs):
        raise SystemExit

    monkeypatch.setattr(sending, "_note", die)
    with pytest.raises(SystemExit):
        sweep()  # the mail is out, and nobody wrote it down
    monkeypatch.undo()
    assert send_due() == 0  # the lease holds
    let_pass(sending.LEASE.total_seconds())
    assert send_due() == 1
    first, second = mail_server.mails
    assert first["Message-ID"] == second["Message-ID"]
    assert Message.objects.get().try_count == 2
    assert Notice.objects.count() == 1


def test_a_channel_that_is_off_or_whose_person_left_sends_nothing(mail_server, make_reader):
    person, gone = make_reader(), make_reader()
    make_plan()
    find_news()
    Channel.objects.filter(person=person).update(is_on=False)
    gone.is_active = False
    gone.save()
    assert send_due() == 0
    assert mail_server.mails == []


def test_who_lost_the_right_is_told_nothing_any_more(mail_server, make_reader):
    person = make_reader("reviewer", "auditor")
    make_plan()
    find_news()
    person.is_reviewer = False
    person.save()
    assert send_due() == 0
    assert Delivery.objects.get().dropped_at is not None


def test_more_than_fifty_notices_are_several_messages(mail_server, make_reader):
    person, plan = make_reader(), make_plan()
    for _ in range(52):
        make_plan(target=plan.target)
    sweep()
    calm(person)
    sweep()
    assert sorted(body_of(mail).count("/plans/") for mail in mail_server.mails) == [3, 50]
    assert Plan.objects.count() == 53


def test_a_test_says_it_is_one_and_comes_at_most_every_ten_seconds(mail_server, make_reader):
    person = make_reader(email="mara@x.example")
    channel = Channel.objects.get(person=person)
    send_test(channel)
    assert mail_server.mails[0]["Subject"] == "Plandesk: this is a test"
    with pytest.raises(NotDelivered, match="a moment ago"):
        send_test(channel)
    assert len(mail_server.mails) == 1
    assert Event.objects.filter(kind="person.changed").count() == 0


def test_a_message_that_kills_every_worker_is_given_up_and_seen(mail_server, make_reader, monkeypatch):
    person = make_reader()

    def die(*_, **__):
        raise SystemExit

    make_plan(lifetime=timedelta(hours=23))
    find_news()
    with monkeypatch.context() as patched:
        patched.setattr(sending, "_carry", die)
        for _ in range(len(sending.PAUSES) + 1):
            with pytest.raises(SystemExit):
                send_due()
            let_pass(sending.LEASE.total_seconds())
        assert send_due() == 0
    assert Message.objects.get().gave_up_at is not None
    assert Channel.objects.get(person=person).failing_since is not None
    assert mail_server.mails == []
