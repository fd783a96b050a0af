"""How far the desk's timers are shortened for a run: real value, and what it is here."""

from datetime import timedelta

SETTINGS = {
    "COMMIT_TIMEOUT": timedelta(seconds=3),  # 30 s
    "CLAIM_OVERDUE_AFTER": timedelta(seconds=5),  # 45 s
    "STATE_TRUSTED_AFTER": timedelta(seconds=6),  # 60 s
    "LOCK_WAIT": timedelta(seconds=2),  # 10 s
}
RECONCILE = {
    "LEASE": timedelta(seconds=4),  # 1 min
    "SOON": timedelta(seconds=1),  # 5 s
    "SLOWEST": timedelta(seconds=3),  # 5 min
    "AFTER_EXPIRY": timedelta(seconds=1),  # 10 s
}
FIRST_CHECK_AFTER = timedelta(seconds=1)  # 2 s
SWEEP_EVERY = 3.0  # 5 s
LIVES = (12.0, 30.0)  # a plan's lifetime in seconds, drawn by seed; 600 unless told

PAUSE = 11.0
"""A paused process sleeps past claim (5 s) and lease (4 s) before it goes on."""

RECOVERED_WITHIN = 25.0
"""Claim overdue, lease, slowest pause and sweep come to 13 s; the rest is for a busy machine."""
