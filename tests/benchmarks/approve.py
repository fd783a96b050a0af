"""An approval that commits at a target which answers after 1 ms: the engine, the page, eight reviewers at once."""

import http.client
import json
import secrets
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from tests.benchmarks.measuring import ROUNDS, Series, cpu_of, knock, percentile, request, share, tell
from tests.benchmarks.quick_target import actions_of
from tests.benchmarks.world import Production, program, session_of
from tests.fixtures import start_site, stop_process
from tests.ground import free_port

REVIEWERS = 8
ALONE, ENGINE, TOGETHER = 40, 40, 96  # approvals of a round
OF_ONE_AGENT = 150  # it may have 200 pending


@dataclass
class Taken:
    """What was measured, a value a round, and the seconds of every single approval."""

    bare: Series = field(default_factory=Series)
    engine: Series = field(default_factory=Series)
    alone: Series = field(default_factory=Series)
    together: Series = field(default_factory=Series)
    engine_tail: Series = field(default_factory=Series)
    alone_tail: Series = field(default_factory=Series)
    engine_cpu: Series = field(default_factory=Series)
    page_cpu: Series = field(default_factory=Series)


def run(ground: Production) -> None:
    """Print the latency and the CPU of an approval as ratios."""
    from tests.makers import make_person

    people = [make_person("reviewer") for _ in range(REVIEWERS)]
    sessions = [session_of(person) for person in people]
    site = start_site(free_port())
    port = int(site.url.rpartition(":")[2])
    taken = Taken()
    try:
        with program("quick_target") as (_, target_port):
            plans = _plans(ground, target_port)
            for number in range(ROUNDS + 1):
                one_round = _round(port, site.process.pid, target_port, plans, people, sessions)
                if number > 0:
                    for name, value in one_round.items():
                        getattr(taken, name).add(value)
    finally:
        stop_process(site.process)
    _tell(taken)


def _round(
    port: int, web: int, target_port: int, plans: list[Any], people: list[Any], sessions: list[Any]
) -> dict[str, float]:
    bare = [_bare_calls(target_port) for _ in range(ALONE)]
    engine, engine_cpu = _engine([plans.pop() for _ in range(ENGINE)], people[0])
    before = cpu_of(web)
    alone = knock(port, [[_press(port, plans.pop(), sessions[0]) for _ in range(ALONE)]], 200)
    page_cpu = (cpu_of(web) - before) / ALONE
    lines = [
        [_press(port, plans.pop(), sessions[place]) for _ in numbers]
        for place, numbers in enumerate(share(TOGETHER, REVIEWERS))
    ]
    together = knock(port, lines, 200)
    return {
        "bare": percentile(bare, 0.5),
        "engine": percentile(engine, 0.5),
        "engine_tail": percentile(engine, 0.99),
        "alone": percentile(alone, 0.5),
        "alone_tail": percentile(alone, 0.99),
        "together": percentile(together, 0.5),
        "engine_cpu": engine_cpu,
        "page_cpu": page_cpu,
    }


def _tell(taken: Taken) -> None:
    def ms(series: Series) -> str:
        return f"{series.middle * 1000:.1f} ms"

    for what, mine, base, goal in (
        ("approve: p50 against its bare calls", taken.engine, taken.bare, "at most 2.5"),
        ("approve: p99 against its p50", taken.engine_tail, taken.engine, "at most 5"),
        ("approve, page: p50 against the bare calls", taken.alone, taken.bare, "none of its own"),
        ("approve, page: p99 against its p50", taken.alone_tail, taken.alone, "at most 5"),
        (f"approve, page: p50 of {REVIEWERS} reviewers against one", taken.together, taken.alone, "at most 3"),
        ("approve: CPU with page against the engine's", taken.page_cpu, taken.engine_cpu, "at most 2"),
    ):
        tell(what, mine.against(base), ms(mine), ms(base), goal)


def _plans(ground: Production, target_port: int) -> list[Any]:
    """Fed plans as the sweep leaves them: their target has been asked, and has confirmed them."""
    from tests.makers import feed_data, make_agent, make_target, receive, reread

    target = make_target(name="bench-target", base_url=f"http://127.0.0.1:{target_port}")
    count = (ROUNDS + 1) * (ALONE + ENGINE + TOGETHER)
    plans: list[Any] = []
    made = make_agent(target)
    for number in range(count):
        if number % OF_ONE_AGENT == 0:
            made = make_agent(target)
        plan_id = f"plan_{secrets.token_hex(8)}"
        plan = {"plan_id": plan_id, "plan_token": f"pt_{plan_id}", "actions": actions_of(plan_id)}
        plans.append(receive(made.agent, feed_data(target.name, plan=plan)))
    with ground.connect_as_owner() as connection:
        connection.execute("UPDATE plans_plan SET has_confirmed_actions = true, has_been_known_to_target = true")
        connection.execute("VACUUM ANALYZE")
    return [reread(plan) for plan in plans]


def _press(port: int, plan: Any, session: tuple[dict[str, str], str]) -> bytes:
    from plans.schema import shown_digest

    headers, token = session
    form = urlencode({"csrfmiddlewaretoken": token, "digest": shown_digest(plan), "fact": "", "reason": ""}).encode()
    path = f"/plans/{plan.agent.name}/{plan.target.name}/{plan.plan_id}/approve/"
    return request("POST", path, port, {**headers, "Content-Type": "application/x-www-form-urlencoded"}, form)


def _engine(plans: list[Any], person: Any) -> tuple[list[float], float]:
    """Seconds of each approval by the use case alone, and this process's CPU of one."""
    from plans.review import approve_plan
    from plans.schema import shown_digest

    digests = [shown_digest(plan) for plan in plans]
    took = []
    cpu = time.process_time()
    for plan, digest in zip(plans, digests, strict=True):
        began = time.perf_counter()
        assert approve_plan(plan_pk=plan.pk, person=person, seen_digest=digest).state == "committed"
        took.append(time.perf_counter() - began)
    return took, (time.process_time() - cpu) / len(plans)


def _bare_calls(port: int) -> float:
    """Seconds of the two calls of an approval, state and commit, each on a connection of its own."""
    began = time.perf_counter()
    body = json.dumps({"plan_token": "pt_" + "0" * 21, "input_fingerprint": f"sha256:{0:064x}"})
    headers = {"Content-Type": "application/json", "Idempotency-Key": "pdk_" + "0" * 32}
    for method, path, sent in (("GET", "/plans/plan_0", None), ("POST", "/limit.update/commit", body)):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request(method, path, body=sent, headers=headers)
        assert connection.getresponse().read()
        connection.close()
    return time.perf_counter() - began
