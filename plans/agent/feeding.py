"""Feed the desk a plan that a remote target answered: signed, and the same delivery until the desk has it."""

import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec

from plans import signatures
from plans.agent import json_text
from plans.agent.errors import AgentError, DeskError, DeskUnavailable, NotADryRun, PlanRefused
from plans.agent.http import Answer, NoAnswer
from plans.agent.json_text import compose, raw
from plans.agent.line import FINAL, Line, is_worth_a_retry, retry_after
from plans.agent.plan import StoredPlan
from plans.agent.secrets import Secret
from plans.identifiers import is_idempotency_key, is_identifier
from plans.instants import parse_instant
from plans.states import State

MEMBERS: Final = ("plan_id", "plan_token", "expires_at", "input_fingerprint", "actions")
"""What makes an answer a plan (CONTRACT 5.1)."""

ATTEMPTS_AT_A_NO: Final = 3
"""How often 401 and 404 are tried: worth a retry (CONTRACT 5.1), but mostly a wrong secret or an unknown target."""


class _ActionTarget(msgspec.Struct, frozen=True):
    op: str
    target: str


class DryRunAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A target's answer to a dry run; what a plan does not need is left out. `actions` is the text received."""

    plan_id: str
    plan_token: Secret
    expires_at: str
    input_fingerprint: str
    actions: msgspec.Raw
    created_at: str | None = None
    target: str | None = None
    approval: str | None = None
    review_url: str | None = None

    def __repr__(self) -> str:
        return f"DryRunAnswer({self.plan_id!r})"

    @property
    def actions_json(self) -> str:
        """The actions, as the text received."""
        return bytes(self.actions).decode()

    @property
    def ends(self) -> datetime:
        """When the promise ends."""
        return parse_instant(self.expires_at)


TargetAnswer: TypeAlias = str | bytes | Mapping[str, object]
"""What a target answered to a dry run: best the text or bytes as received."""


def hide_answer(answer: TargetAnswer) -> Secret:
    """A target's answer, from here on out of sight: its token stands in it. Refuses what is no JSON with NotADryRun."""
    hidden = None
    with suppress(ValueError):
        if isinstance(answer, Mapping):
            answer = json_text.freeze(answer)
        if isinstance(answer, str | bytes):
            hidden = Secret(answer if isinstance(answer, str) else answer.decode())
    del answer  # no traceback of what is raised here shows it
    if hidden is None:
        raise _no_dry_run("it is not JSON")
    return hidden


def read_dry_run(answer: Secret) -> DryRunAnswer:
    """The plan in a target's answer: the whole object, or its member `plan`.

    Refuses with NotADryRun what lacks a member of a plan, and what says that it was written already: a target that
    ignored the dry run may have done the thing, and a plan of it would do it twice.
    """
    found = _read(answer)
    if isinstance(found, str):
        raise _no_dry_run(found)
    return found


def _read(answer: Secret) -> DryRunAnswer | str:
    """The plan, or what is wrong with it. Raises nothing, so that no traceback shows what stands in its variables."""
    body = answer.reveal().encode(errors="replace")
    try:
        members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        was_written = _says_written(members)
        if "plan" in members and "plan_token" not in members:
            body = bytes(members["plan"])
            was_written = was_written or _says_written(msgspec.json.decode(body, type=dict[str, msgspec.Raw]))
        if was_written:
            return "it says that this was no dry run"
        found = msgspec.json.decode(body, type=DryRunAnswer, dec_hook=_make_secret)
        return _problem(found, len(msgspec.json.decode(found.actions, type=list[_ActionTarget]))) or found
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        # A message of the library names members and types, and no values, unless it is about the syntax.
        return str(error) if isinstance(error, msgspec.ValidationError) else "it is not JSON"


def _make_secret(kind: type, value: object) -> Secret:
    if kind is not Secret or not isinstance(value, str) or not value:
        raise ValueError("Expected a text that is not empty")  # no word of the value: the library passes this on
    return Secret(value)


def _no_dry_run(problem: str) -> NotADryRun:
    return NotADryRun(f"No answer of a dry run: {problem}. Nothing was fed, and the target may have written.")


