"""The named steps at which a test may break the engine. In an installation nothing listens."""

from collections.abc import Callable
from typing import cast

from django.conf import settings

Hook = Callable[[str, int], None]


def listens(step: str) -> bool:
    """Whether somebody wants to hear of this step: then what may go in one statement has to go step by step."""
    hook = settings.FAULT_HOOK
    return hook is not None and bool(getattr(hook, "listens", lambda _: True)(step))


def reach(step: str, plan_pk: int) -> None:
    """Tell whoever breaks things on purpose that this process is at `step` of a plan; may not return.

    Does nothing unless `settings.FAULT_HOOK` is a callable, which the settings of an installation hold as None and
    read from nowhere.
    """
    if settings.FAULT_HOOK is not None:
        cast("Hook", settings.FAULT_HOOK)(step, plan_pk)
