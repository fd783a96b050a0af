"""What waits on the event loop: agents for the end of a plan, pages for hints. And that it holds no thread."""

import statistics
import threading
import time
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest
from django.contrib.sessions.models import Session

from plans.errors import DecisionRefused
from plans.models import Plan, Wait
from plans.review import reject_plan
from plans.schema import shown_digest
from tests.makers import make_agent, make_person, make_plan, make_target, reread
from tests.reviewer.open_connections import Connection, closing, cookies_of, listening, press_approve, waiting
from tests.reviewer.pages import url_of
from tests.stub_target import Commit, Hold, StubTarget

pytestmark = [pytest.mark.usefixtures("database"), pytest.mark.slow]


@pytest.fixture
def made():
    return make_agent(make_target())


def plan_of(made, **data) -> Plan:
    return make_plan(made=made, target=made.agent.targets.get(), **data)


def reject(plan: Plan) -> float:
    """End a plan; when it had ended."""
    reject_plan(
        plan_pk=plan.pk, person=make_person("reviewer"), seen_digest=shown_digest(reread(plan)), reason="Not this one"
    )
    return time.monotonic()


def until(condition, seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.02)


# --- agents that wait -----------------------------------------------------------------------------------------------


def test_a_wait_is_answered_well_within_a_second_of_the_plans_end(site, made):
    delays = []
    for _ in range(3):
        plan = plan_of(made)
        with waiting(site, made, plan) as agent:
            until(lambda: Wait.objects.count() == 1)
            time.sleep(0.3)
            assert not agent.has_answered()
            ended = reject(plan)
            delays.append(agent.read_until('"state":"rejected"') - ended)
            assert agent.json["rejection"]["reason"] == "Not this one"
        until(lambda: Wait.objects.count() == 0)
    assert min(delays) < 0.8, delays


def test_a_wait_that_saw_no_end_answers_the_state_as_it_is_then(site, made):
    plan = plan_of(made)
    started = time.monotonic()
    with waiting(site, made, plan, 1) as agent:
        assert agent.json["state"] == "pending"
        assert 1 <= time.monotonic() - started < 10
    until(lambda: Wait.objects.count() == 0)


def test_a_wait_sees_a_plan_expire_without_any_sweep(site, made):
    from datetime import timedelta

    plan = plan_of(made, lifetime=timedelta(seconds=1.5))
    with waiting(site, made, plan) as agent:
        assert agent.json["abandonment"]["reason"] == "expired"


def test_a_wait_for_an_ended_plan_answers_at_once_and_is_not_counted(site, made):
    plan = plan_of(made, state="rejected")
    with waiting(site, made, plan) as agent:
        assert agent.json["state"] == "rejected"
    assert Wait.objects.count() == 0


def test_the_twenty_first_wait_of_an_agent_is_too_many_on_all_processes_together(site, made):
    plan = plan_of(made)
    agents = [waiting(site, made, plan) for _ in range(20)]
    with closing(*agents):
        until(lambda: Wait.objects.count() == 20)
        with waiting(site, made, plan) as one_more:
            assert one_more.status == 429
            assert one_more.json["type"].endswith("/too-many")
            assert b"retry-after: " in one_more.received.lower()
        other = make_agent(made.agent.targets.get())
        with waiting(site, other, plan_of(other), 1) as somebody_else:
            assert somebody_else.status == 200
        agents[0].close()
        until(lambda: Wait.objects.count() == 19)
        with waiting(site, made, plan, 1) as one_more:
            assert one_more.status == 200
        reject(plan)
        assert all(agent.json["state"] == "rejected" for agent in agents[1:])
    until(lambda: Wait.objects.count() == 0)


def test_a_wait_whose_process_died_stops_counting_by_itself(site, made, owner_connection):
    owner_connection.execute(
        "INSERT INTO plans_wait (agent_id, ends_at) SELECT %s, clock_timestamp() FROM generate_series(1, 20)",
        [made.agent.pk],
    )
    with waiting(site, made, plan_of(made), 1) as agent:
        assert agent.status == 200


def test_a_wait_is_refused_like_any_read(site, made):
    plan = plan_of(made)
    stranger = make_agent(made.agent.targets.get())
    with waiting(site, stranger, plan) as agent:
        assert agent.status == 404
        assert agent.json["type"].endswith("/not-found")
    with waiting(site, made, plan, Authorization="Bearer pdk_wrong") as agent:
        assert agent.status == 401
        assert agent.json["type"].endswith("/unauthenticated")
    with waiting(site, made, plan, 31) as agent:
        assert agent.status == 422
    assert Wait.objects.count() == 0


def test_an_agent_that_is_disabled_while_it_waits_gets_no_answer_about_its_plan(site, made):
    from plans import clock

    plan = plan_of(made)
    with waiting(site, made, plan) as agent:
        until(lambda: Wait.objects.count() == 1)
        made.agent.disabled_at = clock.now()
        made.agent.save(update_fields=["disabled_at"])
        with pytest.raises(DecisionRefused):  # its plans are withdrawn, for whoever touches one first
            reject(plan)
        assert agent.status == 401


