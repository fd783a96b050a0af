"""The inbox and a plan's page against their raw queries, and a late page of the inbox against the first."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.benchmarks.measuring import ROUNDS, Series, cpu_of, knock, request, tell
from tests.benchmarks.world import Production, session_of
from tests.fixtures import start_site, stop_process
from tests.ground import free_port

PLANS = int(os.environ.get("BENCH_PLANS", "10000"))
PENDING = min(10_000, PLANS // 4)
AGENTS = 20
REQUESTS, QUERIES = 60, 300  # of a round

_FILL = """
INSERT INTO plans_plan (agent_id, target_id, task_id, policy_id, plan_id, operation, target_address, address_id, inputs,
    actions, action_targets, evidence, summary, input_fingerprint, inputs_hash, data_hash, has_confirmed_actions,
    has_been_known_to_target, approvals_required, token_hash, token_sealed, idempotency_key, created_at, received_at,
    expires_at, state, state_changed_at, check_count, mark_count, event_count)
SELECT (%(agents)s::bigint[])[1 + g %% %(count)s], %(target)s, %(task)s, %(policy)s, 'plan_' || g, 'limit.update', '',
    %(address)s, json_build_object('account', 'ACC-' || g, 'limit', 250, 'note', repeat(md5(g::text), 20))::text,
    json_build_array(json_build_object('op', 'update', 'target', 'ledger/ACC-' || g, 'field', 'limit', 'from', 100,
        'to', 250))::text,
    ARRAY['ledger/ACC-' || g], '', 'Raise the limit of account ' || g, 'sha256:' || md5(g::text),
    sha256(g::text::bytea), sha256(g::text::bytea), true, true, 1, sha256(('token' || g)::bytea),
    CASE WHEN g <= %(pending)s THEN '\\x00'::bytea END, 'pdk_' || g, now() - g * interval '1 second',
    now() - g * interval '1 second', now() + interval '6 hours' + (%(pending)s - g) * interval '10 ms',
    CASE WHEN g <= %(pending)s THEN 'pending' ELSE 'committed' END, now() - g * interval '1 second', 0, 0, 0
FROM generate_series(1, %(plans)s) AS g
"""


def run(ground: Production) -> None:
    """Print the CPU of web and PostgreSQL together, as ratios."""
    from tests.makers import make_person

    person = make_person("reviewer")
    names = fill(ground)
    headers, _ = session_of(person)
    site = start_site(free_port())
    port, web = int(site.url.rpartition(":")[2]), site.process.pid
    first = [request("GET", "/", port, headers)] * REQUESTS
    late = [request("GET", f"/?after={_late_key()}", port, headers)] * REQUESTS
    taken = {name: Series() for name in ("first", "late", "inbox query", "plan", "plan query")}
    try:
        for number in range(ROUNDS + 1):
            opened = [
                request("GET", f"/plans/{agent}/{target}/{plan_id}/", port, headers)
                for agent, target, plan_id in names[number * REQUESTS : (number + 1) * REQUESTS]
            ]
            spent = {
                "first": cpu_of_pages(ground, web, port, first),
                "inbox query": _cpu_of_queries(ground, *_inbox_query(person)),
                "late": cpu_of_pages(ground, web, port, late),
                "plan": cpu_of_pages(ground, web, port, opened),
                "plan query": _cpu_of_queries(ground, *_plan_query()),
            }
            if number > 0:
                for name, seconds in spent.items():
                    taken[name].add(seconds)
    finally:
        stop_process(site.process)
    _tell(taken)


def _tell(taken: dict[str, Series]) -> None:
    size = f"{PENDING:,} pending of {PLANS:,}"
    for what, mine, base, goal in (
        (f"inbox, {size}: CPU against its query", "first", "inbox query", "at most 20"),
        (f"inbox, page {PENDING // 50 - 1} against page 1: CPU", "late", "first", "at most 1.2"),
        ("plan's page: CPU against the plan's query", "plan", "plan query", "none"),
    ):
        told = (f"{taken[name].middle * 1000:.2f} ms" for name in (mine, base))
        tell(what, taken[mine].against(taken[base]), *told, goal)


def fill(ground: Production, plans: int = PLANS, pending: int = PENDING) -> list[tuple[str, str, str]]:
    """So many plans, past every door; the public names of pending ones."""
    from plans import clock
    from plans.models import Plan, Policy, Task
    from tests.makers import make_agent, make_person, make_target

    target, owner = make_target(name="bench-ledger"), make_person("admin")
    agents = [make_agent(target, owner=owner).agent for _ in range(AGENTS)]
    task = Task.objects.create(agent=agents[0], task_id="bench", created_at=clock.now())
    values = {
        "agents": [agent.pk for agent in agents], "count": AGENTS, "target": target.pk, "task": task.pk,
        "policy": Policy.objects.get(target=target).pk, "address": target.addresses.get().pk, "pending": pending,
        "plans": plans,
    }  # fmt: skip
    with ground.connect_as_owner() as connection:
        connection.execute("SET session_replication_role = replica")
        connection.execute(_FILL, values)
        connection.execute("VACUUM ANALYZE")
    rows = Plan.objects.pending().order_by("pk").values_list("agent__name", "target__name", "plan_id")
    return list(rows[: REQUESTS * (ROUNDS + 1)])


def _late_key() -> str:
    """Where the last whole page but one begins."""
    from plans.models import Plan
    from reviewer.views.inbox import write_key

    place = max(0, PENDING - 102)
    rows = Plan.objects.pending().order_by("expires_at", "id").values_list("expires_at", "id")
    return write_key(rows[place : place + 1].get())


def cpu_of_pages(ground: Production, web: int, port: int, requests: Sequence[bytes]) -> float:
    """Seconds of CPU of web and PostgreSQL for each of these requests."""
    before = cpu_of(web) + ground.postgres_cpu
    knock(port, [requests], 200)
    return (cpu_of(web) + ground.postgres_cpu - before) / len(requests)


def _cpu_of_queries(ground: Production, execute: Callable[[Any], Any], connection: Any) -> float:
    before = time.process_time() + ground.postgres_cpu
    for _ in range(QUERIES):
        execute(connection)
    spent = time.process_time() + ground.postgres_cpu - before
    connection.close()
    return spent / QUERIES


def _inbox_query(person: Any) -> tuple[Callable[[Any], Any], Any]:
    """The one statement of a page's 50 rows, on a bare connection."""
    from plans import clock, queries

    values = {"person": person.pk, "at": clock.now(), "pk": 0, "limit": queries.PAGE + 1}
    return lambda connection: connection.execute(queries._PENDING, values, prepare=True).fetchall(), _connect()


def _plan_query() -> tuple[Callable[[Any], Any], Any]:
    """The one statement that reads a plan with its kin, on a bare connection."""
    from plans import queries
    from plans.models import Plan

    found = Plan.objects.select_related(*queries._RELATED, *queries._ENDS).filter(pk=Plan.objects.pending()[0].pk)
    text, values = found.query.sql_with_params()
    return lambda connection: connection.execute(text, values, prepare=True).fetchall(), _connect()


def _connect() -> Any:
    import psycopg

    return psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
