"""Drive an agent through the scenarios: one process a turn, which its environment tells where and what."""

import json
import os
import secrets
import signal
import subprocess
import tempfile
import time
from collections.abc import Collection, Sequence
from typing import IO, Final

from plans.conformance.config import ConfigError
from plans.conformance.evidence import Seen, Turn
from plans.conformance.judge import judge
from plans.conformance.report import Result
from plans.conformance.scenarios import SCENARIOS, Scenario, make_task
from plans.conformance.scripted import Script
from plans.conformance.wire import serving

TURN_SECONDS: Final = 60.0
MAX_OUTPUT: Final = 4 * 1024 * 1024
"""Bytes of an agent's output that are looked through for secrets, of each turn and stream."""


def try_agent(command: Sequence[str], only: Collection[str] = (), seconds: float = TURN_SECONDS) -> list[Result]:
    """What became of each rule over all scenarios (`only`: over these). Raises ConfigError where it cannot be run.

    Each turn may take `seconds`; then it is killed, with what it started.
    """
    started = time.monotonic()
    seen = [drive(command, one, seconds) for one in SCENARIOS if not only or one.name in only]
    return judge(seen, time.monotonic() - started)


def drive(command: Sequence[str], scenario: Scenario, seconds: float = TURN_SECONDS) -> Seen:
    """Runs the agent through one scenario, with a desk, a folder and keys that are this scenario's alone."""
    script, turns = Script(scenario), []
    with tempfile.TemporaryDirectory(prefix="plandesk-agent-") as folder, serving(script) as (url, heard):
        for turn in range(len(scenario.turns)):
            script.turn = turn
            task_id = f"{scenario.name}-{turn + 1}-{secrets.token_hex(4)}"
            environment = {
                **os.environ,
                "DESK": url,
                "DESK_API_KEY": script.api_key,
                "DESK_AGENT": script.agent,
                "DESK_WEBHOOK_SECRET": script.webhook_secret.reveal(),
                "DESK_TASK": json.dumps(make_task(scenario, turn, task_id, url)),
                "DESK_STATE": folder,
            }
            turns.append(_run(command, environment, task_id, seconds))
        script.advance()
        return Seen(scenario, script, list(heard), turns)


def _run(command: Sequence[str], environment: dict[str, str], task_id: str, seconds: float) -> Turn:
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                list(command), env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise ConfigError(f"The agent cannot be started: {error}") from None
        status = None
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            if status is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return Turn(task_id, status, _text(output))


def _text(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read(MAX_OUTPUT).decode(errors="replace")
