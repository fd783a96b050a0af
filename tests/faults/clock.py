"""The desk's Celery application with a quicker clock."""

from reviewer.celery import app
from tests.faults.timers import SWEEP_EVERY

for entry in app.conf.beat_schedule.values():
    if entry["schedule"] < 60:
        entry["schedule"], entry["options"]["expires"] = SWEEP_EVERY, SWEEP_EVERY * 2
