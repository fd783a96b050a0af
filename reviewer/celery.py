"""The clock: periodic sweeps over rows. Tasks take no arguments, so no secret ever lies in a broker."""

import os
import warnings
from typing import Any

from celery import Celery
from celery.platforms import SecurityWarning
from celery.signals import setup_logging, worker_init

from plans import bulkhead

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "reviewer.settings")

# Celery warns of root for pickle's sake; here only JSON is accepted, and tasks take no arguments.
warnings.filterwarnings("ignore", category=SecurityWarning)

app = Celery("plandesk")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.update(
    task_serializer="json",
    accept_content=["json"],
    result_backend=None,
    task_ignore_result=True,
    worker_redirect_stdouts=False,
    timezone="UTC",
    enable_utc=True,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={"visibility_timeout": 300, "socket_connect_timeout": 5, "socket_timeout": 30},
    task_default_queue="plandesk",
)


def every(seconds: int, task: str) -> dict[str, Any]:
    """One entry of the clock; a beat nobody took before the next one is worth nothing, so it expires."""
    return {"task": task, "schedule": float(seconds), "options": {"expires": float(seconds)}}


app.conf.beat_schedule = {
    "sweep expiry": every(5, "plans.sweep_expiry"),
    "mark overdue": every(5, "plans.mark_overdue"),
    "find out unknown": every(5, "plans.find_out_unknown"),
    "sweep abandonments": every(5, "plans.sweep_abandonments"),
    "confirm received plans": every(5, "plans.confirm_received"),
    "deliver callbacks": every(5, "plans.deliver_callbacks"),
    "find whom to tell": every(5, "notifications.find"),
    "tell them": every(5, "notifications.send"),
    "forget old notices": every(3_600, "notifications.forget"),
    "read the log for auditors": every(5, "reviewer.run_audit_jobs"),
    "send the log on": every(5, "streams.send"),
    "keep the log's house": every(86_400, "audit.keep_house"),
}
app.autodiscover_tasks(["plans", "audit", "reviewer", "reviewer.notifications", "reviewer.streams"])


@worker_init.connect  # type: ignore[untyped-decorator]
def _share_threads(sender: Any, **_: Any) -> None:
    """A slow target gets its share of this worker's threads, and the other sweeps the rest."""
    bulkhead.limit_to(sender.concurrency)


@setup_logging.connect  # type: ignore[untyped-decorator]  # celery has no types
def _keep_our_logging(**_: Any) -> None:
    """Django's LOGGING holds for the worker too; connecting here keeps Celery from installing its own."""
