"""Anything in any order: a machine feeds, decides, crashes and sweeps at random, and the promises hold after each step.

MACHINE_EXAMPLES and MACHINE_STEPS make it longer (`make machine`); then it is also another one at every run.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.test import override_settings
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from audit.kinds import TERMINAL_KINDS
from audit.models import Event
from plans import clock, registry, schema
from plans.abandonment import abandon_plan, end_task, observe_write
from plans.agent_commit import Presented, commit_by_agent
from plans.demo.models import Customer
from plans.errors import DecisionRefused, Refused, StillCommitting
from plans.instants import format_instant_exact
from plans.intake import dry_run
from plans.models import Fence, Plan
from plans.review import approve_plan, reject_plan, request_replan, settle_unknown
from plans.states import AGENT_REASONS, BUSY, ENDS, State
from plans.tasks import confirm, find_out, mark_overdue, sweep_abandonments, sweep_expiry
from tests.makers import MadeAgent, feed_data, make_agent, make_person, make_target, number, receive
from tests.plans.demo.makers import make_customer
from tests.stub_behaviour import (
    Answer,
    Behaviour,
    Commit,
    DropAfterApplying,
    DropAfterReading,
    DropBeforeReading,
    conflict,
    in_progress,
    problem,
)
from tests.stub_target import StubTarget
from tests.time_passing import pass_time, pass_time_to_expiry

EXAMPLES, STEPS = int(os.environ.get("MACHINE_EXAMPLES", "25")), int(os.environ.get("MACHINE_STEPS", "30"))
IS_NIGHTLY = "MACHINE_EXAMPLES" in os.environ

AGENTS, PEOPLE, RECORDS = 2, 2, 4
GOOD = [Commit(), Answer(201, {"entry": 1}, applies=True)]
LOST = [
    DropAfterApplying(),
    DropAfterReading(),
    DropBeforeReading(),
    Answer(503, b"", applies=True),
    problem(503),
    Answer(202, {}, applies=True),
    in_progress(),
    Answer(200, b'{"a": 1}', applies=True, cut_after=3),
]
NO = [conflict(), problem(410), problem(422)]  # honest: nothing was applied by this request
BEHAVIOURS = st.sampled_from([*GOOD, *GOOD, *NO, *NO, *LOST, None, None])  # None: nobody listens
STEPS_TO_DIE_AT = st.sampled_from(
    [None] * 6
    + ["decision-locked", "plan-locked", "claim-written", "claim-on-disk", "answer-in-hand", "answer-written"]
)
PLACES = st.integers(0, 50)
SELDOM = st.sampled_from([False, False, True])  # what ends plans by itself leaves nothing to see of the rest
FEEDS = st.fixed_dictionaries(
    {
        "agent": st.integers(0, AGENTS - 1),
        "where": st.integers(0, 1),
        "task": st.integers(0, 1),
        "records": st.sets(st.integers(0, RECORDS - 1), min_size=1, max_size=2),
        "intent": st.sampled_from([None, None, "a", "b"]),
        "replaces": st.none() | st.none() | st.none() | PLACES,
        "ago": st.sampled_from([0, 0, 5, 60]),
        "is_known": st.booleans(),
        "is_same": SELDOM,
    }
)


@dataclass
class Known:
    """A plan as the machine knows it: what it was fed with, and how it stood after the step before."""

    pk: int
    owner: int
    data: dict[str, Any]
    token: str
    key: str
    needs: int
    state: str = State.PENDING
    events: int = 0
    sent_at_lapse: int | None = None


class Desk(RuleBasedStateMachine):
    """Two agents, a target that needs one approval, one that needs nobody, and the hosted one."""

    stub: StubTarget
    owner: Any
    cleaner: Any

    def __init__(self) -> None:
        super().__init__()
        self.known: list[Known] = []
        self.written: list[int] = []  # hosted plans, in the order of their commits
        self.acting: int | None = None

    @initialize(fed=st.lists(FEEDS, min_size=2, max_size=4))
    def open_the_desk(self, fed) -> None:
        self.stub._plans.clear()
        self.targets = [make_target(base_url=self.stub.base_url, approvals=needed) for needed in (1, 0)]
        hosted = registry.ensure_hosted_targets()
        self.agents: list[MadeAgent] = [make_agent(*self.targets, *hosted) for _ in range(AGENTS)]
        self.people = [make_person("reviewer") for _ in range(PEOPLE)]
        self.customers = [make_customer(str(number())) for _ in range(2)]
        self.begun = clock.now()
        for one in fed:
            self._feed(**one)
        self.acting = None

    def teardown(self) -> None:
        try:
            if hasattr(self, "begun"):
                self._let_everything_end()
        finally:
            self.cleaner.execute("SELECT seed.clean()")

    # --- agents ---

    @rule(fed=FEEDS)
    def feed(self, fed) -> None:
        self._feed(**fed)

    @rule(fed=FEEDS)
    def feed_one_more(self, fed) -> None:
        self._feed(**fed)

    def _feed(self, agent, where, task, records, intent, replaces, ago, is_known, is_same) -> None:
        actions = [{"op": "update", "target": f"r/{n}", "field": "limit", "from": 1, "to": number()} for n in records]
        body = self.stub.new_plan(actions=actions, is_known=is_known)
        data = feed_data(self.targets[where].name, plan=body, task_id=f"task-{task}")
        if is_same:
            data["inputs"] = {"the": "same"}
        if intent:
            data["intent"] = intent
        if replaces is not None and (own := [one for one in self.known if one.owner == agent]):
            data["replaces"] = own[replaces % len(own)].data["plan"]["plan_id"]
        if ago:
            data["created_at"] = format_instant_exact(clock.now() - timedelta(seconds=ago))
        with self._as_agent(agent):
            self._remember(receive(self.agents[agent].agent, data), agent, data)

    @rule(place=PLACES)
    def feed_the_same_again(self, place) -> None:
        if (one := self._pick(place)) and one.data["inputs"] != "hosted":
            with self._as_agent(one.owner):
                assert receive(self.agents[one.owner].agent, one.data).pk == one.pk

    @rule(agent=st.integers(0, AGENTS - 1), customer=st.integers(0, 1), intent=st.sampled_from([None, "a", "c"]))
    def dry_run_hosted(self, agent, customer, intent) -> None:
        inputs = {"customer_id": self.customers[customer].pk, "address": f"{number()} New Road"}
        body = {"task_id": "task-0", "inputs": inputs} | ({"intent": intent} if intent else {})
        request = msgspec.json.decode(msgspec.json.encode(body), type=schema.DryRun)
        with self._as_agent(agent):
            answer = dry_run(agent=self.agents[agent].agent, operation="address.update", request=request)
            fed = {"plan_id": answer.plan.plan_id, "plan_token": answer.token}
            self._remember(answer.plan, agent, {"plan": fed, "inputs": "hosted"})

    @rule(place=PLACES, behaviour=BEHAVIOURS, die_at=STEPS_TO_DIE_AT, is_same_key=st.booleans())
    def commit(self, place, behaviour, die_at, is_same_key) -> None:
        if one := self._pick(place, 0):
            plan = self._read(one)
            presented = Presented(
                "same" + one.key if is_same_key else f"k-{number()}", None, one.token, plan.input_fingerprint
            )
            with self._as_agent(one.owner), self._target(behaviour), self._dying_at(die_at):
                agent = self.agents[one.owner].agent
                answer = commit_by_agent(agent=agent, operation=plan.operation, presented=presented)
                assert answer.plan.state == State.COMMITTED

    @rule(place=PLACES, behaviour=st.sampled_from(LOST))
    def lose_an_answer(self, place, behaviour) -> None:
        if (one := self._pick(place)) and one.needs:
            self.approve(place, 0, behaviour, None)
        elif one:
            self.commit(place, behaviour, None, False)

    @rule(place=PLACES, reason=st.sampled_from(sorted(AGENT_REASONS)), is_meant=SELDOM)
    def abandon(self, place, reason, is_meant) -> None:
        if is_meant and (one := self._pick(place)):
            plan = self._read(one)
            with self._as_agent(one.owner):
                abandon_plan(agent=plan.agent, target_name=plan.target.name, plan_id=plan.plan_id, reason=reason)

    @rule(agent=st.integers(0, AGENTS - 1), task=st.integers(0, 1), is_meant=SELDOM)
    def end_a_task(self, agent, task, is_meant) -> None:
        if not is_meant:
            return
        with self._as_agent(agent):
            end_task(agent=self.agents[agent].agent, task_id=f"task-{task}")

    @rule(
        agent=st.integers(0, AGENTS - 1),
        where=st.integers(0, 1),
        record=st.integers(0, RECORDS - 1),
        ago=st.sampled_from([0, 30]),
        is_meant=SELDOM,
    )
    def write(self, agent, where, record, ago, is_meant) -> None:
        if not is_meant:
            return
        at = clock.now() - timedelta(seconds=ago)
        with self._as_agent(agent):
            observe_write(
                agent=self.agents[agent].agent,
                task_id="task-w",
                target_name=self.targets[where].name,
                targets=[f"r/{record}"],
                written_at=at,
            )

    # --- people ---

    @rule(place=PLACES, person=st.integers(0, PEOPLE - 1), behaviour=BEHAVIOURS, die_at=STEPS_TO_DIE_AT)
    def approve(self, place, person, behaviour, die_at) -> None:
        if one := self._pick(place, 1):
            plan = self._read(one)
            with self._told_no(), self._target(behaviour, from_the_commit=True), self._dying_at(die_at):
                approve_plan(plan_pk=plan.pk, person=self.people[person], seen_digest=schema.shown_digest(plan))

    @rule(place=PLACES, person=st.integers(0, PEOPLE - 1), behaviour=BEHAVIOURS, die_at=STEPS_TO_DIE_AT)
    def approve_another(self, place, person, behaviour, die_at) -> None:
        self.approve(place, person, behaviour, die_at)

    @rule(place=PLACES, person=st.integers(0, PEOPLE - 1), is_meant=SELDOM)
    def reject(self, place, person, is_meant) -> None:
        if is_meant and (one := self._pick(place)):
            plan = self._read(one)
            digest = schema.shown_digest(plan)
            with self._told_no():
                reject_plan(plan_pk=plan.pk, person=self.people[person], seen_digest=digest, reason="No")

    @rule(place=PLACES, is_meant=SELDOM)
    def settle_truthfully(self, place, is_meant) -> None:
        if is_meant and (one := self._pick(place)):
            with self._told_no():
                self._settle(one)

    @rule(place=PLACES, is_meant=SELDOM)
    def ask_for_a_new_plan(self, place, is_meant) -> None:
        if is_meant and (one := self._pick(place)):
            with self._told_no():
                request_replan(plan_pk=one.pk, person=self.people[0])

    # --- time and its sweeps ---

    @rule(place=PLACES, seconds=st.sampled_from([0, 61]), is_meant=SELDOM)
    def lapse(self, place, seconds, is_meant) -> None:
        if is_meant and (one := self._pick(place)):
            pass_time_to_expiry(self.owner, self._read(one), seconds)
            self._has_another_expiry(one)
            if one.sent_at_lapse is None:
                one.sent_at_lapse = self.stub.calls_per_key()[one.key]

    @rule(place=PLACES, seconds=st.sampled_from([46, 61]))
    def age(self, place, seconds) -> None:
        if one := self._pick(place):
            pass_time(self.owner, self._read(one), seconds)
            self._has_another_expiry(one)

    @rule(
        look_ups=st.sampled_from([None, problem(500), problem(500)]),
        behaviour=BEHAVIOURS,
        die_at=st.sampled_from([None] * 4 + ["unknown-leased", "state-in-hand", "claim-on-disk", "answer-in-hand"]),
    )
    def find_out(self, look_ups, behaviour, die_at) -> None:
        Plan.objects.filter(state="unknown").update(next_check_at=clock.now())
        for one in self.known:
            if look_ups is not None:
                self.stub.script_look_ups(one.data["plan"]["plan_id"], look_ups)
        with self._target(behaviour), self._dying_at(die_at):
            find_out()
        self.stub._look_ups.clear()

    @rule(behaviour=st.sampled_from(NO))
    def find_out_and_hear_no(self, behaviour) -> None:
        self.find_out(problem(500), behaviour, None)

    @rule(sweep=st.sampled_from([sweep_expiry, mark_overdue, confirm, sweep_abandonments]))
    def sweep(self, sweep) -> None:
        sweep()

    # --- what holds after every step ---

    @invariant()
    def everything_promised_holds(self) -> None:
        if not self.known:
            return
        rows = Plan.objects.select_related("agent", "target").in_bulk([one.pk for one in self.known])
        told = self._told()
        for one in self.known:
            plan = rows[one.pk]
            kinds = told.get((plan.agent.name, plan.target.name, plan.plan_id), [])
            state = State(plan.state)
            ends = [kind for _, kind in kinds if kind in TERMINAL_KINDS]
            note(f"{plan.plan_id} {state} {[kind for _, kind in kinds]}")
            assert [seq for seq, _ in kinds] == list(range(1, plan.event_count + 1)), "events are numbered one by one"
            assert len(ends) == (1 if state in ENDS else 0), "an end has one terminal event, and nothing else has"
            assert (plan.token_sealed is None) == (state in ENDS), "the token is gone at the end, and not before"
            if one.state in ENDS:
                assert state == one.state, "an end is final"
            if state != one.state:
                assert plan.event_count > one.events, "a change has its event"
            if self.acting is not None and one.owner != self.acting:
                marks = sum(1 for seq, kind in kinds if seq > one.events and kind == "plan.marked")
                assert (state, plan.event_count) == (one.state, one.events + marks), "another agent's plan is untouched"
            if not plan.is_hosted:
                self._ledger_agrees(one, plan)
            elif state == State.COMMITTED != one.state:
                self.written.append(one.pk)
            one.state, one.events = state, plan.event_count
        self.acting = None
        self._intents_are_written_once(rows)
        self._fences_stand(rows)
        self._hosted_rows_are_as_committed(rows)

    def _ledger_agrees(self, one: Known, plan: Plan) -> None:
        applied = self.stub.applications[one.key]
        assert applied == (1 if one.token in self.stub._tokens else 0), "applied at most once, under its one key"
        if plan.state == State.COMMITTED:
            assert applied == 1, "committed only what was applied"
        elif applied:
            assert State(plan.state) in BUSY, "applied is committed, or still to be found out"
        if one.sent_at_lapse is not None:
            assert self.stub.calls_per_key()[one.key] == one.sent_at_lapse, "nothing is sent past the expiry"

    def _intents_are_written_once(self, rows: dict[int, Plan]) -> None:
        held = [
            (plan.agent_id, plan.intent)
            for plan in rows.values()
            if plan.intent and plan.state not in ("conflicted", "rejected", "refused", "abandoned")
        ]
        assert len(held) == len(set(held)), "one plan of an intent is in flight or committed"
        written = [
            (rows[one.pk].agent_id, rows[one.pk].intent)
            for one in self.known
            if rows[one.pk].intent and self.stub.applications[one.key]
        ]
        assert len(written) == len(set(written)), "an intent is applied once"

    def _fences_stand(self, rows: dict[int, Plan]) -> None:
        busy = [plan for plan in rows.values() if State(plan.state) in BUSY]
        fenced = set(Fence.objects.values_list("plan_id", flat=True))
        assert fenced == {plan.pk for plan in busy}, "who may be writing fences, and nobody else"
        taken = [(plan.agent_id, plan.target_id, name) for plan in busy for name in plan.action_targets]
        assert len(taken) == len(set(taken)), "an agent writes to a record once at a time"
        confirmed = [
            (plan.target_id, name) for plan in busy if plan.has_confirmed_actions for name in plan.action_targets
        ]
        assert len(confirmed) == len(set(confirmed)), "confirmed plans keep everybody out"

    def _hosted_rows_are_as_committed(self, rows: dict[int, Plan]) -> None:
        addresses = {customer.pk: customer.address for customer in self.customers}
        for pk in self.written:
            [action] = msgspec.json.decode(rows[pk].actions)
            customer = action["target"].partition("/")[2]
            assert action["from"] == addresses[customer], "written on what it was planned on"
            addresses[customer] = action["to"]
        assert dict(Customer.objects.filter(pk__in=addresses).values_list("pk", "address")) == addresses

    # --- how it is done ---

    def _remember(self, plan: Plan, agent: int, data: dict[str, Any]) -> None:
        if all(one.pk != plan.pk for one in self.known):
            plan = Plan.objects.get(pk=plan.pk)
            token = data["plan"]["plan_token"]
            self.known.append(
                Known(plan.pk, agent, data, token, plan.idempotency_key, plan.approvals_required, plan.state)
            )

    def _pick(self, place: int, needs: int | None = None) -> Known | None:
        """A plan: mostly one that has not ended and `needs` so many approvals, and now and then any at all."""
        living = [one for one in self.known if State(one.state) not in ENDS]
        fitting = [one for one in living if needs is None or one.needs == needs]
        found = self.known if place % 8 == 0 else fitting or living or self.known
        return found[-1 - place % len(found)] if found else None

    def _read(self, one: Known) -> Plan:
        return Plan.objects.select_related("agent", "target", "task", "policy").get(pk=one.pk)

    def _told(self) -> dict[tuple[str, str, str], list[tuple[int, str]]]:
        told: dict[tuple[str, str, str], list[tuple[int, str]]] = {}
        rows = Event.objects.exclude(plan_seq=None).order_by("plan_seq")
        for agent, target, plan_id, seq, kind in rows.values_list("agent", "target", "plan_id", "plan_seq", "kind"):
            told.setdefault((agent, target, plan_id), []).append((seq, kind))
        return told

    def _has_another_expiry(self, one: Known) -> None:
        """Time passed for the plan, and so for its target too."""
        plan = self._read(one)
        if plan.plan_id in self.stub._plans:
            self.stub.alter(plan.plan_id, expires_at=format_instant_exact(plan.expires_at))

    def _settle(self, one: Known) -> None:
        made = bool(self.stub.applications[one.key])
        settle_unknown(plan_pk=one.pk, person=self.people[0], was_made=made, reason="Read in the ledger")

    @contextlib.contextmanager
    def _as_agent(self, agent: int) -> Iterator[None]:
        """What is refused names nothing of another agent; what is done touches nothing of theirs."""
        self.acting = agent
        try:
            yield
        except (Refused, StillCommitting) as refused:
            said = f"{refused} {getattr(refused, 'members', '')}"
            for one in self.known:
                if one.owner != agent:
                    assert one.data["plan"]["plan_id"] not in said, "another agent's plan is not named"
                assert one.token not in said

    @contextlib.contextmanager
    def _told_no(self) -> Iterator[None]:
        with contextlib.suppress(DecisionRefused):
            yield

    @contextlib.contextmanager
    def _target(self, behaviour: Behaviour | None, *, from_the_commit: bool = False) -> Iterator[None]:
        """The target does this with the next commit. Down, it is down for its state too, unless `from_the_commit`."""
        self.stub._script.clear()
        if behaviour is not None:
            self.stub.script(behaviour)
        elif from_the_commit:
            with self._breaking({"claim-on-disk": self.stub.refuse_connections}):
                yield
            self.stub.listen()
            return
        else:
            self.stub.refuse_connections()
        yield
        self.stub.listen()
        self.stub._script.clear()

    @contextlib.contextmanager
    def _dying_at(self, step: str | None) -> Iterator[None]:
        def die() -> None:
            raise SystemExit

        with contextlib.suppress(SystemExit), self._breaking({step: die} if step else {}):
            yield

    @contextlib.contextmanager
    def _breaking(self, at: dict[str, Any]) -> Iterator[None]:
        from django.conf import settings as live

        before = live.FAULT_HOOK

        def hook(step: str, plan_pk: int) -> None:
            if before is not None:
                before(step, plan_pk)
            if step in at:
                at[step]()

        with override_settings(FAULT_HOOK=hook):
            yield

    def _let_everything_end(self) -> None:
        """Time passes, the target answers, people settle what it can't say: then everything has ended, truthfully."""
        self.acting = None
        mark_overdue()
        for one in self.known:
            if self._read(one).state == State.COMMITTING:
                pass_time(self.owner, self._read(one), 46)
        mark_overdue()
        for one in self.known:
            plan = self._read(one)
            if State(plan.state) not in ENDS:
                pass_time_to_expiry(self.owner, plan, 1)
                pass_time(self.owner, plan, 125)
        sweep_expiry()
        Plan.objects.filter(state="unknown").update(next_check_at=clock.now())
        while find_out():
            pass
        for one in self.known:
            if self._read(one).state == State.UNKNOWN:
                pass_time(self.owner, self._read(one), 125)
                with self._told_no():
                    self._settle(one)
        self.everything_promised_holds()
        for one in self.known:
            plan = self._read(one)
            assert State(plan.state) in ENDS, plan
            if not plan.is_hosted:
                assert (plan.state == State.COMMITTED) == bool(self.stub.applications[one.key]), "the end is the truth"


@pytest.fixture
def desk(ground, _cleaner, database) -> Iterator[type[Desk]]:
    with StubTarget() as stub, ground.connect_as_owner() as owner:
        Desk.stub, Desk.owner, Desk.cleaner = stub, owner, _cleaner
        with override_settings(LOCK_WAIT=timedelta(milliseconds=100)):
            yield Desk


@pytest.mark.slow
@pytest.mark.timeout(0 if IS_NIGHTLY else 180)
def test_whatever_happens_in_whatever_order_the_promises_hold(desk):
    how = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        derandomize=not IS_NIGHTLY,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        phases=[Phase.generate, *([Phase.shrink] if IS_NIGHTLY else [])],  # shrinking takes minutes
    )
    run_state_machine_as_test(desk, settings=how)
