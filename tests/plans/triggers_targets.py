"""Triggers of targets and of the clock: answers to attempts, answers to look-ups, sweeps. Rows of docs/states.md."""

import itertools

from plans import tasks
from plans.abandonment import forget_old
from tests.plans.scenes import Scene
from tests.plans.triggers import trigger
from tests.plans.triggers_agents import commit_beside
from tests.stub_behaviour import (
    Answer,
    Behaviour,
    Commit,
    DropAfterReading,
    DropBeforeReading,
    conflict,
    in_progress,
    problem,
)
from tests.stub_target import refusing_url

# --- the answer to an attempt ---------------------------------------------------------------------------------------

HUGE = Answer(200, b'{"a":"' + b"x" * 1_100_000 + b'"}')
ANSWERS: dict[str, tuple[Behaviour | None, ...]] = {
    "200 or 201 with JSON, or 204": (Commit({"entry": "L-1"}), Answer(204), Answer(201, {"entry": "L-1"})),
    "no connection": (None,),
    "202, other 2xx, 3xx, 408, 425, 429, 5xx": (
        Answer(202, {}), Answer(206, {}), Answer(307, b"", {"Location": "/elsewhere"}), problem(408), problem(425),
        problem(429), problem(503), problem(500),
    ),
    "no answer, cut short, too large, not JSON, 409 `in-progress` or `in-flight`": (
        DropAfterReading(), DropBeforeReading(), HUGE, Answer(200, b"<h1>ok</h1>", {"Content-Type": "text/html"}),
        Answer(200, b'{"entry": "L-1"}', {"Content-Type": "application/json"}, cut_after=5), in_progress(),
        conflict(slug="in-flight"),
    ),
    "409": (conflict({"target": "ledger/ACC-104", "field": "limit", "planned": 100, "current": 175}), conflict()),
    "410": (problem(410),),
    "other 4xx": (problem(422, "The account is closed."), problem(400), problem(401), problem(404)),
}  # fmt: skip
"""The first table of CONTRACT 6. Each cell takes the next of a row's answers: other tests give every one of them."""


def _register_answer(name: str, behaviours: tuple[Behaviour | None, ...]) -> None:
    turns = itertools.cycle(behaviours)

    @trigger(name, "commit.carry_out", "commit.settle", is_late=True)
    def _(at: Scene) -> str | None:
        return at.target_answers(next(turns))

    @trigger(f"the same key again: {name}", "reconcile.find_out")
    def _(at: Scene) -> str | None:
        at.look_ups_say(problem(500))
        behaviour = next(turns)
        if behaviour is not None:
            at.stub.script(behaviour)
        else:
            at.stub.refuse_connections()
        at.make_due()
        tasks.find_out()
        return None


for _name, _behaviours in ANSWERS.items():
    _register_answer(_name, _behaviours)


# --- the answer to a look-up ----------------------------------------------------------------------------------------


def _says(state: str, **members: object) -> Behaviour:
    return Answer(200, {"plan_id": "PLAN", "state": state, **members})


LOOK_UPS: dict[str, tuple[Behaviour | None, ...]] = {
    "`committed`": (_says("committed", result={"entry": "L-1"}),),
    "`conflicted`": (_says("conflicted"),),
    "`refused` or `rejected`": (_says("refused"), _says("rejected")),
    "`expired`": (_says("expired"),),
    "`abandoned`": (_says("abandoned"),),
    "`pending`": (_says("pending"),),
    "404": (problem(404),),
    "another word": (_says("settled"), _says("committing"), _says("Committed")),
    "nothing usable (down, 5xx, no JSON, another plan's id)": (
        None, problem(500), Answer(200, b"committed", {"Content-Type": "text/plain"}),
        Answer(200, {"plan_id": "plan_other", "state": "committed"}),
    ),
}  # fmt: skip
"""The second table of CONTRACT 6, in the same way."""


def _script(at: Scene, behaviour: Behaviour | None) -> None:
    if behaviour is None:
        at.stub.refuse_connections()
    elif isinstance(behaviour, Answer):
        raw = behaviour.raw.replace(b"PLAN", at.plan.plan_id.encode())
        at.look_ups_say(Answer(behaviour.status, raw, behaviour.all_headers))


def look_up(at: Scene, behaviour: Behaviour | None) -> None:
    """Both sweeps that ask: about what was received, and about what is unknown. A retry proves nothing."""
    _script(at, behaviour)
    at.stub.script(problem(503))
    at.make_due()
    tasks.confirm()
    tasks.find_out()


