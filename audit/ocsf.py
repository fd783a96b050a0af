"""Events as OCSF API Activity (class 6003, schema 1.6.0), for whoever reads many products' logs in one place."""

import json
import re
from typing import Any, Final

import msgspec

from audit.canonical import parse_at

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
_REFUSED: Final = re.compile(r"refused|rejected|failed|conflicted|mismatched|reused|never_planned")
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
    document |= {
        "api": api,
        "status_id": 2 if _REFUSED.search(event.kind) else 1,
        "unmapped": {name: value for name, value in unmapped.items() if value is not None},
    }
    return msgspec.json.encode(document | ({"resources": resources} if resources else {})) + b"\n"


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
