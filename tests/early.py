"""Loaded with `-p tests.early`, before pytest-django reads the settings: they come from the environment made here."""

from tests.ground import Ground

ground = Ground.of_this_run()
ground.prepare_environment()