def compose_delivery(
    *, target: str, operation: str, task_id: str, inputs_json: str, found: DryRunAnswer, intent: str | None,
    replaces: str | None, summary: str | None, evidence_json: str | None, timestamp: str,
) -> Secret:  # fmt: skip
    """The body of the feed. Refuses one in which the token's text stands anywhere but in its own place."""
    rest = {
        "task_id": task_id, "target": target, "operation": operation, "inputs": raw(inputs_json), "summary": summary,
        "evidence": raw(evidence_json) if evidence_json else None, "intent": intent, "replaces": replaces,
        "created_at": found.created_at,
    }  # fmt: skip
    visible = {"plan_id": found.plan_id, "expires_at": found.expires_at, "input_fingerprint": found.input_fingerprint}
    if found.plan_token.is_in(compose({**rest, **visible, "actions": found.actions}).decode()):
        raise AgentError("The plan's token stands in the plan outside its own member; nothing was fed.")
    plan = {**visible, "plan_token": found.plan_token.reveal(), "actions": found.actions}
    data = compose({**rest, "plan": msgspec.Raw(compose(plan))})
    return Secret(compose({"type": "plan.created", "timestamp": timestamp, "data": msgspec.Raw(data)}).decode())


def deliver(line: Line, stored: StoredPlan) -> StoredPlan:
    """Sends the stored delivery until the desk has the plan: one webhook-id, and a fresh timestamp and signature each.

    May be repeated, in any process. Raises PlanRefused where the desk will never take it (the plan is forgotten), and
    DeskUnavailable where it was not reached (the delivery is kept).
    """
    plan = stored.plan
    body, token = line.ledger.delivery(plan), line.ledger.token(plan)
    if body is None or stored.delivery_id is None:
        return stored
    patience = line.patience()
    noes = 0
    while True:
        answer = _post(line, stored.delivery_id, body, patience.attempt)
        members = answer.members() if isinstance(answer, Answer) and answer.status in (200, 201) else {}
        if members.get("plan_id") == plan.plan_id:
            return _received(line, stored, members)
        if isinstance(answer, Answer) and answer.status in FINAL:
            line.ledger.forget_plan(plan)
            raise line.error(answer, PlanRefused, token=token, plan_write="none", plan_id=plan.plan_id)
        is_no = isinstance(answer, Answer) and answer.status in (401, 404)
        noes += is_no
        if not (is_no or is_worth_a_retry(answer)):
            raise line.error(answer, token=token, plan_write="none", plan_id=plan.plan_id)
        if noes >= ATTEMPTS_AT_A_NO or not patience.pause(retry_after(answer)):
            raise _not_delivered(line, answer, token, plan.plan_id)


def _not_delivered(line: Line, answer: Answer | NoAnswer, token: Secret | None, plan_id: str) -> DeskError:
    if isinstance(answer, Answer) and answer.status in (401, 404):
        return line.error(answer, PlanRefused, token=token, plan_write="none", plan_id=plan_id)
    return line.error(answer, DeskUnavailable, token=token, plan_write="none", plan_id=plan_id)


def _post(line: Line, delivery_id: str, body: Secret, timeout: float) -> Answer | NoAnswer:
    if line.webhook_secret is None:
        raise AgentError("Feeding a plan takes the agent's webhook_secret: give it to Desk.")
    timestamp = int(line.clock.middle().timestamp())
    signature = signatures.sign(line.webhook_secret, delivery_id, timestamp, body.reveal().encode())
    headers = {"webhook-id": delivery_id, "webhook-timestamp": str(timestamp), "webhook-signature": signature}
    path = f"/webhooks/{line.agent}"
    return line.http.ask("POST", path, body=body, headers=headers, timeout=timeout, is_signed=True)


def _received(line: Line, stored: StoredPlan, members: dict[str, Any]) -> StoredPlan:
    plan = stored.plan
    key, url = members.get("idempotency_key"), members.get("review_url")
    plan = dataclasses.replace(
        plan,
        idempotency_key=key if isinstance(key, str) and is_idempotency_key(key) else plan.idempotency_key,
        review_url=url if isinstance(url, str) and url.isprintable() else plan.review_url,
    )
    state = members.get("state")
    if not isinstance(state, str) or state not in set(State):
        state = State.PENDING.value
    return line.ledger.receive_plan(plan, state)


def _says_written(members: Mapping[str, msgspec.Raw]) -> bool:
    """Whether the answer says that this was no dry run, or is of a plan that has come further than one."""
    state = bytes(members.get("state", msgspec.Raw(b"null"))).decode().strip().strip('"')
    dry_run = bytes(members.get("dry_run", msgspec.Raw(b"true"))).decode().strip()
    return dry_run in ("false", "null", "0") or state in set(State) - {State.PENDING}


def _problem(found: DryRunAnswer, actions: int) -> str:
    """What is wrong with the members of a plan; empty where nothing is."""
    if not is_identifier(found.plan_id):
        return "its plan_id is no identifier"
    if not found.input_fingerprint.strip():
        return "its input_fingerprint is blank"
    if actions == 0:
        return "it has no actions"
    for name, instant in (("expires_at", found.expires_at), ("created_at", found.created_at)):
        try:
            if instant is not None:
                parse_instant(instant)
        except ValueError as error:
            return f"its {name} is no instant ({error})"
    return ""
