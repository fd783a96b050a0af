"""Commit a plan once: on disk before the first byte, one key, never late, never stale, then the state by plan id."""

import dataclasses

from plans.agent import feeding, json_text, outcomes, stopping, waiting
from plans.agent.answers import Again, Follow, Reader, Surface, Verdict, committed_at
from plans.agent.errors import DeskUnavailable, PlanWrite
from plans.agent.http import Answer, NoAnswer
from plans.agent.line import Line, Patience
from plans.agent.outcomes import Outcome, Stale, Unavailable, Unknown, Waiting
from plans.agent.plan import FEEDING, Plan, StoredPlan
from plans.agent.secrets import Secret
from plans.agent.waiting import expired, has_expired
from plans.states import State


def commit_plan(line: Line, stored: StoredPlan) -> Outcome:
    """Commits, or says why not. May be repeated at any time, in any process: it is the same attempt, with one key.

    Sends nothing for a plan that has ended, has expired, or that a write has touched. A plan that people have to
    approve is committed by the desk when they do, so this asks for its state only.
    """
    if stored.end is not None:
        return stored.end
    if stored.state == FEEDING:
        try:
            stored = feeding.deliver(line, stored)
        except DeskUnavailable:
            return Unavailable(stored.plan.plan_id)
    if stored.plan.needs_approval:
        return _instead_of_sending(line, stored, None)
    if not line.clock.is_known:
        # A plan of an earlier run: whether its time is over is the desk's to say, not this host's clock's.
        found = waiting.look(line, stored)
        if not isinstance(found, Waiting | Unknown | Stale):
            return found
        stored = line.ledger.get_plan(stored.plan)
    return _Attempts(line, stored.plan, line.patience(), stored.may_have_arrived).run()


