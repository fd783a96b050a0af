"""One plan in one state, with everybody around it, for one cell of docs/states.md; and what a trigger did to it."""

import json
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.test import Client

from audit.models import Event
from audit.recording import Actor
from plans import clock, ending, policies, review, schema
from plans.chronicle import person_actor, target_actor
from plans.commit import Call, address, carry_out, claim, mark_unknown, remote_target, settle
from plans.errors import DecisionRefused
from plans.instants import format_instant_exact
from plans.locks import lock_plan
from plans.models import Plan
from plans.policy_change import change_policy
from plans.states import BUSY, ENDS, AbandonReason, State
from plans.targets.base import Change, CommitReply
from reviewer.views.plan import STATUS_OF_OUTCOME
from tests.hosted_plans import make_billing_agent, plan_address, plan_refund
from tests.makers import (
    MadeAgent,
    envelope,
    feed_data,
    make_agent,
    make_person,
    make_target,
    number,
    receive,
    reread,
    take_to,
)
from tests.plans.http import signed
from tests.reviewer.pages import client_of, url_of
from tests.stub_behaviour import Behaviour
from tests.stub_target import StubTarget
from tests.time_passing import pass_time, pass_time_to_expiry

ADMIN = Actor("person", "1", "An admin")
PUT_AWAY = """
    SET session_replication_role = replica;
    UPDATE plans_plan SET state = 'abandoned', token_sealed = NULL, next_check_at = NULL
    WHERE state IN ('pending', 'committing', 'unknown');
    DELETE FROM plans_fence;
    DELETE FROM plans_wish;
    DELETE FROM plans_callbacktry;
    DELETE FROM plans_callback;
    UPDATE plans_observedwrite SET is_applied = true WHERE NOT is_applied;
    SET session_replication_role = origin;
"""
CHANGES = (Change("ledger/ACC-104", "limit", "100", "175"),)


@dataclass(frozen=True)
class Given:
    """What a row asks of its plan besides the state. `aged` and `lapsed` are seconds: since receipt, past expiry.

    `is_late`: the plan ended, or is unknown, while its one attempt was still running.
    """

    hosted: str = ""
    approvals: int = 1
    intent: bool = False
    created_ago: float = 0
    aged: float = 0
    lapsed: float | None = None
    is_known: bool = True
    has_answered: bool = False
    is_guarded: bool = False
    refuses_unconfirmed: bool = False
    is_late: bool = False
    is_callback_due: bool = False
    is_once: bool = False
    spoils: bool = False
    """`is_once`: the trigger changes the task or other plans, so nothing else is tried on this plan. `spoils`: it
    changes the agent, the target or people, which are then of this scene alone."""


class Stage:
    """What the cells of one module share, so that each is cheap: a reviewer, agents, and plans that nothing changed.

    A plan that stayed as it was serves the next trigger that asks for the same; it is out of sight meanwhile. Whatever
    else a cell leaves in flight is put away for good.
    """

    def __init__(self, stub: StubTarget, owner: Any) -> None:
        self.stub, self.owner = stub, owner
        self.person = make_person("reviewer")
        self.anybody = Client()
        self._clients: dict[int, Client] = {}
        self._agents: dict[Any, tuple[MadeAgent, int]] = {}
        self._unchanged: dict[tuple[Given, str], Scene] = {}

    def set(self, state: str, given: Given) -> "Scene":
        """A plan in a state, and everybody around it."""
        self.stub.listen()
        self.stub._script.clear()
        self.stub._look_ups.clear()
        self.stub.restore_world()
        self.stub.received.clear()
        scene = self._unchanged.pop((given, state), None)
        if scene is None or scene.is_stale():
            scene = Scene(state, given, self)
        else:
            scene.show()
        scene.mark()
        return scene

    def strike(self, scene: "Scene", found: tuple[str, str, str]) -> None:
        """The cell is done: nothing that it left in flight is there for the next one's sweeps, fences and searches."""
        if not (scene.given.is_once or scene.given.spoils) and scene.is_unchanged(found):
            self._unchanged[scene.given, scene.state] = scene
        self.owner.execute(PUT_AWAY)

    def agent(self, given: Given) -> MadeAgent:
        """An agent and its target, shared by some cells: what strangers can trigger at will is counted per agent."""
        kind = (bool(given.hosted), given.approvals, given.refuses_unconfirmed, given.is_callback_due)
        made, uses = self._agents.get(kind, (None, 0))
        if made is not None and uses < 20 and not given.spoils:
            self._agents[kind] = (made, uses + 1)
            return made
        if given.hosted:
            made = make_billing_agent()
        else:
            url = "http://127.0.0.1:9/hook" if given.is_callback_due else ""
            target = make_target(base_url=self.stub.base_url, approvals=given.approvals)
            if given.refuses_unconfirmed:
                wanted = {"approvals": given.approvals, "is_guarded": False, "refuses_unconfirmed": True}
                change_policy(target_name=target.name, by=ADMIN, **wanted)
            made = make_agent(target, callback_url=url)
        if not given.spoils:
            self._agents[kind] = (made, 1)
        return made

    def client(self, person: Any) -> Client:
        """A browser in which this person is signed in."""
        if person.pk not in self._clients:
            client = self._clients[person.pk] = client_of(person)
            client.handler = self.anybody.handler  # which loads all middleware, once
        return self._clients[person.pk]


