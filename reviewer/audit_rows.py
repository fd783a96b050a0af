"""Events as auditors read them: in a few words, as facts, and as the record that is proven."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from audit.api import answer_event
from audit.kinds import Kind
from audit.queries import EventRow
from reviewer.moments import Clock, Moment
from reviewer.story import what_of
from reviewer.words import Badge, badge_of

Told = Mapping[str, msgspec.Raw]


@dataclass(frozen=True, slots=True)
class Line:
    """An event in a table: formatted once, so that templates only print."""

    id: str
    kind: str
    what: str
    brief: str
    at: Moment
    who: str
    actor: str
    badge: Badge | None
    plan_id: str
    story_url: str
    url: str
    facts: list[tuple[str, str]]
    record: list[tuple[int, str]]
    is_erased: bool
    index: int | None


_STATES: Final = {
    Kind.COMMIT_SUCCEEDED.value: "committed",
    Kind.COMMIT_CONFLICTED.value: "conflicted",
    Kind.COMMIT_UNKNOWN.value: "unknown",
    Kind.COMMIT_REFUSED.value: "refused",
    Kind.PLAN_REFUSED.value: "refused",
    Kind.PLAN_REJECTED.value: "rejected",
}
_KINDS: Final[dict[str, Any]] = {
    Kind.FEED_REFUSED: gettext_lazy("Feed held no valid plan"),
    Kind.COMMIT_NEVER_PLANNED: gettext_lazy("Commit of what was never planned"),
    Kind.COMMIT_KEY_REUSED: gettext_lazy("Key used for something else"),
    Kind.COMMIT_FINGERPRINT_MISMATCHED: gettext_lazy("Commit with another fingerprint"),
    Kind.WRITE_OBSERVED: gettext_lazy("Agent wrote elsewhere"),
    Kind.TASK_ENDED: gettext_lazy("Task ended"),
    Kind.WEBHOOK_REJECTED: gettext_lazy("Webhook rejected"),
    Kind.LOGIN_SUCCEEDED: gettext_lazy("Signed in"),
    Kind.LOGIN_FAILED: gettext_lazy("Sign-in failed"),
    Kind.AGENT_CHANGED: gettext_lazy("Agent changed"),
    Kind.TARGET_CHANGED: gettext_lazy("Target changed"),
    Kind.POLICY_CHANGED: gettext_lazy("Policy changed"),
    Kind.PERSON_CHANGED: gettext_lazy("Person changed"),
    Kind.AUDIT_READ: gettext_lazy("Log read"),
    Kind.AUDIT_EXPORTED: gettext_lazy("Log exported"),
    Kind.AUDIT_VERIFIED: gettext_lazy("Log verified"),
    Kind.AUDIT_ERASED: gettext_lazy("Payloads erased"),
    Kind.AUDIT_DISPOSED: gettext_lazy("Events disposed of"),
    Kind.AUDIT_HELD: gettext_lazy("Legal hold"),
    Kind.LOG_CHANGED: gettext_lazy("Log changed"),
}
# Members that say most, the first that is there wins.
_SAYING: Final = ("reason", "detail", "change", "how", "code", "email", "callback", "via")


def words_of(kind: str) -> str:
    """A kind of event in a few words."""
    return str(_KINDS[kind]) if kind in _KINDS else what_of(kind)


def line_of(event: EventRow, clock: Clock) -> Line:
    at = clock.at(event.at, exact=True)
    assert at is not None
    told = told_by(event)
    return Line(
        id=event.id,
        kind=event.kind,
        what=words_of(event.kind),
        brief=brief_of(event, told),
        at=at,
        who=event.actor_name or event.actor_id,
        actor=f"{event.actor_type}:{event.actor_id}",
        badge=_badge(event, told),
        plan_id=event.plan_id or "",
        story_url=story_url_of(event),
        url=reverse("audit-event", args=[event.id]),
        facts=facts_of(event),
        record=record_of(event),
        is_erased=event.is_erased,
        index=event.index,
    )


def story_url_of(event: EventRow) -> str:
    if not (event.agent and event.target and event.plan_id):
        return ""
    return reverse("audit-story", args=[event.agent, event.target, event.plan_id])


def told_by(event: EventRow) -> Told:
    """The members of what the event says, each as it is spelled; none once it is erased."""
    try:
        return msgspec.json.decode(event.data or "{}", type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return {}


def text_in(told: Told, name: str) -> str:
    """A member as text: a text without its quotation marks, anything else as it is spelled; "" where there is none."""
    if name not in told:
        return ""
    raw = bytes(told[name]).decode()
    return "" if raw == "null" else _plain(raw)


def _plain(raw: str) -> str:
    if not raw.startswith('"'):
        return raw
    try:
        return str(json.loads(raw))
    except ValueError:
        return raw


def brief_of(event: EventRow, told: Told) -> str:
    """What the event says, in one line; the record has all of it."""
    if event.is_erased:
        return _("erased")
    match event.kind:
        case Kind.COMMIT_CONFLICTED:
            changed = changed_in(told)
            return "; ".join(_changed(*one) for one in changed[:2]) + (
                _(" and %(count)d more") % {"count": len(changed) - 2} if len(changed) > 2 else ""
            )
        case Kind.PLAN_RECEIVED:
            return _planned(told)
        case Kind.POLICY_CHANGED:
            return _policy(told)
        case Kind.PLAN_APPROVED:
            return _("digest %(digest)s") % {"digest": text_in(told, "digest")[:16]}
        case Kind.COMMIT_RESOLVED:
            return f"{_how(text_in(told, 'how'))}: {text_in(told, 'state')}"
        case Kind.PERSON_CHANGED:
            return f"{text_in(told, 'email')}: {text_in(told, 'change')}"
        case Kind.AGENT_CHANGED | Kind.TARGET_CHANGED | Kind.LOG_CHANGED if "change" in told:
            name = event.agent or event.target or text_in(told, "stream")
            return f"{name}: {text_in(told, 'change')}" if name else text_in(told, "change")
        case Kind.AUDIT_READ:
            return _read(told)
        case Kind.AUDIT_EXPORTED:
            count = text_in(told, "rows")
            many = int(count) if count.isdecimal() else 0
            rows = ngettext("%(count)s event as %(form)s", "%(count)s events as %(form)s", many) % {
                "count": count,
                "form": text_in(told, "format"),
            }
            return f"{rows}: {_filters(told)}"
    return next((text for name in _SAYING if (text := text_in(told, name))), "")


def _planned(told: Told) -> str:
    """The plan's first action, and how many more there are."""
    try:
        actions = msgspec.json.decode(told.get("actions", msgspec.Raw(b"[]")), type=list[dict[str, msgspec.Raw]])
    except msgspec.DecodeError:
        return ""
    if not actions:
        return ""
    first = " ".join(text for name in ("op", "target", "field") if (text := text_in(actions[0], name)))
    return first + (_(" and %(count)d more") % {"count": len(actions) - 1} if len(actions) > 1 else "")