@dataclasses.dataclass(slots=True)
class _Attempts:
    """The attempts of one call. `may_have_arrived` once an attempt, of this call or an earlier one, proves nothing."""

    line: Line
    plan: Plan
    patience: Patience
    may_have_arrived: bool

    def run(self) -> Outcome:
        while True:
            stopping.check()  # before it is on disk that an attempt may arrive
            stored = self.line.ledger.get_plan(self.plan)
            if (why_not := self._why_not(stored)) is not None:
                return why_not
            token = self.line.ledger.token(self.plan)
            if token is None or not self.line.ledger.begin_attempt(self.plan):
                # It ended, or was touched, since it was read: in another thread or process.
                return waiting.look(self.line, stored)
            if has_expired(self.line, self.plan):  # the store kept us waiting
                self.line.ledger.note_unsent(self.plan)
                continue
            answer = self._send(token)
            verdict = Reader(self.line, self.plan, token).read_commit(answer)
            outcome = self._conclude(answer, verdict, token)
            if outcome is not None:
                return outcome

    def _why_not(self, stored: StoredPlan) -> Outcome | None:
        """The outcome without sending, where the plan may not be sent (again)."""
        if stored.end is not None:
            return stored.end
        if stored.touched_by:
            return _instead_of_sending(self.line, stored, Stale(self.plan.plan_id, stored.touched_by))
        if has_expired(self.line, self.plan):
            return _instead_of_sending(self.line, stored, expired(self.plan))
        if not stored.is_in_flight:
            return waiting.look(self.line, stored)
        return None

    def _send(self, token: Secret) -> Answer | NoAnswer:
        plan = self.plan
        is_hosted = plan.origin == "hosted"
        return self.line.http.ask(
            "POST",
            f"/api/v1/operations/{plan.operation}/commit" if is_hosted else f"{waiting.path_of(plan)}/commit",
            query=None if is_hosted else {"target": plan.target},
            body=_body(plan, token),
            headers={"Idempotency-Key": plan.idempotency_key},
            timeout=self.patience.attempt,
        )

    def _conclude(self, answer: Answer | NoAnswer, verdict: Verdict, token: Secret) -> Outcome | None:
        """The outcome; None where the same request is to be made again."""
        match verdict:
            case Again(wrote_nothing, retry_after):
                self._weigh(wrote_nothing)
                return None if self.patience.pause(retry_after) else self._give_up()
            case Follow("fenced", retry_after):
                self._weigh(wrote_nothing=True)
                return self._wait_behind_fence(retry_after)
            case Follow(reason, retry_after):
                self._weigh(wrote_nothing=False)
                return self._follow(reason, retry_after)
            case Surface(wrote_nothing):
                self._weigh(wrote_nothing)
                said: PlanWrite = "possible" if self.may_have_arrived else "none"
                raise self.line.error(answer, token=token, plan_write=said, plan_id=self.plan.plan_id)
            case Waiting():
                # Nobody has approved it, so no earlier attempt can have written either.
                self.line.ledger.note_unsent(self.plan, is_every=True)
                self.line.ledger.receive_plan(dataclasses.replace(self.plan, needs_approval=True), State.PENDING.value)
                return verdict
            case _:
                at = committed_at(answer) if isinstance(answer, Answer) else None
                return waiting.settle(self.line, self.plan, verdict, at)

    def _weigh(self, wrote_nothing: bool) -> None:
        """An attempt that proves nothing stays on disk as such; one that wrote nothing leaves the plan as it was."""
        self.may_have_arrived = self.may_have_arrived or not wrote_nothing
        if not self.may_have_arrived:
            self.line.ledger.note_unsent(self.plan)

    def _give_up(self) -> Outcome:
        if not self.may_have_arrived:
            return Unavailable(self.plan.plan_id)
        return self._find_out()

    def _find_out(self) -> Outcome:
        """The state by plan id, after the attempts; unknown where even that cannot tell."""
        found = waiting.ask_state(self.line, self.plan, self.line.patience(self.line.pace.farewell))
        if found in (None, State.PENDING, State.UNKNOWN):
            self.line.ledger.note_state(self.plan, State.UNKNOWN.value)
            return Unknown(self.plan.plan_id, self.plan.review_url)
        return self._read(found)

    def _read(self, found: "outcomes.Ended | State | None") -> Outcome:
        return waiting.read(self.line.ledger.get_plan(self.plan), found)

    def _follow(self, reason: str, retry_after: float | None) -> Outcome | None:
        """Polls while the desk says that an attempt is under way; None where it says that none is any more."""
        found: outcomes.Ended | State | None = None
        while self.patience.pause(retry_after):
            found = waiting.ask_state(self.line, self.plan, self.patience)
            retry_after = None
            if found is State.PENDING:
                return None
            if found is not None and not isinstance(found, State):
                return self._read(found)
        if reason == "committing" and found in (None, State.COMMITTING):
            return Waiting(self.plan.plan_id, self.plan.review_url, "committing")
        self.line.ledger.note_state(self.plan, State.UNKNOWN.value)
        return Unknown(self.plan.plan_id, self.plan.review_url)

    def _wait_behind_fence(self, retry_after: float | None) -> Outcome | None:
        """Waits on the plan's state while another plan holds its target; None where it may be tried again."""
        if not self.patience.pause(retry_after):
            return Waiting(self.plan.plan_id, self.plan.review_url, "fenced")
        found = waiting.ask_state(self.line, self.plan, self.patience)
        return None if found is State.PENDING else self._read(found)


def _body(plan: Plan, token: Secret) -> Secret:
    members = {"plan_token": token.reveal(), "input_fingerprint": plan.input_fingerprint, "plan_id": plan.plan_id}
    return Secret(json_text.compose(members).decode())


def _instead_of_sending(line: Line, stored: StoredPlan, known: Outcome | None) -> Outcome:
    """What is known here, unless the desk may know better: an attempt was made, or people could have approved."""
    if known is not None and not stored.may_have_arrived and stored.plan.needs_approval is False:
        return known
    found = waiting.look(line, stored)
    is_pending = isinstance(found, Waiting) and found.reason == "approval"
    return known if known is not None and is_pending else found
