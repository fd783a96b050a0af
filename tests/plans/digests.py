"""A plan's digest as an outsider makes it."""

import hashlib
import json

import msgspec

from audit.models import Event, Payload
from plans.models import Plan


class _Told(msgspec.Struct):
    data: dict[str, msgspec.Raw]


def digest_from_the_log(plan: Plan) -> str:
    """As docs/log.md tells outsiders to make it, of nothing but the event."""
    event = Event.objects.get(plan_id=plan.plan_id, kind="plan.received")
    told = msgspec.json.decode(Payload.objects.get(event_id=event.pk).body, type=_Told).data
    of = {name: json.loads(bytes(value)) for name, value in told.items()}
    text_of = {name: bytes(told[name]).decode() for name in ("inputs", "actions")}
    evidence = "" if of["evidence"] is None else bytes(told["evidence"]).decode()
    shown = [
        "plandesk.digest.v1", event.agent, event.target, of["target_address"], event.plan_id, event.operation,
        event.task_id, of["intent"], of["replaces"], text_of["inputs"], text_of["actions"], evidence, of["summary"],
        of["input_fingerprint"], of["created_at"], of["expires_at"], of["policy_version"], of["approvals_required"],
        of["mark_count"],
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(shown, separators=(",", ":")).encode()).hexdigest()
