"""The auditors' charts: numbers laid out for SVG, each with its words and the table beneath."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from audit.charts import (
    BANDS,
    CONFLICT,
    DROPPED,
    ENDS,
    EXPIRED,
    REFUSED,
    REJECTED,
    WRITTEN,
    Day,
    Durations,
    Numbers,
    Rate,
    durations_of,
)
from audit.outcomes import UnknownOutcomes
from reviewer.audit_drawing import WIDTH, Column, ceiling, number, scale_of, stack
from reviewer.audit_presets import how_found
from reviewer.audit_story import length_of
from reviewer.moments import Clock, short

END_NAMES: Final[dict[str, Any]] = {
    WRITTEN: gettext_lazy("Written"),
    CONFLICT: gettext_lazy("Conflict"),
    REJECTED: gettext_lazy("Rejected"),
    REFUSED: gettext_lazy("Refused"),
    EXPIRED: gettext_lazy("Expired"),
    DROPPED: gettext_lazy("Dropped"),
}


@dataclass(frozen=True, slots=True)
class Table:
    """The numbers of a chart, for those who read rather than look."""

    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Chart:
    """One figure. Columns stand (with `scale`, `axis` and `key`), or `bars` lie, one a line."""

    name: str
    title: str
    says: str
    table: Table
    columns: tuple[Column, ...] = ()
    scale: tuple[str, ...] = ()
    axis: tuple[str, ...] = ()
    key: tuple[tuple[str, str], ...] = ()
    bars: tuple["LyingBar", ...] = ()


@dataclass(frozen=True, slots=True)
class LyingBar:
    """A share of the whole width, with its words on both sides."""

    label: str
    told: str
    width: str
    css: str


def charts_of(numbers: Numbers, clock: Clock) -> list[Chart]:
    return [
        _ends(numbers.days),
        _decided(numbers.decided),
        _unknown(numbers.unknown, clock),
        _conflicts(numbers.conflicts),
        _fast(numbers.fast),
        _expiry(numbers.days),
    ]


def _columns(
    days: Sequence[Day], counts: Sequence[dict[str, float]], labels: Sequence[str], highest: float
) -> tuple[Column, ...]:
    step = WIDTH / max(len(days), 1)
    return tuple(
        Column(
            number(place * step), number(step), label, "", "", "",
            stack(count, highest, x=place * step + step * 0.12, width=step * 0.76),
        )
        for place, (count, label) in enumerate(zip(counts, labels, strict=True))
    )  # fmt: skip


def _axis(days: Sequence[Day]) -> tuple[str, ...]:
    places = sorted({round(place * (len(days) - 1) / 4) for place in range(5)}) if days else []
    return tuple(f"{days[place].day:%-d %b}" for place in places)


def _ends(days: list[Day]) -> Chart:
    total = sum(day.total for day in days)
    labels = [
        f"{day.day:%-d %b %Y}: "
        + (
            ", ".join(f"{count:,} {str(END_NAMES[end]).lower()}" for end, count in day.ends.items() if count)
            or _("none")
        )
        for day in days
    ]
    seen = [end for end in ENDS if any(day.ends[end] for day in days)]
    highest = ceiling(max((day.total for day in days), default=1))
    rows = [
        (f"{day.day:%Y-%m-%d}", *(f"{day.ends[end]:,}" for end in ENDS), f"{day.total:,}") for day in days if day.total
    ]
    return Chart(
        name="ends",
        title=_("Plans per day, by their end"),
        says=ngettext("%(count)s plan ended in this time.", "%(count)s plans ended in this time.", total)
        % {
            "count": f"{total:,}",
        },
        table=Table((_("Day, UTC"), *(str(END_NAMES[end]) for end in ENDS), _("All")), rows),
        columns=_columns(days, [dict(day.ends) for day in days], labels, highest),
        scale=tuple(scale_of(highest)),
        axis=_axis(days),
        key=tuple((end, str(END_NAMES[end])) for end in seen),
    )


def _percent(part: float) -> str:
    return f"{part * 100:.1f} %"


def _lying(rows: Sequence[tuple[str, str, float, str]]) -> tuple[LyingBar, ...]:
    """Bars of those shares (0 to 1) of the width; each has at least a trace where it is not nothing."""
    return tuple(
        LyingBar(label, told, number(max(share * 100, 0.4) if share > 0 else 0), css)
        for label, told, share, css in rows
    )


def band_names() -> list[str]:
    """The bands of time in words."""
    names = [_("up to %(length)s") % {"length": short(edge)} for edge in BANDS]
    return [*names, _("over %(length)s") % {"length": short(BANDS[-1])}]


def _of_durations(durations: Durations, css: str) -> tuple[tuple[LyingBar, ...], Sequence[tuple[str, ...]]]:
    most = max(durations.bands, default=0) or 1
    names = band_names()
    bars = _lying([(name, f"{count:,}", count / most, css) for name, count in zip(names, durations.bands, strict=True)])
    total = durations.total or 1
    rows = [(name, f"{count:,}", _percent(count / total)) for name, count in zip(names, durations.bands, strict=True)]
    return bars, rows


def _middle(durations: Durations) -> str:
    if durations.median is None or durations.ninth is None:
        return _("None in this time.")
    told = _("Half within %(median)s, nine of ten within %(ninth)s.") % {
        "median": length_of(durations.median),
        "ninth": length_of(durations.ninth),
    }
    return told if durations.is_exact else f"{told} {_('Of the newest decisions.')}"


def _decided(durations: Durations) -> Chart:
    bars, rows = _of_durations(durations, "written")
    return Chart(
        name="decided",
        title=_("From received to decided"),
        says=_middle(durations),
        table=Table((_("Time"), _("Plans"), _("Share")), rows),
        bars=bars,
    )


def _conflicts(rates: list[Rate]) -> Chart:
    total = sum(rate.total for rate in rates)
    hits = sum(rate.hits for rate in rates)
    return Chart(
        name="conflicts",
        title=_("Conflict rate, per operation and agent"),
        says=ngettext(
            "%(hits)s of %(total)s write that was tried met a conflict.",
            "%(hits)s of %(total)s writes that were tried met a conflict.",
            total,
        ) % {"hits": f"{hits:,}", "total": f"{total:,}"},
        table=Table(
            (_("Operation"), _("Agent"), _("Conflicts"), _("Tried"), _("Rate")),
            [(*rate.names, f"{rate.hits:,}", f"{rate.total:,}", _percent(rate.share)) for rate in rates],
        ),
        bars=_lying([
            (" · ".join(rate.names), f"{_percent(rate.share)} ({rate.hits:,}/{rate.total:,})", rate.share, "conflict")
            for rate in rates[:12]
        ]),
    )  # fmt: skip


def _expiry(days: list[Day]) -> Chart:
    total, expired = sum(day.total for day in days), sum(day.ends[EXPIRED] for day in days)
    shares = [day.ends[EXPIRED] / day.total if day.total else 0.0 for day in days]
    labels = [
        f"{day.day:%-d %b %Y}: {_percent(share)} ({day.ends[EXPIRED]:,}/{day.total:,})"
        for day, share in zip(days, shares, strict=True)
    ]
    rows = [
        (f"{day.day:%Y-%m-%d}", f"{day.ends[EXPIRED]:,}", f"{day.total:,}", _percent(share))
        for day, share in zip(days, shares, strict=True)
        if day.total
    ]
    told = {"expired": f"{expired:,}", "total": f"{total:,}", "share": _percent(expired / total if total else 0)}
    return Chart(
        name="expiry",
        title=_("Expiry rate"),
        says=ngettext(
            "%(expired)s of the %(total)s plan that ended had expired: %(share)s.",
            "%(expired)s of the %(total)s plans that ended had expired: %(share)s.",
            total,
        )
        % told,
        table=Table((_("Day, UTC"), _("Expired"), _("Ended"), _("Rate")), rows),
        columns=_columns(days, [{EXPIRED: share} for share in shares], labels, 1.0),
        scale=("100 %", "50 %", "0"),
        axis=_axis(days),
    )


def _fast(rates: list[Rate]) -> Chart:
    total, hits = sum(rate.total for rate in rates), sum(rate.hits for rate in rates)
    told = {"hits": f"{hits:,}", "total": f"{total:,}", "share": _percent(hits / total if total else 0)}
    return Chart(
        name="fast",
        title=_("Approvals within 3 seconds of opening, per person"),
        says=ngettext(
            "%(hits)s of %(total)s approval: %(share)s.", "%(hits)s of %(total)s approvals: %(share)s.", total
        ) % told,
        table=Table(
            (_("Person"), _("Within 3 seconds"), _("Approvals"), _("Share")),
            [(rate.names[0], f"{rate.hits:,}", f"{rate.total:,}", _percent(rate.share)) for rate in rates],
        ),
        bars=_lying([
            (rate.names[0], f"{_percent(rate.share)} ({rate.hits:,}/{rate.total:,})", rate.share, "other")
            for rate in rates[:12]
        ]),
    )  # fmt: skip


def _unknown(outcomes: UnknownOutcomes, clock: Clock) -> Chart:
    known = sorted(one.took.total_seconds() for one in outcomes.found if one.took is not None)
    open_count = len(outcomes.found) - len(known)
    durations = durations_of(known, is_exact=outcomes.is_exact)
    bars, _rows = _of_durations(durations, "unknown")
    most = max([*durations.bands, open_count], default=0) or 1
    bars = (*bars, *_lying([(_("still unknown"), f"{open_count:,}", open_count / most, "unknown")]))
    rows = [
        (one.plan_id, one.agent, one.target, _stamp(clock, one.unknown_at), how_found(one),
         length_of(one.took.total_seconds()) if one.took is not None else "")
        for one in outcomes.found[-100:][::-1]
    ]  # fmt: skip
    says = ngettext(
        "%(count)s plan; %(open)s still unknown.", "%(count)s plans; %(open)s still unknown.", len(outcomes.found)
    ) % {"count": f"{len(outcomes.found):,}", "open": open_count}
    return Chart(
        name="unknown",
        title=_("Unknown outcomes, and their time to truth"),
        says=f"{says} {_middle(durations)}" if known else says,
        table=Table((_("Plan"), _("Agent"), _("Target"), _("Unknown since"), _("Found out by"), _("After")), rows),
        bars=bars,
    )


def _stamp(clock: Clock, instant: Any) -> str:
    moment = clock.at(instant)
    return moment.utc if moment else ""
