"""A plan's row in a list, in words and formatted times: made once per row, so that templates only print."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from plans.models import Plan
from plans.queries import OVERDUE_AFTER, PlanRow
from plans.states import ENDS, State
from reviewer import words
from reviewer.moments import Clock, Moment
from reviewer.words import Badge

SOON = timedelta(minutes=2)
GROUP_SOON = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Row:
    """What a template prints of a plan in a list."""

    pk: int
    url: str
    verb: str
    record: str
    more: str
    plan_id: str
    agent: str
    target: str
    operation: str
    created: Moment
    received: Moment
    expires: Moment
    since: Moment | None
    changed: Moment
    left: str
    seconds_left: int
    seconds_in_all: int
    is_soon: bool
    badge: Badge
    is_gone: bool
    flags: tuple[Badge, ...]
    creates: int
    updates: int
    deletes: int
    counts_label: str


def url_of(agent: str, target: str, plan_id: str, name: str = "plan") -> str:
    return reverse(name, args=[agent, target, plan_id])


def row_of(plan: PlanRow, clock: Clock, looking: Sequence[str] = ()) -> Row:
    """The row in words. Titles come from the plan's first change, never from what the agent says of it. `looking` are
    the names of the others who have it open."""
    left = plan.expires_at - clock.now
    return Row(
        pk=plan.pk,
        url=url_of(plan.agent, plan.target, plan.plan_id),
        verb=words.verb_of(plan.op),
        record=plan.record,
        more=_more(plan),
        plan_id=plan.plan_id,
        agent=plan.agent,
        target=plan.target,
        operation=plan.operation,
        created=_moment(clock, plan.created_at),
        received=_moment(clock, plan.received_at),
        expires=_moment(clock, plan.expires_at),
        since=clock.at(plan.unknown_since),
        changed=_moment(clock, changed_at(plan, clock.now)),
        left=clock.left(plan.expires_at),
        seconds_left=max(0, int(left.total_seconds())),
        seconds_in_all=max(1, int((plan.expires_at - plan.created_at).total_seconds())),
        is_soon=left < SOON,
        badge=badge_now(plan, clock),
        is_gone=plan.state in ENDS or (plan.state == State.PENDING and plan.expires_at <= clock.now),
        flags=(*([looked_at(looking)] if looking else ()), *_flags(plan)),
        creates=plan.create_count,
        updates=plan.update_count,
        deletes=plan.delete_count,
        counts_label=_counts_label(plan),
    )


def changed_at(plan: Plan | PlanRow, now: datetime) -> datetime:
    """Since when the state that is true by the clock is so: a pending plan past its expiry, since that."""
    is_over = plan.state == State.PENDING and plan.expires_at <= now
    return plan.expires_at if is_over else plan.state_changed_at


def looked_at(names: Sequence[str]) -> Badge:
    """Who else has the plan open, so that two people do not read the same one for nothing."""
    others = len(names) - 1
    if not others:
        return Badge("info", "eye", _("%(name)s is looking") % {"name": names[0]})
    text = ngettext("%(name)s and %(count)d more are looking", "%(name)s and %(count)d more are looking", others)
    return Badge("info", "eye", text % {"name": names[0], "count": others})


def badge_now(plan: PlanRow, clock: Clock) -> Badge:
    """The badge of the state that is true by the clock: a pending plan past its expiry is dead,
    and a claim that is overdue is unknown."""
    if plan.state == State.PENDING and plan.expires_at <= clock.now:
        return words.badge_of(State.ABANDONED, "expired")
    claimed = plan.unknown_since
    if plan.state == State.COMMITTING and claimed is not None and clock.now - claimed >= OVERDUE_AFTER:
        return words.badge_of(State.UNKNOWN)
    return words.badge_of(plan.state, plan.abandon_reason)


def _moment(clock: Clock, instant: object) -> Moment:
    moment = clock.at(instant)  # type: ignore[arg-type]
    assert moment is not None
    return moment


def _more(plan: PlanRow) -> str:
    """What stands behind the title: the first field, and how much else."""
    others = plan.action_count - 1
    if plan.field and not others:
        return plan.field
    if not others:
        return ""
    return ngettext("and %(count)d more change", "and %(count)d more changes", others) % {"count": others}


def _flags(plan: PlanRow) -> list[Badge]:
    flags = []
    if plan.is_own:
        flags.append(Badge("mute", "hold", _("Your agent, someone else decides")))
    elif plan.has_approved:
        flags.append(Badge("ok", "check", _("You approved")))
    if plan.approvals_required > 1:
        flags.append(
            Badge("mute", "check", _("%(given)d of %(needed)d approvals") % {
                "given": plan.approvals_given, "needed": plan.approvals_required,
            })
        )  # fmt: skip
    if plan.mark_count:
        flags.append(Badge("warn", "warn", _("Written to since planned")))
    if plan.is_final:
        flags.append(Badge("bad", "lock", _("Can't be undone")))
    elif plan.delete_count:
        flags.append(Badge("bad", "x", _("Deletes")))
    return flags


def _counts_label(plan: PlanRow) -> str:
    parts = []
    if plan.create_count:
        parts.append(
            ngettext("%(count)d to create", "%(count)d to create", plan.create_count) % {"count": plan.create_count}
        )
    if plan.update_count:
        parts.append(
            ngettext("%(count)d to update", "%(count)d to update", plan.update_count) % {"count": plan.update_count}
        )
    if plan.delete_count:
        parts.append(
            ngettext("%(count)d to delete", "%(count)d to delete", plan.delete_count) % {"count": plan.delete_count}
        )
    return ", ".join(parts)
