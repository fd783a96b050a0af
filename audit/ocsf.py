"""Events as OCSF API Activity (class 6003, schema 1.6.0), for whoever reads many products' logs in one place."""

import json
from typing import Any, Final

import msgspec

from audit.canonical import parse_at
from audit.kinds import Kind

VERSION: Final = "1.6.0"
_PRODUCT: Final = {"name": "Plandesk", "vendor_name": "Plandesk"}
_CREATE, _READ, _UPDATE, _DELETE, _OTHER = 1, 2, 3, 4, 99
_NAMES: Final = {_CREATE: "Create", _READ: "Read", _UPDATE: "Update", _DELETE: "Delete"}
# The rest is "Other", named by its kind.
_ACTIVITIES: Final = {
    "plan.received": _CREATE,
    "plan.viewed": _READ,
    "plan.abandoned": _UPDATE,
    "plan.approved": _UPDATE,
    "plan.rejected": _UPDATE,
    "agent.changed": _UPDATE,
    "target.changed": _UPDATE,
    "policy.changed": _UPDATE,
    "person.changed": _UPDATE,
    "audit.read": _READ,
    "audit.exported": _READ,
    "audit.verified": _READ,
    "audit.erased": _DELETE,
    "audit.disposed": _DELETE,
}
_Status = tuple[int, str]
_UNKNOWN: Final[_Status] = (0, "Unknown")
_SUCCESS: Final[_Status] = (1, "Success")
_FAILURE: Final[_Status] = (2, "Failure")
# Whether what the event tells of came about (OCSF status_id): a write that may or may not have been made is no success.
_STATUSES: Final[dict[str, _Status]] = {
    Kind.FEED_REFUSED: _FAILURE,
    Kind.PLAN_RECEIVED: _SUCCESS,
    Kind.PLAN_VIEWED: _SUCCESS,
    Kind.PLAN_MARKED: _SUCCESS,
    Kind.PLAN_APPROVED: _SUCCESS,
    Kind.PLAN_REJECTED: _FAILURE,
    Kind.PLAN_REFUSED: _FAILURE,
    Kind.PLAN_EXPIRED: (99, "Expired"),
    Kind.PLAN_ABANDONED: (99, "Abandoned"),
    Kind.PLAN_POLICY_APPLIED: _SUCCESS,
    Kind.PLAN_REPLAN_REQUESTED: _SUCCESS,
    Kind.DECISION_REFUSED: _FAILURE,
    Kind.COMMIT_STARTED: _UNKNOWN,
    Kind.COMMIT_UNSENT: _FAILURE,
    Kind.COMMIT_SUCCEEDED: _SUCCESS,
    Kind.COMMIT_REPLAYED: _SUCCESS,
    Kind.COMMIT_CONFLICTED: _FAILURE,
    Kind.COMMIT_REFUSED: _FAILURE,
    Kind.COMMIT_UNKNOWN: _UNKNOWN,
    Kind.COMMIT_UNAPPROVED: (99, "Written without approval"),
    Kind.COMMIT_CONTRADICTED: _UNKNOWN,
    Kind.COMMIT_NEVER_PLANNED: _FAILURE,
    Kind.COMMIT_KEY_REUSED: _FAILURE,
    Kind.COMMIT_FINGERPRINT_MISMATCHED: _FAILURE,
    Kind.WRITE_OBSERVED: _SUCCESS,
    Kind.TASK_ENDED: _SUCCESS,
    Kind.WEBHOOK_REJECTED: _FAILURE,
    Kind.CALLBACK_DELIVERED: _SUCCESS,
    Kind.CALLBACK_FAILED: _FAILURE,
    Kind.LOGIN_SUCCEEDED: _SUCCESS,
    Kind.LOGIN_FAILED: _FAILURE,
    Kind.AGENT_CHANGED: _SUCCESS,
    Kind.TARGET_CHANGED: _SUCCESS,
    Kind.POLICY_CHANGED: _SUCCESS,
    Kind.PERSON_CHANGED: _SUCCESS,
    Kind.AUDIT_READ: _SUCCESS,
    Kind.AUDIT_EXPORTED: _SUCCESS,
    Kind.AUDIT_ERASED: _SUCCESS,
    Kind.AUDIT_DISPOSED: _SUCCESS,
    Kind.AUDIT_HELD: _SUCCESS,
    Kind.LOG_CHANGED: _SUCCESS,
}
# These say by a member of their own; without it (erased) nobody knows.
_STATUSES_BY_MEMBER: Final[dict[str, tuple[str, dict[bytes, _Status]]]] = {
    Kind.AUDIT_VERIFIED: ("whole", {b"true": _SUCCESS, b"false": _FAILURE}),
    Kind.COMMIT_RESOLVED: (
        "state",
        {b'"committed"': _SUCCESS, b'"conflicted"': _FAILURE, b'"refused"': _FAILURE, b'"abandoned"': _FAILURE},
    ),
}
# Unknown, User, Admin, System, Other (OCSF user.type_id).
_USER_TYPES: Final = {"person": (1, "User"), "system": (3, "System")}
_OTHER_TYPE: Final = (99, "Other")


