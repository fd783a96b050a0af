"""What the SDK raises: bugs, refusals of a dry run, and a desk that cannot be reached before there is a plan."""

from typing import Literal, TypeAlias

PlanWrite: TypeAlias = Literal["none", "done", "possible"]


class AgentError(Exception):
    """Everything the SDK raises on purpose. No message or attribute of these holds a key, a token or a secret."""


class NotJson(AgentError, ValueError):
    """What was to be sent is not strict JSON (NaN, a key that is no text, half a surrogate...). Nothing was sent."""


class NotADryRun(AgentError):
    """An answer without what makes a plan: the target may have written at once. Nothing was sent to the desk."""


class ForeignPlan(AgentError):
    """The plan belongs to another task, agent or desk, or to no store here. Nothing was sent."""


class TaskEnded(AgentError):
    """The task has ended, and ends once: a new piece of work needs a new task id. Nothing was sent."""


class PlanInFlight(AgentError):
    """A plan of the same business operation may be written at this moment. Nothing new is planned until it is known.

    `plan_id` names it: commit it again or wait on it (both keep its key).
    """

    def __init__(self, plan_id: str) -> None:
        super().__init__(f"What became of plan {plan_id} is not known yet; find out before planning this again.")
        self.plan_id = plan_id


class StoreError(AgentError):
    """The store's folder or file is not safe to use, or cannot be used."""


class DeskError(AgentError):
    """The desk answered what this SDK has no outcome for: a bug, or a no, to surface; never to be retried blindly.

    `slug` and `status` are the answer's (`slug` is empty where it was no problem document), `next` is the desk's
    advice, `plan_write` says what the answer proves: "none" only where the desk or the protocol said so.
    """

    def __init__(
        self,
        detail: str,
        *,
        slug: str = "",
        status: int = 0,
        advice: str | None = None,
        plan_write: PlanWrite = "possible",
        plan_id: str | None = None,
    ) -> None:
        super().__init__(f"{detail} ({slug or 'no slug'}, {status})")
        self.detail = detail
        self.slug = slug
        self.status = status
        self.next = advice
        self.plan_write = plan_write
        self.plan_id = plan_id


class PlanRefused(DeskError):
    """There is no plan: the desk said no to a dry run or a feed (`cannot-plan`, `intent-taken`, `fenced`...)."""


class DeskUnavailable(DeskError):
    """There is no plan yet: the desk was not reached, or too busy, for as long as `Pace.patience` allows.

    Making the same call again is safe: it finishes the same feed, or replaces the plan nobody received.
    """


class UntoldWarning(UserWarning):
    """The desk could not be told (a task's end, a write, an abandonment). Kept in the store, and told when possible."""
