"""The words of a message: facts of the desk's own (names, counts, instants), no word that an agent wrote freely."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from plans.models import Plan
from reviewer import words
from reviewer.models import Person
from reviewer.moments import Clock
from reviewer.notifications.models import Notice
from reviewer.notifications.occasions import URGENCY, Occasion

PUSH_LINES: Final = 3


@dataclass(frozen=True, slots=True)
class Line:
    """One plan in a message."""

    occasion: Occasion
    what: str  # "Waits for a decision"
    plan: str  # "limit.update on ledger, 1 change"
    until: str  # "Expires 2026-03-14 09:41:12 UTC (10:41 Berlin)"; empty where nothing expires any more
    on_behalf: str  # "You stand in for Mara."
    url: str


@dataclass(frozen=True, slots=True)
class Text:
    """One message, in its reader's language and zone. `path` is the page it leads to."""

    subject: str
    lines: tuple[Line, ...]
    footer: str
    path: str

    @property
    def plain(self) -> str:
        """As plain text: what mail and chat services get."""
        blocks = [
            "\n".join(part for part in (line.what + ": " + line.plan, line.until, line.on_behalf, line.url) if part)
            for line in self.lines
        ]
        return "\n\n".join([*blocks, self.footer])

    @property
    def html(self) -> str:
        """As HTML, for mail."""
        return render_to_string("notifications/mail.html", {"text": self})

    @property
    def short(self) -> str:
        """A few lines, for the screen of a phone: the plans, without addresses."""
        lines = [
            f"{line.plan}. {line.until}".strip() if len(self.lines) == 1 else f"{line.what}: {line.plan}"
            for line in self.lines[:PUSH_LINES]
        ]
        left = len(self.lines) - PUSH_LINES
        if left > 0:
            lines.append(ngettext("and %(count)d more", "and %(count)d more", left) % {"count": left})
        return "\n".join(lines) or self.footer


def text_of(person: Person, notices: Sequence[Notice], now: datetime) -> Text:
    """The message that tells `person` of these notices (at least one), each plan once, by its most urgent occasion.

    The notices bring their plan with agent, target and abandonment, and `action_count` of the plan.
    """
    with translation.override(settings.LANGUAGE_CODE):
        clock = Clock(now, person.time_zone)
        first: dict[int, Notice] = {}
        for notice in sorted(
            notices, key=lambda one: (URGENCY.index(Occasion(one.occasion)), one.plan.expires_at, one.pk)
        ):
            first.setdefault(notice.plan_id, notice)
        lines = tuple(_line(notice, clock) for notice in first.values())
        return Text(_subject(lines), lines, _footer(), _path(lines))


def test_text() -> Text:
    """The message of the button that tests a channel."""
    with translation.override(settings.LANGUAGE_CODE):
        return Text(_("Plandesk: this is a test"), (), _footer(), reverse("notifications"))


def page(path: str) -> str:
    """A page of the desk as people reach it."""
    return f"{settings.BASE_URL}{path}"


def instant(at: datetime, clock: Clock) -> str:
    """An absolute instant: day and second in UTC, and the reader's own time beside it."""
    moment = clock.at(at)
    local = f" ({moment.local})" if moment and moment.local else ""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC{local}"


def _line(notice: Notice, clock: Clock) -> Line:
    plan, occasion = notice.plan, Occasion(notice.occasion)
    facts = {
        "operation": plan.operation,
        "target": plan.target.name,
        "changes": words.changes(getattr(plan, "action_count", 1)),
    }
    on_behalf = (
        _("You stand in for %(person)s.") % {"person": one_line(str(notice.for_person))} if notice.for_person else ""
    )
    return Line(
        occasion=occasion,
        what=_what(occasion, plan),
        plan=_("%(operation)s on %(target)s, %(changes)s") % facts,
        until=_until(occasion, plan, clock),
        on_behalf=on_behalf,
        url=page(_path_of(plan)),
    )


def _what(occasion: Occasion, plan: Plan) -> str:
    match occasion:
        case Occasion.WAITING:
            return _("Waits for a decision")
        case Occasion.SOON:
            return _("Expires soon, waits for a decision")
        case Occasion.ESCALATED:
            return _("Expires soon, and nobody has decided")
        case Occasion.UNDECIDABLE:
            return _("Too few people may decide it")
        case Occasion.UNKNOWN:
            return _("Outcome unknown")
        case Occasion.ENDED:
            abandonment = getattr(plan, "abandonment", None)
            return words.badge_of(plan.state, abandonment.reason if abandonment else "").text


def _until(occasion: Occasion, plan: Plan, clock: Clock) -> str:
    if occasion is Occasion.ENDED:
        return _("Ended %(instant)s") % {"instant": instant(plan.state_changed_at, clock)}
    if occasion is Occasion.UNKNOWN:
        return _("Unknown since %(instant)s") % {"instant": instant(plan.unknown_since or plan.state_changed_at, clock)}
    return _("Expires %(instant)s") % {"instant": instant(plan.expires_at, clock)}


def _subject(lines: Sequence[Line]) -> str:
    if len(lines) == 1:
        return f"{lines[0].what}: {lines[0].plan}"
    urgent = ngettext("%(count)d plan", "%(count)d plans", len(lines)) % {"count": len(lines)}
    kinds = list(dict.fromkeys(line.what for line in lines))
    return f"Plandesk: {urgent} ({', '.join(kinds[:3])}{', …' if len(kinds) > 3 else ''})"


def _footer() -> str:
    where = page(reverse("notifications"))
    desk = urlsplit(settings.BASE_URL).hostname
    return _("Decisions are made on the page only. What %(desk)s tells you: %(url)s") % {"desk": desk, "url": where}


def _path(lines: Sequence[Line]) -> str:
    return lines[0].url.removeprefix(settings.BASE_URL) if len(lines) == 1 else reverse("inbox")


def _path_of(plan: Plan) -> str:
    return reverse("plan", args=(plan.agent.name, plan.target.name, plan.plan_id))


def one_line(text: str) -> str:
    """A name without anything that could break a line or a header."""
    return "".join(character if character.isprintable() else " " for character in text)[:100]
