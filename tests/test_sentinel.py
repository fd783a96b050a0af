"""A plan token goes through every flow, and is found nowhere: log, page, answer, dump, message, callback."""

import base64
import json
import logging
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import psycopg
import pytest
import redis
from django.conf import settings

from plans import abandonment, callbacks, reconcile
from plans.errors import DecisionRefused
from plans.models import Plan
from plans.review import approve_plan
from plans.schema import shown_digest
from plans.states import AbandonReason
from reviewer.celery import app
from reviewer.people import create_token
from tests.makers import feed_data, make_agent, make_person, make_target, receive, reread
from tests.reviewer.pages import client_of, url_of
from tests.stub_behaviour import Answer, Commit, DropAfterApplying, conflict, problem

TOKEN = 'pt-SENTINEL-7c1d/"\\+='  # with what JSON, URLs and HTML spell otherwise
SPELLINGS = [
    TOKEN,
    "SENTINEL-7c1d",
    base64.b64encode(TOKEN.encode()).decode(),
    TOKEN.encode().hex(),
]


class Receiver:
    """An agent's callback address: keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver.got.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.stop()


def look_for(where: str, text: str) -> None:
    for spelling in SPELLINGS:
        assert spelling not in text, f"the token is in {where}"


def dump(owner) -> str:
    """Every row of every table as PostgreSQL prints it; bytes both as hex and as the text they may spell."""
    rows: list[str] = []
    tables = owner.execute(
        "SELECT c.oid::regclass::text FROM pg_class c WHERE c.relkind IN ('r', 'p') "
        "AND c.relnamespace = 'public'::regnamespace"
    ).fetchall()
    for (table,) in tables:
        for (row,) in owner.execute(psycopg.sql.SQL("SELECT t::text FROM {} t").format(psycopg.sql.SQL(table))):
            rows.append(row)
    return "\n".join(rows)


def decided(plan: Plan, reviewer) -> None:
    """Approve; what is refused is a flow too."""
    try:
        approve_plan(plan_pk=plan.pk, person=reviewer, seen_digest=shown_digest(reread(plan)))
    except DecisionRefused:
        return


def test_a138_l127_a_token_is_found_nowhere(
    database, owner_connection, stub_target, receiver, celery_worker, caplog, capfd, monkeypatch
):
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(settings, "CALLBACK_ALLOW_PRIVATE", True)
    monkeypatch.setattr(settings, "STATE_TRUSTED_AFTER", settings.STATE_TRUSTED_AFTER / 1000)
    reviewer, auditor = make_person("reviewer"), make_person("auditor")
    echo = {"you": {"sent": [TOKEN]}, TOKEN: "as a name"}
    flows = {
        "applied, echoed": Commit(result=echo),
        "conflict, echoed": conflict({"target": TOKEN, "field": TOKEN, "planned": TOKEN, "current": [TOKEN]}),
        "refused, echoed": problem(422, f"no: {TOKEN}"),
        "an error page, echoed": Answer(500, f"<h1>{TOKEN}</h1>".encode(), {"Content-Type": "text/html"}),
        "not JSON, echoed": Answer(200, TOKEN.encode()),
        "applied, then silence": DropAfterApplying(),
    }
    plans: list[Plan] = []
    for place, behaviour in enumerate(flows.values()):
        target = make_target(f"stub-{place}", base_url=stub_target.base_url, bearer="credential-SENTINEL-7c1d")
        made = make_agent(target, callback_url=receiver.url)
        plans.append(receive(made.agent, feed_data(target.name, plan={"plan_token": TOKEN})))
        stub_target.script(behaviour)
        decided(plans[-1], reviewer)
    ended = make_target("ends", base_url=stub_target.base_url)
    made = make_agent(ended, callback_url=receiver.url)
    given_up = receive(made.agent, feed_data(ended.name, plan={"plan_token": TOKEN}))
    abandonment.abandon_plan(
        agent=made.agent, target_name=ended.name, plan_id=given_up.plan_id, reason=AbandonReason.TASK_ENDED
    )
    Plan.objects.filter(state="unknown").update(next_check_at=Plan.objects.first().received_at)
    reconcile.find_out_unknown()
    callbacks.deliver_due()
    for name in ("plans.sweep_expiry", "plans.find_out_unknown", "plans.deliver_callbacks", "plans.sweep_abandonments"):
        app.send_task(name)
    time.sleep(2)  # the worker's own log lines

    pages, reading = client_of(reviewer), client_of(auditor)
    for plan in [*plans, given_up]:
        shown = pages.get(url_of(plan))
        look_for("a plan's page", shown.content.decode())
        assert shown.headers["Referrer-Policy"] == "same-origin"
    for path in ("/", "/history/", "/audit/"):
        look_for(path, (reading if path == "/audit/" else pages).get(path).content.decode())
    _, bearer = create_token(email=auditor.email)
    authorization = {"Authorization": f"Bearer {bearer}"}
    events = reading.get("/api/v1/audit/events?limit=500", headers=authorization).content.decode()
    assert json.loads(events)["events"], "there is something to look at"
    look_for("the log", events)
    assert len(receiver.got) >= 5
    look_for("a callback", b"".join(receiver.got).decode())
    look_for("the database", dump(owner_connection))
    broker = redis.Redis.from_url(settings.CELERY_BROKER_URL.replace("redis+socket://", "unix://").split("?")[0])
    look_for("Redis", "".join(repr(broker.dump(key)) for key in broker.scan_iter()))
    printed = capfd.readouterr()
    look_for("what was printed", printed.out + printed.err)
    look_for("the logs of this process", caplog.text + "".join(repr(record.__dict__) for record in caplog.records))
    assert {plan.state for plan in map(reread, plans)} >= {"committed", "conflicted", "refused"}
