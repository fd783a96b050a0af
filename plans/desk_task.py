"""An agent's task as the desk itself works on it: what the tools of `plans.agent.toolbox` act on, inside the desk.

There is no second way to plan or to commit: every act is a request to the agents' API, under the caller's own key,
answered by its view in the thread that asks. A plan's token is opened for that one request, and goes nowhere else.
"""

import io
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlencode

from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest
from django.urls import resolve

from plans import answers, vault
from plans.agent import DeskError, Plan, PlanRefused, TaskEnded, json_text
from plans.agent.answers import Again, Follow, Reader, Surface
from plans.agent.http import Answer
from plans.agent.line import error_of
from plans.agent.outcomes import Ended, Outcome, Unavailable, Unknown, Waiting, again
from plans.agent.secrets import Secret
from plans.agent.task import AbandonReason
from plans.agent.toolbox import Toolbox, read_published
from plans.errors import AmbiguousPlan
from plans.idempotency import HEADER
from plans.models import Agent
from plans.models import Plan as Row
from plans.states import State

API = "/api/v1"
_KEPT = ("SERVER_NAME", "SERVER_PORT", "REMOTE_ADDR", "wsgi.url_scheme", "HTTP_HOST", "HTTP_AUTHORIZATION")
"""What a request of the tools has of the request that brought them: who asks, and where."""


