"""What a body holds, whoever sent it."""

import json
from typing import Any


def members_of(body: bytes) -> dict[str, Any]:
    """The JSON object in a body, or nothing."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