@dataclass
class Scene:
    """A cell, set. Triggers use what they need of it and answer what was answered."""

    state: str
    given: Given
    stage: Stage
    plan: Plan = field(init=False)
    made: MadeAgent = field(init=False)
    data: dict[str, Any] = field(init=False, default_factory=dict)
    token: str = field(init=False, repr=False, default="")
    before: Any = field(init=False)

    def __post_init__(self) -> None:
        self.stub, self.owner = self.stage.stub, self.stage.owner
        self.person = make_person("reviewer") if self.given.spoils else self.stage.person
        if self.given.hosted:
            self._plan_hosted()
        else:
            self._feed()
        if self.state == "not known":
            return
        self._take()
        if self.given.lapsed is not None:
            pass_time_to_expiry(self.owner, self.plan, self.given.lapsed)
        if self.given.aged:
            pass_time(self.owner, self.plan, self.given.aged)
        self.plan = reread(self.plan)
        self.row = self._read_row()
        self.set_at = time.monotonic()
        if not self.given.hosted and self.given.is_known:
            self.stub.alter(self.plan.plan_id, expires_at=format_instant_exact(self.plan.expires_at))
            self.told = dict(self.stub._plans[self.plan.plan_id])

    def mark(self) -> None:
        """What was recorded until now is no part of what the trigger does."""
        self.before = clock.now()

    # --- serving again ---

    def is_unchanged(self, found: tuple[str, str, str]) -> bool:
        """True where the trigger left the plan exactly as it was."""
        if found[0] != "stays" or self._read_row() != self.row:
            return False
        return State(self.state) in ENDS or all(event.startswith("(") for event in found[2].split(", ") if event != "–")

    def is_stale(self) -> bool:
        """True where so much time has passed that its claim, or its expiry, may not be what the row asks for."""
        return State(self.state) not in ENDS and time.monotonic() - self.set_at > 20

    def show(self) -> None:
        """Bring the plan back into sight, as it was."""
        if State(self.state) in ENDS:
            return
        self.owner.execute("SET session_replication_role = replica")
        self.row["next_check_at"] = clock.now() + timedelta(seconds=2) if self.state == State.UNKNOWN else None
        self.owner.execute(
            "UPDATE plans_plan SET state = %s, token_sealed = %s, next_check_at = %s WHERE id = %s",
            [self.row["state"], self.row["token_sealed"], self.row["next_check_at"], self.plan.pk],
        )
        if State(self.state) in BUSY:
            self.owner.execute(
                "INSERT INTO plans_fence (plan_id, target_id, action_target, scope) VALUES (%s, %s, %s, %s)",
                [self.plan.pk, self.plan.target_id, self.plan.action_targets[0], str(self.plan.agent_id)],
            )
        self.owner.execute("SET session_replication_role = origin")
        if hasattr(self, "told"):
            self.stub._plans[self.plan.plan_id] = dict(self.told)

    def _read_row(self) -> dict[str, Any]:
        """What a trigger may change of the plan. Events are told apart from it: they are the cell's third line."""
        row = Plan.objects.filter(pk=self.plan.pk).values().get()
        del row["event_count"], row["mark_count"]
        row["token_sealed"] = row["token_sealed"] and bytes(row["token_sealed"])
        return row

    # --- setting it ---

    def _actions(self) -> list[dict[str, Any]]:
        """On a record of this scene's own: neighbours in one table do not fence each other."""
        self.record = f"ledger/ACC-{number()}"
        more = {"reversible": False} if self.given.is_guarded else {}
        return [{"op": "update", "target": self.record, "field": "limit", "from": 100, "to": 250, **more}]

    def _feed(self) -> None:
        given = self.given
        self.made = self.stage.agent(given)
        target = self.made.agent.targets.get()
        body = self.stub.new_plan(is_known=given.is_known, actions=self._actions())
        self.data = feed_data(target.name, plan=body)
        self.token = body["plan_token"]
        if given.intent:
            self.data["intent"] = f"intent:{number()}"
        if given.created_ago:
            self.data["created_at"] = format_instant_exact(clock.now() - timedelta(seconds=given.created_ago))
        if self.state == "not known":
            return
        self.plan = receive(self.made.agent, self.data)
        if given.has_answered:
            Plan.objects.filter(pk=self.plan.pk).update(has_been_known_to_target=True)

    def _plan_hosted(self) -> None:
        self.made = self.stage.agent(self.given)
        self.key = f"{number()}"
        make = plan_address if self.given.hosted == "address" else plan_refund
        if self.state in ("committing", "unknown"):
            raise AssertionError("a hosted plan is never seen committing, and never unknown")
        hosted = make(self.key, agent=self.made.agent)
        self.plan, self.token = hosted.plan, hosted.token
        self.record = self.plan.action_targets[0]

    def _take(self) -> None:
        state = State(self.state)
        if self.given.is_late and state is not State.PENDING:
            self._end_late(state)
            return
        take_to(
            self.plan, state, person=self.person, reason=AbandonReason.TASK_ENDED, changes=CHANGES, result='{"a": 1}'
        )

    @transaction.atomic
    def _end_late(self, state: State) -> None:
        plan = lock_plan(self.plan.pk)
        at = clock.now()
        actor = target_actor(plan)
        attempt = claim(plan, actor=person_actor(self.person), at=at)
        if state is State.COMMITTING:
            return
        mark_unknown(plan, at=at, detail="Lost.")
        attempt.outcome, attempt.settled_at = "unknown", at
        attempt.save()
        if state is State.COMMITTED:
            ending.commit(plan, attempt, None, actor=actor, at=at)
        elif state is State.CONFLICTED:
            ending.conflict(plan, CHANGES, actor=actor, at=at)
        elif state is State.REFUSED:
            ending.refuse(plan, "The account is closed.", actor=actor, at=at)
        elif state is State.ABANDONED:
            ending.abandon(plan, AbandonReason.NOT_APPLIED, actor=actor, at=at)

    # --- who acts in it ---

    def feed(self, data: Any, kind: str = "plan.created", *, made: MadeAgent | None = None) -> str:
        """One signed delivery; of the scene's agent unless told."""
        return self.deliver(envelope(data, kind), made=made)

    def deliver(self, body: bytes, *, made: MadeAgent | None = None, **how: Any) -> str:
        made = made or self.made
        headers = signed(made.webhook_secret, body, **how)
        kind = headers.pop("Content-Type", "application/json")
        path = f"/webhooks/{made.agent.name}"
        return answered(self.stage.anybody.post(path, data=body, content_type=kind, headers=headers))

    def api(self, method: str, path: str, document: Any = None, *, made: MadeAgent | None = None, key: Any = "") -> str:
        """One call of the agents' API."""
        headers = {"Authorization": f"Bearer {(made or self.made).api_key}"} | ({"Idempotency-Key": key} if key else {})
        body = b"" if document is None else json.dumps(document).encode()
        answer = self.stage.anybody.generic(method, path, data=body, content_type="application/json", headers=headers)
        return answered(answer)

    def commit(self, *, key: Any = "", by_id: bool | None = None, **changes: Any) -> str:
        """The scene's agent commits its plan; a change to `...` takes the member out."""
        body = {"plan_token": self.token, "input_fingerprint": self.plan.input_fingerprint} | changes
        body = {name: value for name, value in body.items() if value is not ...}
        key = f"key-{number()}" if key == "" else key
        is_by_id = not self.given.hosted if by_id is None else by_id
        path = f"/api/v1/plans/{self.plan.plan_id}" if is_by_id else f"/api/v1/operations/{self.plan.operation}"
        return self.api("POST", f"{path}/commit", body, key=key)

    def page(self, action: str = "", person: Any = None, *, method: str = "POST", **fields: Any) -> str:
        """A person at the plan's page, with what its forms post."""
        client = self.stage.client(person or self.person)
        if method == "GET":
            return str(client.get(url_of(self.plan, action)).status_code)
        return str(client.post(url_of(self.plan, action), fields).status_code)

    def approve(self, person: Any = None, *, by_page: bool = False, **fields: Any) -> str:
        """Approve it, with the fact that it asks for. `by_page`: over the form, which costs a page each time."""
        plan = reread(self.plan)
        guard = policies.guard_of(plan.actions, is_always=plan.policy.is_guarded)
        typed = {"seen_digest": schema.shown_digest(plan), "fact": "" if guard is None else guard.fact} | fields
        if by_page:
            return self.page("approve", person, digest=typed["seen_digest"], fact=typed["fact"])
        return self._decide(review.approve_plan, person, **typed)

    def reject(self, person: Any = None, *, by_page: bool = False, **fields: Any) -> str:
        typed = {"seen_digest": schema.shown_digest(reread(self.plan)), "reason": "Not this one"} | fields
        if by_page:
            return self.page("reject", person, digest=typed["seen_digest"], reason=typed["reason"])
        return self._decide(review.reject_plan, person, **typed)

    def settle(self, person: Any = None, **fields: Any) -> str:
        typed = {"was_made": True, "reason": "Seen in the ledger"} | fields
        return self._decide(review.settle_unknown, person, is_done_by=200, **typed)

    def _decide(self, decide: Any, person: Any, *, is_done_by: int | None = None, **typed: Any) -> str:
        """The status that the page answers this decision with."""
        try:
            left = decide(plan_pk=self.plan.pk, person=person or self.person, **typed)
        except DecisionRefused as refused:
            return str(refused.status)
        return str(is_done_by or STATUS_OF_OUTCOME[State(left.state)])

    def another_agent(self) -> MadeAgent:
        """Somebody else's agent, at the same target."""
        made = make_agent(self.plan.target)
        self.mark()
        return made

    # --- what its target says ---

    def target_answers(self, behaviour: Behaviour | None) -> str | None:
        """The answer to the plan's attempt arrives; a pending plan is approved for that. None: it is down."""
        if behaviour is None:
            self.stub.refuse_connections()
        else:
            self.stub.script(behaviour)
        if self.state == State.PENDING:
            return self.approve()
        attempt = self.plan.commits.order_by("-number")[0]
        if self.state == State.COMMITTING:
            carry_out(Call(self.plan.pk, attempt.pk, time.monotonic()))
        else:
            settle(attempt.pk, self._reply())
        return None

    def _reply(self) -> CommitReply:
        plan = self.plan
        return remote_target().commit(
            address(plan), token=self.token, fingerprint=plan.input_fingerprint, key=plan.idempotency_key
        )

    def look_ups_say(self, *behaviours: Behaviour) -> None:
        self.stub.script_look_ups(self.plan.plan_id, *behaviours)

    def make_due(self) -> None:
        """An unknown plan's next look is due now."""
        Plan.objects.filter(pk=self.plan.pk, state="unknown").update(next_check_at=clock.now())

    # --- what became of it ---

    def outcome(self, answer: str | None) -> tuple[str, str, str]:
        """The cell as it came out: end, answer, events; events that are not this plan's in parentheses."""
        events = list(Event.objects.filter(at__gt=self.before).select_related("payload").order_by("at", "id"))
        events = [event for event in events if event.kind != "login.succeeded"]
        if self.state == "not known":
            self.plan = Plan.objects.get(plan_id=self.data["plan"]["plan_id"])
        plan = reread(self.plan)
        end = plan.state
        if plan.state == State.ABANDONED:
            end = f"abandoned ({plan.abandonment.reason})"
        if plan.state == self.state:
            end = "stays"
        refused = [event for event in events if event.kind == "decision.refused"]
        if refused and answer is not None:
            answer = f"{answer} {json.loads(refused[-1].payload.body)['data']['code']}"
        names = [event.kind if self._is_own(event) else f"({event.kind})" for event in events]
        return end, answer or "–", ", ".join(names) or "–"

    def _is_own(self, event: Event) -> bool:
        return (event.agent, event.target, event.plan_id) == (
            self.plan.agent.name,
            self.plan.target.name,
            self.plan.plan_id,
        )


def answered(response: Any) -> str:
    """Status and, for a refusal, its slug; a replay is told."""
    text = str(response.status_code)
    if response.status_code >= 400 and response["Content-Type"] == "application/problem+json":
        text += " " + json.loads(response.content)["type"].rsplit("/", 1)[-1]
    if response.headers.get("Idempotent-Replayed") == "true":
        text += ", replayed"
    return text
