"""The clock of notifications: Celery tasks that sweep rows. None takes an argument."""

from collections.abc import Callable
from typing import cast

from celery import shared_task

from reviewer.notifications.finding import find_news, forget_old
from reviewer.notifications.sending import send_due

Sweep = Callable[[], int]


def clocked(name: str) -> Callable[[Sweep], Sweep]:
    """Make a sweep a Celery task under this name, with the type it had before."""
    return cast("Callable[[Sweep], Sweep]", shared_task(name=name, ignore_result=True))


@clocked("notifications.find")
def find() -> int:
    """Write down who is to hear of what."""
    return find_news()


@clocked("notifications.send")
def send() -> int:
    """Send what is due."""
    return send_due()


@clocked("notifications.forget")
def forget() -> int:
    """Forget what ended long ago."""
    return forget_old()
