"""Questions that auditors ask again and again, each as one exact condition on events; more filters narrow them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from audit.kinds import Kind

FAST: Final = timedelta(seconds=3)
"""An approval this soon after its page was opened says little about what was read."""

# Payloads are written without spaces (audit.canonical), and a quotation mark inside of a text is escaped: these
# members can be found as text, without reading the rest of what may be foreign and large.
_OPENED_AT: Final = """substring(told.body from '"opened_at":"([0-9TZ:.+-]+)"')::timestamptz"""
_TOLD: Final = "EXISTS (SELECT FROM audit_payload told WHERE told.event_id = e.id AND {})"


@dataclass(frozen=True, slots=True)
class Preset:
    """A question under its name in addresses. `condition` is SQL on audit_event `e`, without parameters, or empty."""

    name: str
    kinds: tuple[Kind, ...]
    condition: str = ""


PRESETS: Final = {
    preset.name: preset
    for preset in (
        Preset("planned-not-done", (Kind.PLAN_ABANDONED,)),
        Preset("never-planned", (Kind.COMMIT_NEVER_PLANNED,)),
        Preset("conflicts", (Kind.COMMIT_CONFLICTED,)),
        Preset(
            "fast-approvals",
            (Kind.PLAN_APPROVED,),
            _TOLD.format(f"e.at - {_OPENED_AT} <= interval '{int(FAST.total_seconds())} seconds'"),
        ),
        # An agent's write ends its own pending plans on the same records with this reason; others' are only marked.
        Preset(
            "self-inflicted",
            (Kind.PLAN_ABANDONED,),
            _TOLD.format("""strpos(told.body, ',"data":{"reason":"inputs_changed"') > 0"""),
        ),
        Preset("unknown-outcomes", (Kind.COMMIT_RESOLVED, Kind.COMMIT_UNKNOWN)),
        Preset("deciders", (Kind.AGENT_CHANGED, Kind.PERSON_CHANGED, Kind.POLICY_CHANGED)),
    )
}


def narrow_kinds(preset: Preset, kinds: Sequence[Kind]) -> tuple[Kind, ...]:
    """The preset's kinds, of those asked for where some were; none is no answer (ValueError)."""
    kept = tuple(kind for kind in preset.kinds if not kinds or kind in kinds)
    if not kept:
        raise ValueError(f"The preset {preset.name} is about {', '.join(preset.kinds)}.")
    return tuple(sorted(kept))
