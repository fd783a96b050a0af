"""The desk's settings with a hook at the named points and short timers. Only the harness starts anything with them."""

import os

from reviewer.settings import *  # noqa: F403
from tests.faults import timers
from tests.faults.hook import reach

FAULT_HOOK = reach if os.environ.get("FAULTS_CONTROL") else None
INSTALLED_APPS = [*INSTALLED_APPS, "tests.faults.apps.FaultsConfig"]  # noqa: F405
globals().update(timers.SETTINGS)
if FAULT_HOOK is None:  # the harness itself: on a busy machine a connection may take longer than the product waits
    DATABASES["default"]["OPTIONS"]["connect_timeout"] = 60  # noqa: F405
