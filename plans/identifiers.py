"""The closed alphabets of the names that callers choose, so that no two of them look alike."""

from __future__ import annotations

import re
from typing import Final

IDENTIFIER: Final = r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}"
"""`plan_id`, `task_id`, `target`, `operation`, `intent`; unanchored, for `re.fullmatch` and URL converters."""

WEBHOOK_ID: Final = r"[A-Za-z0-9_-]{1,128}"
"""The `webhook-id` header. No full stop: one would let the signed text be cut in two ways (Standard Webhooks 1.0)."""

IDEMPOTENCY_KEY: Final = r"[A-Za-z0-9_.:-]{1,255}"
"""The `Idempotency-Key` header, without its quotes."""

# `$` alone also matches before a final line feed in Python, `\Z` is unknown to JSON Schema: this reads alike in both.
IDENTIFIER_PATTERN: Final = rf"^{IDENTIFIER}$(?!\n)"
"""IDENTIFIER anchored, for msgspec's `Meta(pattern=...)` and published schemas."""

_IDENTIFIER = re.compile(IDENTIFIER)
_WEBHOOK_ID = re.compile(WEBHOOK_ID)
_IDEMPOTENCY_KEY = re.compile(IDEMPOTENCY_KEY)


def is_identifier(text: str) -> bool:
    """Whether the text may name a plan, a task, a target, an operation or an intent."""
    return _IDENTIFIER.fullmatch(text) is not None


def is_webhook_id(text: str) -> bool:
    """Whether the text may be a `webhook-id`."""
    return _WEBHOOK_ID.fullmatch(text) is not None


def is_idempotency_key(text: str) -> bool:
    """Whether the text may be an idempotency key (without quotes)."""
    return _IDEMPOTENCY_KEY.fullmatch(text) is not None
