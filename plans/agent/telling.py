"""Tell the desk what is not a plan: an agent's write, an abandonment, a task's end. Kept until it has been told."""

import logging
import warnings
from datetime import timedelta
from typing import Final

import msgspec

from plans.agent.errors import UntoldWarning
from plans.agent.http import Answer, NoAnswer
from plans.agent.json_text import compose
from plans.agent.kept import Untold
from plans.agent.line import FINAL, Line, Patience
from plans.agent.secrets import Secret
from plans.instants import format_instant_exact, parse_instant

log = logging.getLogger("plans.agent")

RESEND_TIMEOUT: Final = 5.0
"""Seconds for one more try at something an earlier call or run could not tell."""

LONGEST_TELLING: Final = timedelta(minutes=2)
"""After this long the process that was telling has been killed."""


def tell(line: Line, kept: Untold, patience: Patience) -> Answer | None:
    """Tells what was kept. None, with a warning, where the desk could not be told: it stays kept.

    Raises DeskError where the desk will never listen to it (and drops it).
    """
    try:
        answer = line.ask_patiently("POST", kept.path, body=kept.body.encode(), patience=patience)
    except BaseException:  # Ctrl-C, on its way out
        line.ledger.give_up(kept)
        raise
    if isinstance(answer, Answer) and 200 <= answer.status < 300:
        line.ledger.drop_untold(kept)
        return answer
    if _is_final(answer):
        line.ledger.drop_untold(kept)
        raise line.error(answer, plan_write="none")
    line.ledger.give_up(kept)
    warn(f"The desk could not be told of the {kept.what}: {_why(answer)}. It is kept, and told when possible.")
    return None


def tell_rest(line: Line, *, is_new_run: bool = False) -> None:
    """Tells what earlier calls, or earlier runs of the store, could not: one try each, oldest first.

    A new run says aloud what it found, told now or not.
    """
    abandoned_before = format_instant_exact(line.clock.earliest() - LONGEST_TELLING)
    for kept in line.ledger.find_untold(before=abandoned_before):
        answer = line.http.ask("POST", kept.path, body=_late(line, kept), timeout=RESEND_TIMEOUT)
        is_told = isinstance(answer, Answer) and 200 <= answer.status < 300
        if is_told or _is_final(answer):
            line.ledger.drop_untold(kept)
        if is_new_run or not is_told:
            now = "it knows now" if is_told else f"it still does not: {_why(answer)}"
            warn(f"The desk had not been told of the {kept.what} (at {kept.at}); {now}.")
        if not is_told and not _is_final(answer):
            return


def warn(text: str) -> None:
    """Says it where a person or a log can see it, whatever the warning filters are."""
    log.warning(text)
    warnings.warn(text, UntoldWarning, stacklevel=3)


def now(line: Line) -> str:
    """The latest that it may be at the desk, as an instant on the wire."""
    return format_instant_exact(line.clock.latest())


def _late(line: Line, kept: Untold) -> Secret:
    """The body as it is told late: a write with its own time, so that plans made since are not held against it.

    Only once that time is surely past: the desk takes none from the future, and its own is right until then.
    """
    if kept.is_write and line.clock.earliest() > parse_instant(kept.at):
        members = msgspec.json.decode(kept.body, type=dict[str, msgspec.Raw])
        return Secret(compose({**members, "at": kept.at}).decode())
    return Secret(kept.body)


def _is_final(answer: Answer | NoAnswer) -> bool:
    return isinstance(answer, Answer) and (answer.status in FINAL or answer.status == 404)


def _why(answer: Answer | NoAnswer) -> str:
    return answer.why if isinstance(answer, NoAnswer) else f"it answered {answer.status} {answer.slug}".rstrip()
