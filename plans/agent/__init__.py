"""The agents' SDK: plan first, write once, and never write what nobody planned. Imports without Django.

A task owns the plans made in it. A plan is committed once, with the key it was made with, or its outcome says why not:

    >>> from plans.agent import Committed, Conflict, Desk, Expired, FileStore, Stale, Waiting
    >>> desk = Desk(base_url, api_key, agent="refund-bot", store=FileStore(folder))
    >>> with desk.task("ticket-9913") as task:
    ...     found = task.read("shipping.lookup", "delivery exception", url="https://carrier.example/track/77")
    ...     plan = task.dry_run("address.update", {"customer_id": "77", "address": "2 Harbour Street"})
    ...     match task.commit(plan):
    ...         case Committed(result=result):
    ...             print("done:", result)
    ...         case Waiting(review_url=url):
    ...             print("a person decides at", url)
    ...         case Conflict(changed=changed):
    ...             print("plan again, this moved:", changed)
    ...         case Expired() | Stale():
    ...             print("plan again")
    ...         case other:
    ...             print("stop, and say so:", other)
    done: {'customer_id': '77'}

Where people approve, the desk commits when they do; the agent waits. What is left when the task ends is abandoned, and
the desk is told:

    >>> with desk.task("ticket-9914") as task:
    ...     inputs = {"invoice_id": "4412", "amount_cents": 48000}
    ...     plan = task.dry_run("refund", inputs, intent="refund:ticket-9914", summary="Refund 480.00 USD")
    ...     waiting = task.commit(plan)
    ...     print(type(waiting).__name__, type(task.wait(plan, timeout=0)).__name__)
    Waiting Waiting
    >>> task.ended == [(plan.plan_id, "abandoned")]
    True

A process that is killed while it waits ends nothing: run with the same task id and the same store, the same calls give
the same plan and the same key.

`Desk.async_task` is the same for asyncio. `Task.replan` plans again in place of a plan, and says what differs. The
guide, with an example of each, is docs/agents.md.
"""

from plans.agent.awaiting import AsyncTask
from plans.agent.comparing import Difference, Replanned
from plans.agent.desk import Desk
from plans.agent.errors import (
    AgentError,
    DeskError,
    DeskUnavailable,
    ForeignPlan,
    NotADryRun,
    NotJson,
    PlanInFlight,
    PlanRefused,
    StoreError,
    TaskEnded,
    UntoldWarning,
)
from plans.agent.json_text import JsonValue
from plans.agent.line import Pace
from plans.agent.outcomes import (
    Abandoned,
    Change,
    Committed,
    Conflict,
    Expired,
    Outcome,
    Refused,
    Rejected,
    Stale,
    Unavailable,
    Unknown,
    Waiting,
)
from plans.agent.plan import Plan
from plans.agent.store import FileStore, MemoryStore, Records, Store
from plans.agent.task import EndedPlan, Evidence, Known, Task

__all__ = [
    "Abandoned",
    "AgentError",
    "AsyncTask",
    "Change",
    "Committed",
    "Conflict",
    "Desk",
    "DeskError",
    "DeskUnavailable",
    "Difference",
    "EndedPlan",
    "Evidence",
    "Expired",
    "FileStore",
    "ForeignPlan",
    "JsonValue",
    "Known",
    "MemoryStore",
    "NotADryRun",
    "NotJson",
    "Outcome",
    "Pace",
    "Plan",
    "PlanInFlight",
    "PlanRefused",
    "Records",
    "Refused",
    "Rejected",
    "Replanned",
    "Stale",
    "Store",
    "StoreError",
    "Task",
    "TaskEnded",
    "Unavailable",
    "Unknown",
    "UntoldWarning",
    "Waiting",
]
