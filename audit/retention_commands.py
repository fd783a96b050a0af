"""`manage.py audit erase|hold|release|dispose|retention`: what only the log's owner may do, dry run first."""

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import UUID

from audit.erasure import ErasureRefused, erase, find_erasable
from audit.filters import FilterError, Filters, parse_search
from audit.recording import Actor
from audit.retention import Rule, dispose, find_due, find_holds, find_rules, place_hold, release_hold, set_rule

FILTERS: Final = ("agent", "target", "plan_id", "operation", "task_id", "actor", "from", "to", "q")
WHY: Final = {"held": "under a legal hold", "minimum": "before their time", "log": "telling of the log itself"}

Answer = tuple[dict[str, Any], str]
"""One JSON document, and the same for a person."""


def add_actions(actions: Any) -> None:
    """The five actions as subcommands of `manage.py audit`."""
    erase_ = _action(actions, "erase", "erase payloads (a person's right); without --confirm a dry run")
    _add_filters(erase_)
    erase_.add_argument("--event", action="append", default=[], metavar="ID", help="this event; may be repeated")
    erase_.add_argument("--reason", default="", help="why; kept in the log for good: name nobody")
    erase_.add_argument("--confirm", metavar="FINGERPRINT", help="what the dry run printed: erase exactly that")

    dispose_ = _action(actions, "dispose", "dispose of what the rules let go; without --confirm a dry run")
    dispose_.add_argument("--confirm", metavar="FINGERPRINT", help="what the dry run printed: dispose of exactly that")

    hold = _action(actions, "hold", "place a legal hold on what matches, now and later; without a name: list them")
    hold.add_argument("name", nargs="?", help="by which it is released")
    _add_filters(hold)
    hold.add_argument("--reason", default="", help="why; kept in the log for good: name nobody")

    release = _action(actions, "release", "release a legal hold")
    release.add_argument("name")
    release.add_argument("--reason", default="", help="why; kept in the log for good: name nobody")

    rule = _action(actions, "retention", "set the rule of a kind; without a kind: list the rules")
    rule.add_argument("of_kind", nargs="?", metavar="KIND", help="* for every kind without a rule of its own")
    rule.add_argument(
        "--minimum", type=int, metavar="DAYS", help="a payload stays so long at least; a rule is set whole"
    )
    rule.add_argument("--dispose-after", type=int, metavar="DAYS", help="then it is due (default: never)")
    rule.add_argument("--reason", default="", help="why; kept in the log for good: name nobody")


def _action(actions: Any, name: str, summary: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=summary, description=summary.capitalize() + ".")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def _add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kind", action="append", default=[], help="may be repeated")
    for name in FILTERS:
        parser.add_argument(f"--{name.replace('_', '-')}", dest=f"filter_{name}", metavar="VALUE")


def _filters(options: Mapping[str, Any]) -> Filters:
    given = {name: [options[f"filter_{name}"]] for name in FILTERS if options[f"filter_{name}"] is not None}
    if options["kind"]:
        given["kind"] = options["kind"]
    return parse_search(given.items()).filters


def _told(kept: Mapping[str, int]) -> str:
    return "".join(f" {count} must stay, {WHY[why]}." for why, count in sorted(kept.items()))


def _told_copies(count: int) -> str:
    return f" {count} exports begun before were thrown away." if count else ""


def _erase(options: Mapping[str, Any], actor: Actor) -> Answer:
    filters = _filters(options)
    try:
        ids = [UUID(text) for text in options["event"]]
    except ValueError:
        raise FilterError("An event is named by its id, as in 0195a5d3-5b1c-7c3e-8f21-1c6f0a9b2d4e.") from None
    is_done = options["confirm"] is not None
    if is_done:
        found = erase(filters, ids, fingerprint=options["confirm"], reason=options["reason"], actor=actor)
    else:
        found = find_erasable(filters, ids)
    document = {"payloads": len(found.ids), "kinds": dict(found.kinds), "kept": dict(found.kept)}
    if is_done:
        document["copies"] = found.copies
        text = f"{len(found.ids)} payloads erased.{_told_copies(found.copies)}{_told(found.kept)}"
    else:
        text = "\n".join([
            f"{len(found.ids)} payloads would be erased, and every export that is kept with them.{_told(found.kept)}",
            *(f"  {kind}: {count}" for kind, count in sorted(found.kinds.items())),
            f"To erase exactly these: the same command with --reason WHY --confirm {found.fingerprint}",
        ])  # fmt: skip
    return {"erased": is_done, **document, "fingerprint": found.fingerprint}, text


def _dispose(options: Mapping[str, Any], actor: Actor) -> Answer:
    if options["confirm"] is not None:
        done, copies = dispose(options["confirm"], actor=actor)
        document = {"disposed": True, "payloads": done, "copies": copies}
        return document, f"{done} payloads disposed of.{_told_copies(copies)}"
    due = find_due()
    lines = [f"{due.count} payloads are due.{_told(due.kept)}", *(f"  {kind}: {n}" for kind, n in due.kinds.items())]
    lines.append(f"To dispose of exactly these: manage.py audit dispose --confirm {due.fingerprint}")
    told = {"payloads": due.count, "kinds": dict(due.kinds), "kept": dict(due.kept), "fingerprint": due.fingerprint}
    return {"disposed": False, **told}, "\n".join(lines)


def _hold(options: Mapping[str, Any], actor: Actor) -> Answer:
    if options["name"] is None:
        holds = [(hold.name, hold.reason, dict(hold.covers)) for hold in find_holds()]
        lines = [
            f"{name}: {reason} ({json.dumps(covers) if covers else 'everything'})" for name, reason, covers in holds
        ]
        document = [{"name": name, "reason": reason, "covers": covers} for name, reason, covers in holds]
        return {"holds": document}, "\n".join(lines) or "No hold is in force."
    place_hold(options["name"], _filters(options), reason=options["reason"], actor=actor)
    return {"hold": options["name"], "placed": True}, f"The hold {options['name']} is in force."


def _release(options: Mapping[str, Any], actor: Actor) -> Answer:
    release_hold(options["name"], reason=options["reason"], actor=actor)
    return {"hold": options["name"], "placed": False}, f"The hold {options['name']} is released."


def _retention(options: Mapping[str, Any], actor: Actor) -> Answer:
    if options["of_kind"] is not None:
        if options["minimum"] is None:
            raise ErasureRefused("Say --minimum DAYS, too: a rule is set whole, and a shorter minimum lets more go.")
        rule = Rule(options["of_kind"], options["minimum"], options["dispose_after"])
        set_rule(rule, reason=options["reason"], actor=actor)
    rules = find_rules()
    document = [
        {"kind": rule.kind, "minimum_days": rule.minimum_days, "dispose_after_days": rule.dispose_after_days}
        for rule in rules
    ]
    lines = [
        f"{rule.kind}: at least {rule.minimum_days} days, "
        + ("then kept" if rule.dispose_after_days is None else f"due after {rule.dispose_after_days}")
        for rule in rules
    ]
    return {"rules": document}, "\n".join(lines) or "There is no rule: every payload stays."


ACTIONS: Final[Mapping[str, Callable[[Mapping[str, Any], Actor], Answer]]] = {
    "erase": _erase,
    "dispose": _dispose,
    "hold": _hold,
    "release": _release,
    "retention": _retention,
}
