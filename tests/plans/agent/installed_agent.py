"""A whole flow of an agent that was installed as anybody installs it: run with that installation's own Python."""

import asyncio
import importlib.util
import os
import pathlib
import sys

import plans.agent
from plans.agent import Abandoned, Committed, Desk, FileStore, Outcome, Stale

for server in ("django", "celery", "psycopg", "cryptography", "redis", "mcp"):
    assert importlib.util.find_spec(server) is None, server
assert pathlib.Path(plans.agent.__file__).with_name("py.typed").exists()

desk = Desk(os.environ["DESK"], os.environ["DESK_API_KEY"], agent="refund-bot", store=FileStore(sys.argv[1]))
with desk.task("t1") as task:
    plan = task.dry_run("address.update", {"customer_id": "77", "address": "2 Harbour Street"})
    first, second = task.commit(plan), task.commit(plan)
    assert isinstance(first, Committed) and not first.replayed, first
    assert second == Committed(plan.plan_id, first.result, replayed=True), second
    stale = task.dry_run("address.update", {"customer_id": "77", "address": "3 Mill Lane"})
    task.write("billing", ["customer/77"])
    assert isinstance(task.commit(stale), Stale)
    task.replan(stale)
assert [state for _, state in task.ended] == ["abandoned"], task.ended


async def main() -> Outcome:
    async with desk.async_task("t2") as task:
        plan = await task.dry_run("refund", {"invoice_id": "4412", "amount_cents": 1}, intent="refund:t2")
        await task.wait(plan, timeout=0)
        return await task.abandon(plan)


assert isinstance(asyncio.run(main()), Abandoned)
sys.stdout.write("the whole flow\n")
