"""The clock of the auditors' jobs: it takes no argument, and may run twice, late, or not at all."""

from celery import shared_task

from reviewer.audit_jobs import run_due_jobs


@shared_task(name="reviewer.run_audit_jobs", ignore_result=True)  # type: ignore[untyped-decorator]  # celery has no types
def run_audit_jobs() -> int:
    """One turn of the exports and verifications that wait."""
    return run_due_jobs()
