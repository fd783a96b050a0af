"""The clock: Celery tasks that sweep rows. None takes an argument, and each may run twice, late, or not at all."""

from collections.abc import Callable
from typing import cast

from celery import shared_task

from plans.abandonment import apply_commit_writes, forget_old
from plans.callbacks import deliver_due
from plans.expiry import expire_due
from plans.reconcile import confirm_received, find_out_unknown
from plans.reconcile import mark_overdue as mark_overdue_claims

Sweep = Callable[[], int]


def clocked(name: str) -> Callable[[Sweep], Sweep]:
    """Make a sweep a Celery task under this name, with the type it had before."""
    return cast("Callable[[Sweep], Sweep]", shared_task(name=name, ignore_result=True))


@clocked("plans.sweep_expiry")
def sweep_expiry() -> int:
    """Expire what is due."""
    return expire_due()


@clocked("plans.mark_overdue")
def mark_overdue() -> int:
    """Call claims that never settled unknown."""
    return mark_overdue_claims()


@clocked("plans.find_out_unknown")
def find_out() -> int:
    """Find out unknown outcomes."""
    return find_out_unknown()


@clocked("plans.confirm_received")
def confirm() -> int:
    """Ask targets about plans that agents fed."""
    return confirm_received()


@clocked("plans.deliver_callbacks")
def deliver() -> int:
    """Tell agents what there is to tell."""
    return deliver_due()


@clocked("plans.sweep_abandonments")
def sweep_abandonments() -> int:
    """Hold commits against older plans, and forget what was kept for 7 days."""
    return apply_commit_writes() + forget_old()