class DeskTask:
    """One task of the agent that sent this request. Keeps nothing: what there is to know is in the database."""

    def __init__(self, request: HttpRequest, agent: Agent, task_id: str) -> None:
        self._environ = {name: request.META[name] for name in _KEPT if name in request.META}
        self._agent = agent
        self.task_id = task_id

    def toolbox(self, *, with_operations: bool) -> Toolbox:
        """The tools; without the hosted operations where none of theirs is wanted. Raises DeskError as the API does."""
        if not with_operations:
            return Toolbox(self, {})
        answer = self._ask("GET", "/tools")
        if answer.status != 200:
            raise error_of(answer, _as_it_is, plan_write="none")
        return Toolbox(self, read_published(answer.body))

    def dry_run(
        self, operation: str, inputs: Mapping[str, object], *, intent: str | None = None, summary: str | None = None
    ) -> Plan:
        """As `Task.dry_run`, but that the same again makes a new plan, which supersedes the pending one.

        Raises PlanRefused, DeskUnavailable, NotJson, and TaskEnded for a task that has ended.
        """
        body = json_text.compose(
            {
                "task_id": self.task_id,
                "inputs": json_text.raw(json_text.freeze(inputs)),
                "intent": intent,
                "summary": summary,
            }
        )
        answer = self._ask("POST", f"/operations/{operation}/dry-run", body=Secret(body.decode()))
        members = answer.members()
        plan = self.find(str(members["plan_id"])) if answer.status == 201 else None
        if plan is None:
            raise error_of(answer, _as_it_is, PlanRefused, plan_write="none")
        if members["state"] == State.ABANDONED:
            raise TaskEnded(f"Task {self.task_id} has ended; a new piece of work needs a new task id.")
        return plan

    def find(self, plan_id: str) -> Plan | None:
        """The plan of this id, of this agent and task. Raises DeskError where several targets know one of it."""
        found = list(self._rows().filter(plan_id=plan_id)[:2])
        if len(found) > 1:
            raise DeskError(
                "Several targets know a plan of this id: commit it through the API, which takes the target's name.",
                slug=AmbiguousPlan.slug, status=AmbiguousPlan.status, plan_write="none", plan_id=plan_id,
            )  # fmt: skip
        return _plan(found[0]) if found else None

    def commit(self, plan: Plan) -> Outcome:
        """As `Task.commit`: one attempt, under the plan's one key. A person's decision is waited for elsewhere."""
        row = self._rows().get(target__name=plan.target, plan_id=plan.plan_id)
        if row.token_sealed is None:  # it has ended, and its token with it
            return self._again(plan)
        token = Secret(vault.open_token(row))
        body = {"plan_token": token.reveal(), "input_fingerprint": plan.input_fingerprint, "plan_id": plan.plan_id}
        answer = self._ask(
            "POST",
            f"/plans/{plan.plan_id}/commit",
            query={"target": plan.target},
            body=Secret(json_text.compose(body).decode()),
            headers={HEADER: plan.idempotency_key},
        )
        verdict = Reader(_Discreet(), plan, token).read_commit(answer)
        match verdict:
            case Again(wrote_nothing):
                is_sure = wrote_nothing and answer.members().get("plan_write") == "none"
                return Unavailable(plan.plan_id) if is_sure else Unknown(plan.plan_id, plan.review_url)
            case Follow("unknown"):
                return Unknown(plan.plan_id, plan.review_url)
            case Follow(reason):
                assert reason != "unknown"  # for the type checker, which does not follow the row above
                return Waiting(plan.plan_id, plan.review_url, reason)
            case Surface(wrote_nothing):
                if not wrote_nothing:  # nothing that can be read, and it may say that all is written
                    return Unknown(plan.plan_id, plan.review_url)
                raise error_of(answer, token.hide_in, plan_write="none", plan_id=plan.plan_id)
            case outcome:
                return outcome

    def wait(self, plan: Plan, timeout: float | None = None) -> Outcome:
        """What became of the plan, as it is now; nobody is waited for."""
        answer = self._ask("GET", f"/plans/{plan.plan_id}", query={"target": plan.target})
        found = Reader(_Discreet(), plan, None).read_state(answer.members()) if answer.status == 200 else None
        match found:
            case None:
                raise error_of(answer, _as_it_is, plan_write="none", plan_id=plan.plan_id)
            case State.UNKNOWN:
                return Unknown(plan.plan_id, plan.review_url)
            case State.COMMITTING:
                return Waiting(plan.plan_id, plan.review_url, "committing")
            case State():
                return Waiting(plan.plan_id, plan.review_url)
            case outcome:
                return outcome

    def abandon(self, plan: Plan, reason: AbandonReason = "intent_changed") -> Outcome:
        """As `Task.abandon`."""
        body = Secret(json_text.compose({"reason": reason}).decode())
        answer = self._ask("POST", f"/plans/{plan.plan_id}/abandon", query={"target": plan.target}, body=body)
        if answer.status != 200:
            raise error_of(answer, _as_it_is, plan_write="none", plan_id=plan.plan_id)
        return self.wait(plan)

    def _again(self, plan: Plan) -> Outcome:
        outcome = self.wait(plan)
        return again(outcome) if isinstance(outcome, Ended) else outcome

    def _rows(self) -> Any:
        rows = Row.objects.select_related("agent", "target", "task")
        return rows.filter(agent=self._agent, task__task_id=self.task_id)

    def _ask(
        self, method: Literal["GET", "POST"], path: str, *, query: Mapping[str, str] | None = None,
        body: Secret | None = None, headers: Mapping[str, str] | None = None,
    ) -> Answer:  # fmt: skip
        """One request to a view of the API. Raises what the view raises, which is nothing that it foresees."""
        content = b"" if body is None else body.reveal().encode()
        request = WSGIRequest(
            {
                **self._environ,
                **{f"HTTP_{name.upper().replace('-', '_')}": value for name, value in (headers or {}).items()},
                "REQUEST_METHOD": method,
                "PATH_INFO": API + path,
                "QUERY_STRING": urlencode(query or {}),
                "CONTENT_TYPE": "application/json",
                "CONTENT_LENGTH": str(len(content)),
                "wsgi.input": io.BytesIO(content),
            }
        )
        view, arguments, named = resolve(API + path)
        response = view(request, *arguments, **named)
        kind = response.headers.get("Content-Type", "")
        retry_after = response.headers.get("Retry-After")
        return Answer(
            status=response.status_code,
            is_json=kind in ("application/json", "application/problem+json"),
            retry_after=float(retry_after) if retry_after else None,
            is_replayed=response.headers.get("Idempotent-Replayed") == "true",
            body=response.content,
        )


class _Discreet:
    def hide(self, text: str, token: Secret | None) -> str:
        return text if token is None else token.hide_in(text)


def _as_it_is(text: str) -> str:
    return text


def _plan(row: Row) -> Plan:
    return Plan(
        plan_id=row.plan_id,
        target=row.target.name,
        operation=row.operation,
        task_id=row.task.task_id,
        intent=row.intent,
        inputs_json=row.inputs,
        actions_json=row.actions,
        input_fingerprint=row.input_fingerprint,
        created_at=row.created_at,
        expires_at=row.expires_at,
        idempotency_key=row.idempotency_key,
        review_url=answers.review_url(row),
        needs_approval=row.approvals_required > 0,
        origin="hosted" if row.is_hosted else "fed",
        replaces=row.replaces,
        summary=row.summary or None,
    )