class _Actor(msgspec.Struct):
    type: str
    id: str
    name: str | None


class _Line(msgspec.Struct):
    """A line of the JSONL export."""

    index: int
    leaf_hash: str
    id: str
    kind: str
    at: str
    actor: _Actor
    on_behalf_of: str | None
    agent: str | None
    target: str | None
    plan_id: str | None
    operation: str | None
    task_id: str | None
    request_id: str | None
    plan_seq: int | None
    data: msgspec.Raw
    erased: bool = False


_LINES = msgspec.json.Decoder(_Line)
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)


def translate_line(line: bytes) -> bytes:
    """The OCSF event of one line of the JSONL export. What OCSF has no place for is in `unmapped`; `data` as text."""
    event = _LINES.decode(line)
    activity = _ACTIVITIES.get(event.kind, _OTHER)
    kind, name = _USER_TYPES.get(event.actor.type, _OTHER_TYPE)
    user = {"uid": event.actor.id, "type_id": kind, "type": name}
    if event.actor.name:
        user["name"] = event.actor.name
    api: dict[str, Any] = {"operation": event.kind, "service": {"name": "plandesk"}}
    if event.request_id:
        api["request"] = {"uid": event.request_id}
    resources = [
        {"type": type_, "name": value}
        for type_, value in (("plan", event.plan_id), ("target", event.target), ("task", event.task_id))
        if value
    ]
    unmapped = {
        "leaf_hash": event.leaf_hash,
        "actor_type": event.actor.type,
        "on_behalf_of": event.on_behalf_of,
        "agent": event.agent,
        "plan_operation": event.operation,
        "plan_seq": event.plan_seq,
        "data": bytes(event.data).decode(),
        "erased": event.erased or None,
    }
    document = _document(activity, event.kind, event.at, {"user": user})
    document["metadata"] |= {"uid": event.id, "sequence": event.index, "event_code": event.kind}
    status_id, status = _status_of(event)
    document |= {
        "api": api,
        "status_id": status_id,
        "status": status,
        "unmapped": {name: value for name, value in unmapped.items() if value is not None},
    }
    return msgspec.json.encode(document | ({"resources": resources} if resources else {})) + b"\n"


def _status_of(event: _Line) -> _Status:
    if event.kind not in _STATUSES_BY_MEMBER:
        return _STATUSES.get(event.kind, _UNKNOWN)
    name, statuses = _STATUSES_BY_MEMBER[event.kind]
    member = (_MEMBERS.decode(event.data) or {}).get(name)
    return statuses.get(bytes(member), _UNKNOWN) if member is not None else _UNKNOWN


def translate_closing(closing: dict[str, Any]) -> bytes:
    """The last record: the export itself, with its checkpoint, as an event of the same class."""
    document = _document(
        _READ, "audit.export", closing["signed_at"] or "1970-01-01T00:00:00Z", {"app_name": "plandesk"}
    )
    document["api"] = {"operation": "audit.export", "service": {"name": "plandesk"}}
    document["unmapped"] = {"export": json.dumps(closing, ensure_ascii=False)}
    return msgspec.json.encode(document) + b"\n"


def _document(activity: int, kind: str, at: str, actor: dict[str, Any]) -> dict[str, Any]:
    return {
        "category_uid": 6,
        "class_uid": 6003,
        "type_uid": 600300 + activity,
        "activity_id": activity,
        "activity_name": _NAMES.get(activity, kind),
        "severity_id": 1,
        "time": int(parse_at(at).timestamp() * 1000),
        "message": kind,
        "metadata": {"version": VERSION, "product": _PRODUCT, "original_time": at, "log_name": "plandesk audit log"},
        "actor": actor,
        "src_endpoint": {"svc_name": "plandesk"},
    }
