"""One plan as its page shows it: cards of changes, risks, checks, who decides, when what happened. Facts to words."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from plans import changes, policies, spelling
from plans.changes import Card, Value
from plans.models import Plan
from plans.plan_facts import PlanFacts
from plans.states import AbandonReason, State
from reviewer import speed, words
from reviewer.compare import LONG, Span, differing
from reviewer.models import Person
from reviewer.moments import Clock, Moment
from reviewer.rows import changed_at
from reviewer.said import in_words
from reviewer.words import Badge

INDEX_FROM = 4
"""From this many cards on, an index stands above them."""


@dataclass(frozen=True, slots=True)
class RowView:
    """A field of a card. `number` is that of its action, where the card holds several."""

    number: int
    field: str
    before: Value
    after: Value
    before_marks: tuple[Span, ...]
    after_marks: tuple[Span, ...]
    difference: str
    is_before_long: bool
    is_after_long: bool


@dataclass(frozen=True, slots=True)
class CardView:
    """A card as printed. `moved_head` takes the place of `before_head` once a value was found changed; or empty."""

    anchor: int
    number: str
    kind: str
    sign: str
    verb: str
    record: str
    before_head: str
    moved_head: str
    after_head: str
    has_before: bool
    has_after: bool
    rows: list[RowView]
    unchanged: list[RowView]
    flags: list[Badge]
    foot: Badge | None
    is_numbered: bool


@dataclass(frozen=True, slots=True)
class Check:
    """One line of what is known before deciding. `is_good` picks the icon, None: neither; the words say it too."""

    is_good: bool | None
    text: str
    more: str


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether this person may decide now, and what the buttons say. `why_not` is one sentence."""

    is_possible: bool
    why_not: str
    button: str
    after: str
    guard: policies.Guard | None
    nobody_left: bool


def state_of(facts: PlanFacts) -> tuple[str, str]:
    """State and reason that are true by the clock: a pending plan past its expiry is dead, swept or not."""
    abandonment = facts.fact("abandonment")
    if facts.state == State.PENDING and facts.is_past_expiry:
        return State.ABANDONED, AbandonReason.EXPIRED
    return facts.state, abandonment.reason if abandonment else ""


def cards_of(plan: Plan, state: str) -> list[CardView]:
    """Every action of the plan, in the order of writing."""
    return [_card(anchor, card, state) for anchor, card in enumerate(read_cards(plan), 1)]


def read_cards(plan: Plan) -> list[Card]:
    return changes.read_cards(plan.actions, plan.planned_state)


def _card(anchor: int, card: Card, state: str) -> CardView:
    before, after = words.heads_of(card, state)
    return CardView(
        anchor=anchor,
        number=str(card.first) if card.count == 1 else f"{card.first}–{card.last}",
        kind=card.kind,
        sign=words.sign_of(card),
        verb=words.verb_of(card.op),
        record=card.target,
        before_head=before,
        moved_head=words.moved_head_of(card, state),
        after_head=after,
        has_before=card.has_before,
        has_after=card.has_after,
        rows=[_row(row) for row in card.rows],
        unchanged=[_row(row) for row in card.unchanged],
        flags=list(_flags(card)),
        foot=_foot(state),
        is_numbered=card.count > 1,
    )


def _row(row: changes.Row) -> RowView:
    old, new = differing(row)
    return RowView(
        row.number, row.field, row.before, row.after, old, new, row.difference,
        len(row.before.text) > LONG, len(row.after.text) > LONG,
    )  # fmt: skip


def _flags(card: Card) -> Iterator[Badge]:
    if not card.is_reversible:
        yield Badge("bad", "lock", _("Can't be undone"))
    if any(spelling.has_deception(text) for text in _texts(card)):
        yield Badge("warn", "warn", _("Deceptive characters"))


def _texts(card: Card) -> Iterator[str]:
    yield card.target
    for row in card.rows:
        yield row.field
        yield row.before.text
        yield row.after.text


def _foot(state: str) -> Badge | None:
    """What became of a card. A plan is written whole or not at all."""
    match State(state):
        case State.COMMITTED:
            return Badge("ok", "check", _("Written"))
        case State.UNKNOWN:
            return Badge("unk", "question", _("Unknown: it may or may not have been written"))
        case State.PENDING | State.COMMITTING:
            return None
    return Badge("mute", "hold", _("Not written"))


def title_of(cards: list[CardView]) -> tuple[str, str, str]:
    """Verb and record of the first card, and what else there is: from the plan alone."""
    first, others = cards[0], len(cards) - 1
    fields = [row.field for row in first.rows if row.field]
    more = ", ".join(fields) if first.kind == "update" and len(fields) <= 3 else ""
    if others:
        rest = ngettext("and %(count)d more record", "and %(count)d more records", others) % {"count": others}
        more = f"{more} {rest}" if more else rest
    return first.verb, first.record, more


def risks_of(plan: Plan, cards: list[CardView]) -> list[str]:
    """What is unusual about this plan, in one box; nothing where nothing is."""
    found = []
    final = [card.number for card in cards if any(flag.icon == "lock" for flag in card.flags)]
    if final:
        one, more = _("Change %(numbers)s can't be undone."), _("Changes %(numbers)s can't be undone.")
        found.append((one if len(final) == 1 else more) % {"numbers": ", ".join(final)})
    deleted = [card.number for card in cards if card.kind == "delete" and card.number not in final]
    if deleted:
        one, more = _("Change %(numbers)s deletes."), _("Changes %(numbers)s delete.")
        found.append((one if len(deleted) == 1 else more) % {"numbers": ", ".join(deleted)})
    if plan.mark_count:
        found.append(
            ngettext(
                "Another agent wrote to one of its records since it was planned.",
                "Other agents wrote to its records %(count)d times since it was planned.",
                plan.mark_count,
            )
            % {"count": plan.mark_count}
        )
    warnings = dict.fromkeys(
        w for card in read_cards(plan) for text in _texts(card) for w in spelling.has_deception(text)
    )
    return found + list(warnings)[:5]


