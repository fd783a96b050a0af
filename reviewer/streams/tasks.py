"""The clock of the streams: it takes no argument, and may run twice, late, or not at all."""

from celery import shared_task

from reviewer.streams.sending import send_due


@shared_task(name="streams.send", ignore_result=True)  # type: ignore[untyped-decorator]  # celery has no types
def send() -> int:
    """One turn of every destination that is due."""
    return send_due()
