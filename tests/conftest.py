"""What every test stands on: a real PostgreSQL and Redis of its own, the restricted role, real HTTP, a real browser."""

import os

import django
import pytest

from tests.early import ground as _ground
from tests.ground import Ground

django.setup()

pytest_plugins = ["tests.fixtures", "tests.stub_target"]


def pytest_configure(config: pytest.Config) -> None:
    """With xdist the controller starts the servers before its workers; else the first test that needs them does."""
    is_controller = bool(getattr(config.option, "numprocesses", None)) and "PYTEST_XDIST_WORKER" not in os.environ
    if is_controller:
        _ground.start()


def pytest_unconfigure(config: pytest.Config) -> None:
    _ground.stop()


@pytest.fixture(scope="session")
def ground() -> Ground:
    """The servers of this run, started."""
    _ground.start()
    return _ground