def test_a_plain_wsgi_server_waits_too(made):
    from tests.fixtures import start_site, stop_process
    from tests.ground import free_port

    site = start_site(free_port(), arguments=["--wsgi", "--workers", "1"])
    try:
        plan = plan_of(made)
        with waiting(site, made, plan) as agent, listening(site, cookies_of(make_person("reviewer"))) as page:
            assert page.status == 204
            until(lambda: Wait.objects.count() == 1)
            reject(plan)
            assert agent.json["state"] == "rejected"
        until(lambda: Wait.objects.count() == 0)
    finally:
        stop_process(site.process)


# --- pages that listen ----------------------------------------------------------------------------------------------


def hints_in(page: Connection) -> list[str]:
    return [line[7:] for line in page.received.decode().split("\n") if line.startswith("event: ")]


def test_a_page_is_told_that_its_plan_and_the_inbox_have_changed_and_nothing_of_what(site, made):
    plan, other = plan_of(made, summary="Raise the limit"), plan_of(made)
    path = f"plan:{plan.agent.name}/{plan.target.name}/{plan.plan_id}"
    with listening(site, cookies_of(make_person("reviewer")), plan) as page:
        assert page.status == 200
        assert b"content-type: text/event-stream" in page.received.lower()
        page.read_until(f"event: {path}\ndata: {path}\n\n")  # the first hint is for what came before the stream
        page.read_until("event: plans\ndata: plans\n\n")
        assert b"retry: 3000\n\n" in page.received
        time.sleep(3)
        page.forget()  # and the second is for what came just before the first look at it
        time.sleep(2)
        assert not page.has_answered()
        reject(other)
        page.read_until("event: plans\n")
        assert path not in hints_in(page)
        time.sleep(1.2)
        page.received = b""
        reject(plan)
        page.read_until(f"event: {path}\n")
        page.read_until("event: plans\n")
        assert b"rejected" not in page.received
        assert b"limit" not in page.received


def test_that_a_page_was_opened_is_no_news(site, made):
    plan = plan_of(made)
    browser = cookies_of(make_person("reviewer"))
    with listening(site, browser, plan) as page:
        page.read_until("event: plans\n")
        page.read_until("event: plan:")
        time.sleep(3)
        page.forget()
        assert site.request("GET", url_of(plan), headers=browser).status == 200
        time.sleep(2)
        assert not page.has_answered()


def test_hints_come_at_most_once_a_second(site, made):
    with listening(site, cookies_of(make_person("reviewer"))) as page:
        page.read_until("event: plans\n")
        started = time.monotonic()
        count = 0
        while time.monotonic() - started < 4:
            plan_of(made)
            count += 1
            time.sleep(0.05)
        page.has_answered()
        assert count > 8
        assert 1 < hints_in(page).count("plans") <= 2 + (time.monotonic() - started)


def test_hints_are_for_people_who_are_signed_in(site):
    with listening(site, {}) as page:
        assert page.status == 401


def test_a_stream_ends_within_30_seconds_of_its_session(site):
    browser = cookies_of(make_person("reviewer"))
    with listening(site, browser) as page:
        page.read_until("event: plans\n")
        Session.objects.all().delete()
        page.read_to_end(30)


def test_the_server_stops_while_somebody_waits_and_answers_them_first(made, make_site):
    site = make_site()
    plan = plan_of(made)
    with waiting(site, made, plan) as agent, listening(site, cookies_of(make_person("reviewer"))) as page:
        until(lambda: Wait.objects.count() == 1)
        page.read_until("event: plans\n")
        started = time.monotonic()
        site.process.terminate()
        assert agent.json["state"] == "pending"
        page.read_to_end()
        site.process.wait(20)
        assert time.monotonic() - started < 10
    assert Wait.objects.count() == 0


# --- what waits does not block what works ---------------------------------------------------------------------------


def test_bodies_that_trickle_in_hold_no_thread_and_are_refused_in_time(make_site, made):
    site = make_site(WEB_THREADS="2", BODY_WITHIN="4")
    parts = urlsplit(site.url)
    head = f"POST /webhooks/{made.agent.name} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
    slow = [Connection(site, "", request=f"{head}Content-Length: 1000\r\n\r\n".encode()) for _ in range(40)]
    with closing(*slow):
        started = time.monotonic()
        for _ in range(3):
            for connection in slow:
                connection.socket.sendall(b" ")
            assert site.request("GET", "/healthz").status == 200
        assert time.monotonic() - started < 4
        for connection in slow:
            assert connection.status == 400
            assert connection.json["type"].endswith("/malformed")