def checks_of(facts: PlanFacts, cards: list[CardView]) -> list[Check]:
    """What the desk knows of the plan, each line with its ground."""
    plan = facts.plan
    name = {"target": plan.target.name}
    if plan.is_hosted:
        first = Check(
            True,
            _("Planned by this desk, from the records"),
            _("They are read again, under lock, before the first write."),
        )
    elif plan.has_confirmed_actions:
        first = Check(True, _("Confirmed by %(target)s") % name, _("It tells of the same changes as the agent."))
    else:
        first = Check(
            False,
            _("Told by the agent, not confirmed by the target"),
            _("%(target)s does not show what it would write.") % name,
        )
    count = sum(len(card.rows) for card in cards)
    shown = ngettext("Its one value is shown in full", "All %(count)d values are shown in full", count) % {
        "count": count
    }
    marked = any(flag.icon == "warn" for card in cards for flag in card.flags)
    more = _("Characters that hide or imitate are marked.") if marked else _("No hidden or imitated characters.")
    checks = [first, Check(True, shown, more)]
    if plan.approvals_required > 1:
        given = {"given": len(facts.live_approvals), "needed": plan.approvals_required}
        names = ", ".join(str(approval.reviewer) for approval in facts.live_approvals)
        checks.append(Check(None, _("%(given)d of %(needed)d approvals given") % given, names))
    return checks


def decision_of(facts: PlanFacts, person: Person, state: str) -> Decision:
    """What this person can do with the plan as it stands, and what the button will do."""
    plan = facts.plan
    mine = next((approval for approval in facts.live_approvals if approval.reviewer_id == person.pk), None)
    missing = plan.approvals_required - len(facts.live_approvals)
    verdict = policies.may_decide(person, is_own=person.pk in facts.owners)
    why_not = in_words(verdict.sentence)
    if plan.approvals_required == 0 and verdict.is_allowed:
        why_not = _("No approval is needed: the agent may write this by itself.")
        if plan.is_held_back:
            why_not = _("No approval is needed: the agent may write this by itself, once its target has confirmed it.")
    elif mine is not None:
        why_not = ngettext(
            "You approved this plan. It waits for %(count)d more person.",
            "You approved this plan. It waits for %(count)d more people.",
            missing,
        ) % {"count": missing}
    elif plan.is_held_back:
        why_not = _("Its target has not confirmed this plan, and the policy asks for that.")
    count = words.changes(count_actions(plan))
    if missing > 1:
        button = _("Approve, nothing is written yet")
        after = ngettext(
            "%(count)d more person has to approve after you. Then it is written at once.",
            "%(count)d more people have to approve after you. Then it is written at once.",
            missing - 1,
        ) % {"count": missing - 1}
    else:
        button = _("Approve and write %(changes)s") % {"changes": count}
        after = _("Writes at once to %(target)s.") % {"target": plan.target.name}
    guard = policies.guard_of(plan.actions, is_always=plan.policy.is_guarded)
    possible = state == State.PENDING and not why_not
    nobody_left = state == State.PENDING and facts.eligible_people < plan.approvals_required
    return Decision(possible, why_not, button, after, guard, nobody_left)


_ACTIONS = msgspec.json.Decoder(list[msgspec.Raw])


def count_actions(plan: Plan) -> int:
    """How many changes a yes writes: the number on the button."""
    return len(_ACTIONS.decode(plan.actions))


def moments_of(facts: PlanFacts, clock: Clock) -> dict[str, Moment | None]:
    """Every instant that the page prints, by name."""
    plan = facts.plan
    known = {name: facts.fact(name) for name in ("rejection", "refusal", "abandonment", "conflict")}
    attempt = facts.last_attempt
    return {
        "created": clock.at(plan.created_at),
        "received": clock.at(plan.received_at),
        "expires": clock.at(plan.expires_at),
        "changed": clock.at(changed_at(plan, facts.now)),
        "unknown_since": clock.at(plan.unknown_since or plan.claimed_at),
        "next_check": clock.at(plan.next_check_at),
        "started": clock.at(attempt.started_at if attempt else None, exact=True),
        "settled": clock.at(attempt.settled_at if attempt else None, exact=True),
        "rejected": clock.at(known["rejection"].rejected_at if known["rejection"] else None),
        **{name: clock.at(known[name].at if known[name] else None) for name in ("refusal", "abandonment", "conflict")},
    }


def approvers(facts: PlanFacts, person: Person, clock: Clock) -> list[dict[str, Any]]:
    """Who approved, when and how long after opening; void approvals are named as such."""
    lines = []
    for approval in facts.approvals:
        is_you = approval.reviewer_id == person.pk
        name = _("You, %(name)s") % {"name": approval.reviewer} if is_you else str(approval.reviewer)
        lines.append(
            {"name": name, "at": clock.at(approval.approved_at, exact=True), "reason": approval.reason,
             "took": speed.took_between(approval.opened_at, approval.approved_at),
             "is_void": approval.voided_at is not None, "void_reason": approval.void_reason}
        )  # fmt: skip
    return lines