def _register_look_up(name: str, behaviours: tuple[Behaviour | None, ...]) -> None:
    turns = itertools.cycle(behaviours)
    doors = (
        "task plans.confirm_received", "task plans.find_out_unknown", "confirm.confirm_plan",
        "reconcile.find_out_unknown", "reconcile.confirm_received",
    )  # fmt: skip

    @trigger(f"state: {name}, within 60 s of an attempt", *doors)
    def _(at: Scene) -> None:
        look_up(at, next(turns))

    @trigger(f"state: {name}, 60 s after the last attempt", *doors, aged=60.1)
    def _(at: Scene) -> None:
        look_up(at, next(turns))

    @trigger(f"state: {name}, 60 s past its expiry", *doors, lapsed=60.1)
    def _(at: Scene) -> None:
        look_up(at, next(turns))

    @trigger(f"before an approval, state: {name}")
    def _(at: Scene) -> str:
        _script(at, next(turns))
        return at.approve()


for _name, _behaviours in LOOK_UPS.items():
    _register_look_up(_name, _behaviours)


@trigger(
    "state: 404 from a target that has answered 200 for it, 60 s after the last attempt", aged=60.1, has_answered=True
)
def _(at: Scene) -> None:
    look_up(at, problem(404))


@trigger("state: 404 from a target that has answered 200 for it, 60 s past its expiry", lapsed=60.1, has_answered=True)
def _(at: Scene) -> None:
    look_up(at, problem(404))


@trigger("state: 404 from a target that never knew it, 60 s past its expiry", lapsed=60.1, is_known=False)
def _(at: Scene) -> None:
    look_up(at, problem(404))


@trigger("state: `pending`, with the same actions")
def _(at: Scene) -> None:
    tasks.confirm()
    at.make_due()
    at.stub.script(problem(503))
    tasks.find_out()


@trigger("state: `pending`, with other actions")
def _(at: Scene) -> None:
    at.stub.alter(at.plan.plan_id, actions=[])
    at.stub.script(problem(503))
    at.make_due()
    tasks.confirm()
    tasks.find_out()


@trigger("before an approval, state: `pending`, with another fingerprint")
def _(at: Scene) -> str:
    at.stub.alter(at.plan.plan_id, input_fingerprint="sha256:other")
    return at.approve()


# --- sweeps ---------------------------------------------------------------------------------------------------------


@trigger("sweep for expired plans", "task plans.sweep_expiry", "expiry.expire_due")
def _(at: Scene) -> None:
    tasks.sweep_expiry()


@trigger("sweep for expired plans, past its expiry", "task plans.sweep_expiry", lapsed=0)
def _(at: Scene) -> None:
    tasks.sweep_expiry()


@trigger("sweep for overdue claims", "task plans.mark_overdue", "reconcile.mark_overdue")
def _(at: Scene) -> None:
    tasks.mark_overdue()


@trigger(
    "sweep for overdue claims, 45 s after its claim",
    "task plans.mark_overdue",
    "commit.settle_overdue",
    "commit.settle_lost",
    aged=45.1,
    is_late=True,
)
def _(at: Scene) -> None:
    tasks.mark_overdue()


@trigger("sweep for unknown outcomes, not due yet", "task plans.find_out_unknown")
def _(at: Scene) -> None:
    tasks.find_out()


@trigger(
    "sweep for writes, a commit by its agent on its targets",
    "task plans.sweep_abandonments",
    "abandonment.apply_commit_writes",
    "abandonment.apply_write_of",
    "abandonment.forget_old",
    is_once=True,
)
def _(at: Scene) -> None:
    commit_beside(at, at.made)
    tasks.sweep_abandonments()


@trigger("sweep for writes, a commit by another agent on its targets", "task plans.sweep_abandonments", is_once=True)
def _(at: Scene) -> None:
    commit_beside(at, at.another_agent())
    tasks.sweep_abandonments()


@trigger("sweep for what was kept for 7 days, a day after it was received", "task plans.sweep_abandonments")
def _(at: Scene) -> None:
    forget_old()


@trigger(
    "sweep for callbacks, its agent's address is down",
    "task plans.deliver_callbacks",
    "callbacks.deliver_due",
    is_callback_due=True,
)
def _(at: Scene) -> None:
    with refusing_url():
        tasks.deliver()