def _policy(told: Told) -> str:
    """What the new version changes, from and to."""
    changes = []
    for name, raw in told.items():
        if name != "version" and bytes(raw).startswith(b"{"):
            change = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
            changes.append(f"{name} {text_in(change, 'from') or '-'} → {text_in(change, 'to') or '-'}")
    return _("version %(version)s: %(changes)s") % {"version": text_in(told, "version"), "changes": ", ".join(changes)}


def _read(told: Told) -> str:
    """What was read of the log: a search by its filters, anything else by its name."""
    if "charts" in told:
        return _("charts: %(filters)s") % {"filters": _filters(told)}
    if "filters" in told:
        return _filters(told)
    return next((f"{name}: {text_in(told, name)}" for name in told if name != "via"), "")


def _filters(told: Told) -> str:
    try:
        given = msgspec.json.decode(told.get("filters", msgspec.Raw(b"{}")), type=dict[str, str | list[str]])
    except msgspec.DecodeError:
        return text_in(told, "filters")
    pairs = (f"{name}:{value if isinstance(value, str) else ','.join(value)}" for name, value in given.items())
    return " ".join(pairs) or _("everything")


def _how(how: str) -> str:
    found = {
        "answer": _("answer to the same key"),
        "state": _("state at the target"),
        "person": _("settled by hand"),
        "unsent": _("nothing was sent, and its time was up"),
    }
    return found.get(how, how)


def _changed(record: str, field: str, planned: str, current: str) -> str:
    where = f"{record} {field}".strip() or _("not told what")
    if not current:
        return where
    return _("%(where)s: planned %(planned)s, found %(current)s") % {
        "where": where,
        "planned": planned or "?",
        "current": current,
    }


def changed_in(told: Told) -> list[tuple[str, str, str, str]]:
    """What moved, of a conflict: record, field, value when planned and now, values as they are spelled."""
    try:
        entries = msgspec.json.decode(told.get("changed", msgspec.Raw(b"[]")), type=list[dict[str, msgspec.Raw]])
    except msgspec.DecodeError:
        return []
    return [
        (text_in(entry, "target"), text_in(entry, "field"), _spelled(entry, "planned"), _spelled(entry, "current"))
        for entry in entries
    ]


def _spelled(entry: Told, name: str) -> str:
    return bytes(entry[name]).decode() if name in entry else ""


def _badge(event: EventRow, told: Told) -> Badge | None:
    if event.kind == Kind.PLAN_ABANDONED:
        try:
            return badge_of("abandoned", text_in(told, "reason"))
        except ValueError:
            return badge_of("abandoned")
    return badge_of(_STATES[event.kind]) if event.kind in _STATES else None


def facts_of(event: EventRow) -> list[tuple[str, str]]:
    """The event's members that are set, by the names of the API: without what it says."""
    members = [
        ("id", event.id), ("actor", f"{event.actor_type}:{event.actor_id}"), ("on_behalf_of", event.on_behalf_of),
        ("agent", event.agent), ("target", event.target), ("plan_id", event.plan_id),
        ("plan_seq", event.plan_seq), ("operation", event.operation), ("task_id", event.task_id),
        ("request_id", event.request_id), ("index", event.index),
    ]  # fmt: skip
    return [(name, str(value)) for name, value in members if value is not None]


def record_of(event: EventRow) -> list[tuple[int, str]]:
    """The event as the API gives it, set in lines; every value as it is spelled."""
    return lines_of_json(msgspec.json.encode(answer_event(event)).decode())


_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_MAX_LINES: Final = 2_000
_DEEPEST: Final = 8
"""Members further in are set no further in."""


def lines_of_json(text: str) -> list[tuple[int, str]]:
    """JSON text with one member a line: (depth, line). Only blanks between tokens change; values stay as spelled."""
    lines: list[tuple[int, str]] = []
    depth, line, before = 0, "", ""
    for mark in _TOKEN.findall(text):
        if mark in ("}", "]"):
            depth -= 1
            if before not in ("{", "["):
                lines.append((min(depth + 1, _DEEPEST), line))
                line = ""
        elif before in ("{", "[") or before == ",":
            lines.append((min(depth - (before != ","), _DEEPEST), line))
            line = ""
        if mark in ("{", "["):
            depth += 1
        line += f"{mark} " if mark == ":" else mark
        before = mark
    lines.append((0, line))
    return lines if len(lines) <= _MAX_LINES else [(0, text)]
