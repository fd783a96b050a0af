"""The settings for tools that read the code and touch no installation: types, `makemigrations --check`."""

import os

os.environ["PLANDESK_OFFLINE"] = "1"

from reviewer.settings import *  # noqa: F403
