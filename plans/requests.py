"""What several doors take in the same way: reasons, written targets, instants."""

from datetime import datetime

from msgspec import UnsetType

from plans import clock
from plans.errors import Invalid
from plans.instants import parse_instant
from plans.schema import MAX_ACTION_TARGET, MAX_WRITTEN_TARGETS
from plans.states import AGENT_REASONS, AbandonReason


def abandon_reason(text: str, at: str) -> AbandonReason:
    """A reason that an agent may give. Raises 422 for any other."""
    known = {reason.value: reason for reason in AGENT_REASONS}
    if text not in known:
        raise Invalid("This is not a reason to abandon a plan.", [(at, f"must be one of {', '.join(sorted(known))}")])
    return known[text]


def written_targets(targets: list[str], at: str) -> list[str]:
    """The records that a write touched: 1 to 1,000 texts of 1 to 512 characters. Raises 422."""
    if not 1 <= len(targets) <= MAX_WRITTEN_TARGETS:
        raise Invalid("Say what was written.", [(at, f"must hold 1 to {MAX_WRITTEN_TARGETS} names")])
    errors = [
        (f"{at}/{place}", f"must be 1 to {MAX_ACTION_TARGET} characters and not blank")
        for place, target in enumerate(targets)
        if not target.strip() or len(target) > MAX_ACTION_TARGET
    ]
    if errors:
        raise Invalid("A written record has no usable name.", errors)
    return targets


def written_at(text: str | UnsetType, at: str) -> datetime | None:
    """When a write happened, where it is said. Raises 422 for anything but an instant that has come."""
    if isinstance(text, UnsetType):
        return None
    try:
        moment = parse_instant(text)
    except ValueError as error:
        raise Invalid("This is not an instant.", [(at, str(error))]) from None
    if moment > clock.now():
        raise Invalid("A write can't be in the future.", [(at, "must not be in the future")])
    return moment
