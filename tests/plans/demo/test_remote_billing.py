"""The billing system's own server, over real HTTP: dry run, commit, replay, conflict, expiry, at most once."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
import urllib3
from django.db.models import F

from plans.demo.models import Invoice, Refund, RemoteApplication, RemotePlan, Shipment
from plans.demo.remote_http import Bearers, BillingServer
from tests.plans.demo.makers import make_invoice

BEARERS = Bearers(desk="desk-bearer", agents="agent-bearer")


@dataclass
class Billing:
    """A caller of the running server."""

    url: str
    http: urllib3.PoolManager

    def ask(
        self, method: str, path: str, body: Any = None, *, bearer: str = "agent-bearer", **headers: str
    ) -> urllib3.BaseHTTPResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {"Authorization": f"Bearer {bearer}"} | named
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        return self.http.request(method, self.url + path, body=raw, headers=sent, redirect=False)

    def dry_run(self, amount: int = 48_000, invoice: str = "4412") -> dict[str, Any]:
        answer = self.ask("POST", "/refund/dry-run", {"inputs": {"invoice_id": invoice, "amount_cents": amount}})
        assert answer.status == 201, answer.data
        plan: dict[str, Any] = answer.json()
        return plan

    def commit(self, plan: dict[str, Any], key: str = "k1", **changes: Any) -> urllib3.BaseHTTPResponse:
        body = {"plan_token": plan["plan_token"], "input_fingerprint": plan["input_fingerprint"]} | changes
        return self.ask("POST", "/refund/commit", body, bearer="desk-bearer", Idempotency_Key=key)

    def state(self, plan: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self.ask("GET", f"/plans/{plan['plan_id']}", bearer="desk-bearer").json()
        return answer


@pytest.fixture
def billing(database: None) -> Iterator[Billing]:
    make_invoice()
    with BillingServer("127.0.0.1", 0, BEARERS) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        http = urllib3.PoolManager(maxsize=20, retries=False, timeout=20)
        yield Billing(server.base_url, http)
        http.clear()
        server.shutdown()
        thread.join(5)


def slug(answer: urllib3.BaseHTTPResponse) -> str:
    assert answer.headers["Content-Type"] == "application/problem+json"
    return str(answer.json()["type"].rpartition("/")[2])


def test_a_dry_run_promises_exact_writes_and_writes_nothing(billing: Billing) -> None:
    plan = billing.dry_run()
    assert [action["target"] for action in plan["actions"]] == ["invoice/4412", "invoice/4412", "refund/4412-48000"]
    told = billing.state(plan)
    assert told == {name: value for name, value in plan.items() if name != "plan_token"} | {"state": "pending"}
    assert not Refund.objects.exists()
    assert Invoice.objects.get().refunded_cents == 0
    assert plan["plan_token"] not in str(RemotePlan.objects.values().get())


def test_a_commit_writes_once_and_its_answer_is_given_again(billing: Billing) -> None:
    plan = billing.dry_run()
    first, second, other_key = billing.commit(plan), billing.commit(plan), billing.commit(plan, key='"k2"')
    assert (first.status, first.json()["refund_id"]) == (200, "4412-48000")
    assert first.data == second.data == other_key.data
    replayed = [answer.headers.get("Idempotent-Replayed") for answer in (first, second, other_key)]
    assert replayed == [None, "true", "true"]
    assert billing.state(plan)["state"] == "committed"
    assert billing.state(plan)["result"] == first.json()
    assert Refund.objects.values_list("amount_cents", "made_by").get() == (48_000, "billing-remote")
    assert RemoteApplication.objects.count() == 1


def test_a_moved_invoice_conflicts_and_says_what_changed(billing: Billing) -> None:
    plan = billing.dry_run()
    Invoice.objects.update(refunded_cents=20_000)
    answer = billing.commit(plan)
    assert (answer.status, slug(answer)) == (409, "conflict")
    assert answer.json()["changed"] == [
        {"target": "invoice/4412", "field": "refunded_cents", "planned": 0, "current": 20_000}
    ]
    Invoice.objects.update(refunded_cents=0)  # an end is an end, though the world moved back
    assert billing.commit(plan).data == answer.data
    assert billing.state(plan)["state"] == "conflicted"
    assert not Refund.objects.exists()


def test_an_expired_plan_is_gone_even_before_anybody_swept(billing: Billing) -> None:
    plan = billing.dry_run()
    RemotePlan.objects.update(
        created_at=F("created_at") - timedelta(minutes=11), expires_at=F("expires_at") - timedelta(minutes=11)
    )
    assert billing.state(plan)["state"] == "expired"
    answer = billing.commit(plan)
    assert (answer.status, slug(answer)) == (410, "expired")
    assert not Refund.objects.exists()


def test_a_commit_that_does_not_fit_its_plan_is_refused_and_binds_nothing(billing: Billing) -> None:
    plan, other = billing.dry_run(20_000), billing.dry_run(10_000)
    refused = [
        billing.commit(plan, input_fingerprint="sha256:0"),
        billing.commit(plan, plan_token="pt_unknown"),
        billing.commit(plan, inputs={}),
        billing.commit(plan, key="no spaces"),
        billing.ask("POST", "/refund/commit", b"{}", bearer="desk-bearer"),
        billing.ask("POST", "/refund/commit", b"{", bearer="desk-bearer", Idempotency_Key="k1"),
        billing.ask("POST", "/paint/commit", b"{}", bearer="desk-bearer", Idempotency_Key="k1"),
    ]
    assert [answer.status for answer in refused] == [412, 404, 422, 400, 400, 400, 422]
    assert billing.commit(plan).status == 200
    reused = [billing.commit(other), billing.commit(plan, input_fingerprint="sha256:0")]
    assert [(answer.status, slug(answer)) for answer in reused] == [(422, "key-reused")] * 2
    assert billing.state(other)["state"] == "pending"
    assert Refund.objects.get().amount_cents == 20_000


@pytest.mark.parametrize(
    ("inputs", "status"),
    [
        ({"invoice_id": "4412", "amount_cents": 48_001}, 422),
        ({"invoice_id": "none", "amount_cents": 1}, 422),
        ({"invoice_id": "4412", "amount_cents": 1.0}, 422),
        ({"invoice_id": "4412"}, 422),
    ],
)
def test_a_dry_run_says_no_to_what_cannot_be(billing: Billing, inputs: dict[str, Any], status: int) -> None:
    answer = billing.ask("POST", "/refund/dry-run", {"inputs": inputs})
    assert answer.status == status
    assert not RemotePlan.objects.exists()


def test_only_the_desk_commits_and_only_agents_plan(billing: Billing) -> None:
    plan = billing.dry_run()
    body = {"plan_token": plan["plan_token"], "input_fingerprint": plan["input_fingerprint"]}
    asked = [
        billing.ask("POST", "/refund/commit", body, bearer="agent-bearer", Idempotency_Key="k"),
        billing.ask("POST", "/refund/dry-run", {"inputs": {}}, bearer="desk-bearer"),
        billing.ask("POST", "/refund/commit", body, bearer="", Idempotency_Key="k"),
        billing.ask("GET", f"/plans/{plan['plan_id']}", bearer="somebody"),
        billing.ask("DELETE", "/refund"),
        billing.ask("GET", "/elsewhere"),
        billing.ask("GET", "/plans/rplan_unknown"),
    ]
    assert [answer.status for answer in asked] == [403, 403, 401, 401, 501, 404, 404]
    assert {slug(answer) for answer in asked}
    assert not Refund.objects.exists()


def test_where_the_goods_are_can_be_read(billing: Billing) -> None:
    Shipment.objects.create(
        shipment_id="sh_77", invoice_id="4412", carrier="Northway", status="exception", note="delivery exception",
        tracking_url="https://carrier.example/track/77",
    )  # fmt: skip
    answer = billing.ask("GET", "/shipments/4412").json()
    assert [(one["status"], one["note"]) for one in answer["shipments"]] == [("exception", "delivery exception")]
    assert billing.ask("GET", "/shipments/none").json()["shipments"] == []


def test_one_plan_committed_twenty_times_at_once_is_written_once(billing: Billing) -> None:
    plan, barrier = billing.dry_run(), threading.Barrier(20)

    def commit(_number: int) -> tuple[int, bytes]:
        barrier.wait(20)
        answer = billing.commit(plan)
        return answer.status, answer.data

    with ThreadPoolExecutor(20) as pool:
        answers = set(pool.map(commit, range(20)))
    assert len(answers) == 1
    assert {status for status, _ in answers} == {200}
    assert RemoteApplication.objects.count() == Refund.objects.count() == 1
    assert Invoice.objects.get().refunded_cents == 48_000


def test_of_two_plans_on_one_invoice_committed_at_once_one_conflicts(billing: Billing) -> None:
    for _round in range(5):
        Refund.objects.all().delete()
        Invoice.objects.update(refunded_cents=0, status="open")
        plans, barrier = [billing.dry_run(30_000), billing.dry_run(29_000)], threading.Barrier(2)

        def commit(plan: dict[str, Any], barrier: threading.Barrier = barrier) -> int:
            barrier.wait(20)
            return billing.commit(plan, key=plan["plan_id"]).status

        with ThreadPoolExecutor(2) as pool:
            assert sorted(pool.map(commit, plans)) == [200, 409]
        assert Refund.objects.count() == 1


def test_of_two_plans_sent_at_once_with_one_key_one_is_refused(billing: Billing) -> None:
    make_invoice("4413")
    plans, barrier = [billing.dry_run(10_000), billing.dry_run(11_000, "4413")], threading.Barrier(2)

    def commit(plan: dict[str, Any]) -> int:
        barrier.wait(20)
        return billing.commit(plan, key="one-key").status

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(commit, plans)) == [200, 422]
    assert Refund.objects.count() == RemoteApplication.objects.count() == 1
