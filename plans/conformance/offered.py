"""What the scripted desk answers to `GET /api/v1/tools` (CONTRACT 5.3): its one operation as tools, in both forms."""

from typing import Any, Final

from plans.identifiers import IDENTIFIER_PATTERN

Json = dict[str, Any]

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
DOOR: Final = "/api/v1/operations/address.update"
FREEZE_RULE: Final = (
    "From a dry run on its inputs are frozen. Commit with the answered plan_id and input_fingerprint, word for word, "
    "and no inputs; after a write to what the plan touches, a conflict, or at or past expires_at, make a new dry run."
)

_TEXT: Final[Json] = {"type": "string"}
_NAME: Final[Json] = {"type": "string", "pattern": IDENTIFIER_PATTERN, "maxLength": 128}
_FINGERPRINT: Final[Json] = {"type": "string", "minLength": 1, "maxLength": 512, "pattern": r"\S"}


def _closed(properties: Json, required: list[str], **more: Any) -> Json:
    return {
        "type": "object", "properties": properties, "required": required, "additionalProperties": False, **more,
    }  # fmt: skip


def _nullable(kind: Json) -> Json:
    return {"anyOf": [kind, {"type": "null"}]}


def _tool(step: str, description: str, model: Json, wire: Json) -> Json:
    path = f"{DOOR}/{'dry-run' if step == 'dry_run' else step}"
    return {
        "name": f"address_update_{step}", "operation": "address.update", "step": step, "method": "POST", "path": path,
        "description": f"{description} {FREEZE_RULE}", "model": model, "wire": {"$schema": DIALECT, **wire},
    }  # fmt: skip


_EVIDENCE: Final = _closed(
    {"tool": _TEXT, "note": _TEXT, "url": {"type": "string", "pattern": r"^https://[^\s/]+"}}, ["tool"]
)

TOOLS: Final[list[Json]] = [
    _tool(
        "dry_run",
        "Update a customer's address: plan it. Writes nothing; answers what would be written.",
        _closed(
            {
                "inputs": _closed({"customer_id": _TEXT, "address": _TEXT}, ["customer_id", "address"]),
                "intent": _nullable(_TEXT),
                "summary": _nullable(_TEXT),
            },
            ["inputs", "intent", "summary"],
        ),
        _closed(
            {
                "task_id": _NAME,
                "inputs": _closed(
                    {
                        "customer_id": {"type": "string", "minLength": 1, "maxLength": 32},
                        "address": {"type": "string", "maxLength": 500},
                    },
                    ["customer_id", "address"],
                ),
                "intent": _NAME,
                "replaces": _NAME,
                "summary": {"type": "string", "maxLength": 2000},
                "evidence": {"type": "array", "maxItems": 50, "items": _EVIDENCE},
            },
            ["task_id", "inputs"],
        ),
    ),
    _tool(
        "commit",
        "Update a customer's address: commit a plan that its dry run made. Writes exactly what was planned, once.",
        _closed({"plan_id": _TEXT, "input_fingerprint": _TEXT}, ["plan_id", "input_fingerprint"]),
        _closed(
            {
                "plan_token": {"type": "string", "minLength": 1, "maxLength": 4096},
                "input_fingerprint": _FINGERPRINT,
                "plan_id": _NAME,
            },
            ["plan_token", "input_fingerprint"],
            dependentRequired={"plan_token": ["plan_id"]},
        ),
    ),
]
"""As a desk publishes them: the same schemas but for the words for people."""
