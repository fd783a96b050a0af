"""What tests of the reviewers' site share."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ground import free_port
from tests.reviewer.ups import Up


@pytest.fixture
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="plandesk-up-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def start_up(folder: Path) -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def start(*arguments: str, **environ: str) -> Up:
        started.append(Up(folder / "data", free_port(), *arguments, **environ))
        return started[-1]

    yield start
    for up in started:
        if up.process.poll() is None:
            up.stop()