def test_a_slow_target_is_told_busy_before_anything_is_claimed_and_others_go_on(make_site):
    site = make_site(WEB_THREADS="4")  # two for one target
    browser = cookies_of(make_person("reviewer"))
    with StubTarget() as slow, StubTarget() as quick:
        let_go = threading.Event()
        slow.otherwise = Hold(until=let_go)
        at_slow = make_target(base_url=slow.base_url)
        plans = [plan_touching(at_slow, number) for number in range(14)]
        answers: dict[int, int] = {}

        def approve(plan: Plan) -> None:
            answers[plan.pk] = press_approve(site, browser, plan).status

        threads = [threading.Thread(target=approve, args=[plan]) for plan in plans]
        for thread in threads:
            thread.start()
        try:
            until(lambda: sum(status == 503 for status in answers.values()) >= 14 - 2 * 2)
            assert set(answers.values()) == {503}
            held = Plan.objects.filter(state="committing").count()
            assert 2 <= held <= 4
            refused = Plan.objects.filter(pk__in=answers)
            assert {plan.state for plan in refused} == {"pending"}
            assert not any(plan.approvals.exists() or plan.commits.exists() for plan in refused)
            other = make_plan(target=make_target(base_url=quick.base_url))
            assert press_approve(site, browser, other).status == 200
        finally:
            let_go.set()
            for thread in threads:
                thread.join()
        assert slow.applied == held == list(answers.values()).count(200)


def plan_touching(target, number: int) -> Plan:
    action = {"op": "update", "target": f"ledger/ACC-{number}", "field": "limit", "from": 100, "to": 250}
    return make_plan(target=target, plan={"actions": [action]})


def test_an_agents_commit_at_a_busy_target_is_503_with_the_same_key_to_retry(make_site):
    from tests.plans.http import Caller

    site = make_site(WEB_THREADS="2")  # one for a target
    with StubTarget() as slow:
        let_go = threading.Event()
        slow.otherwise = Hold(until=let_go)
        target = make_target(base_url=slow.base_url, approvals=0)
        caller = Caller(site, make_agent(target), target)
        fed = []
        for number in range(6):
            action = {"op": "update", "target": f"ledger/ACC-{number}", "field": "limit", "from": 1, "to": 2}
            data = caller.data()
            data["plan"]["actions"] = [action]
            assert caller.feed(data).status == 201
            fed.append(data["plan"])
        answers = {}

        def commit(plan: dict[str, object]) -> None:
            answers[plan["plan_id"]] = caller.commit_plan(plan, key=str(plan["plan_id"]))

        threads = [threading.Thread(target=commit, args=[plan]) for plan in fed]
        for thread in threads:
            thread.start()
        try:
            until(lambda: len(answers) >= 4)
            for plan_id, answer in answers.items():
                answer.is_problem(503, "unavailable", following="retry_same_key", plan_write="none")
                assert Plan.objects.get(plan_id=plan_id).state == "pending"
        finally:
            let_go.set()
            for thread in threads:
                thread.join()
        for plan in fed:
            assert caller.commit_plan(plan, key=str(plan["plan_id"])).status == 200
        assert slow.applied == 6


@pytest.mark.timeout(600)
def test_200_waiting_agents_50_open_pages_and_a_slow_target_do_not_slow_an_approval_down(make_site, record_property):
    site = make_site()
    browser = cookies_of(make_person("reviewer"))
    with StubTarget() as slow, StubTarget() as quick, ExitStack() as open_connections:
        let_go = threading.Event()
        slow.otherwise = Hold(until=let_go, then=Commit())
        at_slow, at_quick = make_target(base_url=slow.base_url), make_target(base_url=quick.base_url)
        timed = [plan_touching(at_quick, number) for number in range(60)]
        agents = [make_agent(at_quick) for _ in range(200)]
        waited = [make_plan(made=made, target=at_quick) for made in agents]
        held = [plan_touching(at_slow, number) for number in range(40)]
        for plan in timed[:10]:  # prepared statements, caches
            assert press_approve(site, browser, plan).status == 200
        before = [approval_time(site, browser, plan) for plan in timed[10:25]]

        for made, plan in zip(agents, waited, strict=True):
            open_connections.enter_context(waiting(site, made, plan))
        pages = [open_connections.enter_context(listening(site, browser, plan)) for plan in waited[:50]]
        for page in pages:
            page.read_until("event: plans\n")
        threads = [threading.Thread(target=press_approve, args=[site, browser, plan]) for plan in held]
        for thread in threads:
            thread.start()
        slow.wait_for_commits(16)
        until(lambda: Wait.objects.count() >= 190)
        during = [approval_time(site, browser, plan) for plan in timed[25:45]]
        assert Wait.objects.count() >= 190
        assert Plan.objects.filter(state="committing").count() >= 8
        let_go.set()
        for thread in threads:
            thread.join()
        open_connections.close()
        until(lambda: Wait.objects.count() == 0)
        after = [approval_time(site, browser, plan) for plan in timed[45:60]]
    idle, loaded = statistics.median(before + after), statistics.median(during)
    record_property("approval_ms_idle_loaded_ratio", [idle * 1000, loaded * 1000, loaded / idle])
    assert loaded <= 2 * idle, (before, during, after)


def approval_time(site, browser, plan: Plan) -> float:
    started = time.monotonic()
    response = press_approve(site, browser, plan)
    assert response.status == 200
    return time.monotonic() - started
