"""What OCSF says of each kind: a success only where what was tried is known to have come about."""

import json
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from audit.kinds import Kind
from audit.ocsf import translate_line
from tests.audit.independent import independent

SUCCESS, FAILURE, UNKNOWN = (1, "Success"), (2, "Failure"), (0, "Unknown")
STATUSES: Final = {
    "feed.refused": FAILURE,
    "plan.received": SUCCESS,
    "plan.viewed": SUCCESS,
    "plan.marked": SUCCESS,
    "plan.approved": SUCCESS,
    "plan.rejected": FAILURE,
    "plan.refused": FAILURE,
    "plan.expired": (99, "Expired"),
    "plan.abandoned": (99, "Abandoned"),
    "plan.policy_applied": SUCCESS,
    "plan.replan_requested": SUCCESS,
    "decision.refused": FAILURE,
    "commit.started": UNKNOWN,
    "commit.unsent": FAILURE,
    "commit.succeeded": SUCCESS,
    "commit.replayed": SUCCESS,
    "commit.conflicted": FAILURE,
    "commit.refused": FAILURE,
    "commit.unknown": UNKNOWN,
    "commit.resolved": UNKNOWN,
    "commit.unapproved": (99, "Written without approval"),
    "commit.contradicted": UNKNOWN,
    "commit.never_planned": FAILURE,
    "commit.key_reused": FAILURE,
    "commit.fingerprint_mismatched": FAILURE,
    "write.observed": SUCCESS,
    "task.ended": SUCCESS,
    "webhook.rejected": FAILURE,
    "callback.delivered": SUCCESS,
    "callback.failed": FAILURE,
    "login.succeeded": SUCCESS,
    "login.failed": FAILURE,
    "agent.changed": SUCCESS,
    "target.changed": SUCCESS,
    "policy.changed": SUCCESS,
    "person.changed": SUCCESS,
    "audit.read": SUCCESS,
    "audit.exported": SUCCESS,
    "audit.verified": UNKNOWN,
    "audit.erased": SUCCESS,
    "audit.disposed": SUCCESS,
    "audit.held": SUCCESS,
    "log.changed": SUCCESS,
}
"""Of an event whose payload is erased, so that what a kind says by a member of it is not known."""


def translated(kind: str, data: Any = None) -> dict[str, Any]:
    line = {
        "index": 0, "leaf_hash": "00" * 32, "id": "7", "kind": kind, "at": "2026-03-14T09:31:12.000000Z",
        "actor": {"type": "system", "id": "sweep", "name": "Plandesk"}, "on_behalf_of": None, "agent": "bot",
        "target": "billing", "plan_id": "plan_1", "operation": "refund", "task_id": "t", "request_id": None,
        "plan_seq": 1, "data": data, "erased": data is None,
    }  # fmt: skip
    record: dict[str, Any] = json.loads(translate_line(json.dumps(line, separators=(",", ":")).encode()))
    return record


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    embedded = independent("ocsf_json_schema.embedded")
    schema = embedded.OcsfJsonSchemaEmbedded(independent("ocsf_json_schema.loader").get_ocsf_schema("1.6.0"))
    return Draft202012Validator(schema.get_class_schema("api_activity"))


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_has_its_status_and_is_valid(validator: Draft202012Validator, kind: Kind) -> None:
    record = translated(kind)
    assert (record["status_id"], record["status"]) == STATUSES[kind]
    assert list(validator.iter_errors(record)) == []


@pytest.mark.parametrize(
    ("kind", "data", "status"),
    [
        ("audit.verified", {"whole": True, "size": 7}, SUCCESS),
        ("audit.verified", {"whole": False, "damage_count": 1}, FAILURE),
        ("audit.verified", {"whole": "odd"}, UNKNOWN),
        ("audit.verified", {}, UNKNOWN),
        ("commit.resolved", {"how": "state", "state": "committed"}, SUCCESS),
        ("commit.resolved", {"how": "person", "state": "abandoned"}, FAILURE),
        ("commit.resolved", {"how": "answer", "state": "conflicted"}, FAILURE),
        ("commit.resolved", {"how": "answer", "state": "refused"}, FAILURE),
        ("a.kind_of_later", {"x": 1}, UNKNOWN),
    ],
)
def test_what_a_kind_says_by_a_member_is_read_there(
    validator: Draft202012Validator, kind: str, data: Any, status: tuple[int, str]
) -> None:
    record = translated(kind, data)
    assert (record["status_id"], record["status"]) == status
    assert list(validator.iter_errors(record)) == []
