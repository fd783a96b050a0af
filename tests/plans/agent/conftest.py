"""A scripted desk, a store, and an agent that is not patient."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from plans.agent import Desk, FileStore, Pace
from tests.plans.agent.scripted_desk import AGENT, API_KEY, ScriptedDesk, serving

PACE = Pace(patience=0.8, attempt=2.0, farewell=0.8, first_delay=0.01, longest_delay=0.1)


@pytest.fixture
def server() -> ScriptedDesk:
    return ScriptedDesk()


@pytest.fixture
def base_url(server: ScriptedDesk) -> Iterator[str]:
    with serving(server) as url:
        yield url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "agent"


@pytest.fixture
def desk(server: ScriptedDesk, base_url: str, folder: Path) -> Iterator[Desk]:
    with make_desk(server, base_url, folder) as desk:
        yield desk


def make_desk(server: ScriptedDesk, base_url: str, folder: Path, pace: Pace = PACE) -> Desk:
    """Another process's view of the same desk and store, as good as a restart."""
    secret = server.secret.reveal()
    return Desk(base_url, API_KEY, agent=AGENT, webhook_secret=secret, store=FileStore(folder), pace=pace)
