"""Charts as numbers for SVG: where each bar stands and how high. Drawn on the server, told apart without colour too."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from audit.canonical import format_at
from audit.histogram import CONFLICT, ENDED, MEANINGS, OTHER, UNKNOWN, WRITTEN, Bar, Histogram
from reviewer.moments import Clock

WIDTH: Final = 960
HEIGHT: Final = 120
LEAST: Final = 2.5
"""What is there is seen, however small beside the rest."""

NAMES: Final[dict[str, Any]] = {
    WRITTEN: gettext_lazy("Written"),
    ENDED: gettext_lazy("Ended without a write"),
    CONFLICT: gettext_lazy("Conflict"),
    UNKNOWN: gettext_lazy("Unknown"),
    OTHER: gettext_lazy("Other events"),
}


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar; `css` names its fill."""

    css: str
    x: str
    y: str
    width: str
    height: str


@dataclass(frozen=True, slots=True)
class Column:
    """A bar of a chart: what it says in words, where it leads, and its parts from the bottom up."""

    x: str
    width: str
    label: str
    href: str
    start: str
    end: str
    segments: list[Segment]
    is_capped: bool = False


def number(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


def stack(
    counts: Mapping[str, float], highest: float, *, x: float, width: float, height: float = HEIGHT
) -> list[Segment]:
    """The parts of one bar, on top of each other, in the order of `counts`."""
    top, segments = height, []
    for css, value in counts.items():
        if value <= 0 or highest <= 0:
            continue
        tall = max(value / highest * (height - 4), LEAST)
        top -= tall
        segments.append(Segment(css, number(x), number(max(top, 0)), number(width), number(max(tall - 0.7, 1))))
    return segments


def ceiling(highest: float) -> int:
    """A round number at or above, for the scale: 1, 2, 4, 5 or 10 times a power of ten."""
    step = 1
    while True:
        for times in (1, 2, 4, 5):
            if highest <= times * step:
                return times * step
        step *= 10


def draw_bars(histogram: Histogram, links: Sequence[str], clock: Clock) -> dict[str, Any]:
    """The histogram for its template: columns, scale, axis, key, and how wide a bar is in words."""
    bars = histogram.bars
    highest = ceiling(max((bar.total for bar in bars), default=1))
    highest += highest % 2  # half of it is a mark of the scale, and there are no half events
    step = WIDTH / len(bars)
    columns = [
        Column(
            x=number(place * step),
            width=number(step),
            label=_label(bar, clock),
            href=href,
            start=format_at(bar.start),
            end=format_at(bar.end),
            segments=stack(bar.counts, highest, x=place * step + step * 0.12, width=step * 0.76),
            is_capped=bar.is_capped,
        )
        for place, (bar, href) in enumerate(zip(bars, links, strict=True))
    ]
    seen = [name for name in MEANINGS if any(bar.counts[name] for bar in bars)]
    return {
        "columns": columns,
        "scale": scale_of(highest),
        "axis": _axis(histogram, clock),
        "key": [(name, str(NAMES[name])) for name in seen],
        "width": width_in_words(histogram.width),
        "is_capped": any(bar.is_capped for bar in bars),
        "is_windowed": histogram.is_windowed,
        "span": f"{_stamp(bars[0], clock)} – {_stamp(bars[-1], clock, is_end=True)} UTC",
    }


def scale_of(highest: int) -> list[str]:
    middle = highest / 2
    return [f"{highest:,}", f"{middle:,.0f}" if middle == int(middle) else f"{middle:,.1f}", "0"]


def _label(bar: Bar, clock: Clock) -> str:
    parts = ", ".join(f"{count:,} {str(NAMES[name]).lower()}" for name, count in bar.counts.items() if count)
    more = " " + _("or more") if bar.is_capped else ""
    start, end = clock.at(bar.start), clock.at(bar.end)
    assert start is not None
    assert end is not None
    return f"{start.utc.removesuffix(' UTC')} – {end.utc}: {parts or _('nothing')}{more}"


def _stamp(bar: Bar, clock: Clock, *, is_end: bool = False) -> str:
    moment = clock.at(bar.end if is_end else bar.start)
    assert moment is not None
    return moment.utc.removesuffix(" UTC")


def _axis(histogram: Histogram, clock: Clock) -> list[str]:
    """Five marks along the time, evenly: days where bars are days, else hours and minutes."""
    bars = histogram.bars
    places = sorted({round(place * (len(bars) - 1) / 4) for place in range(5)})
    is_days = histogram.width >= timedelta(days=1)
    is_seconds = histogram.width < timedelta(minutes=1)
    spans_days = bars[0].start.date() != bars[-1].end.date()
    form = "%-d %b %Y" if is_days else "%-d %b %H:%M" if spans_days else "%H:%M:%S" if is_seconds else "%H:%M"
    marks = [bars[place].start.strftime(form) for place in places]
    return [*marks[:-1], f"{marks[-1]} UTC"] if marks else []


def width_in_words(width: timedelta) -> str:
    """ "1 hour", "5 minutes": what one bar stands for."""
    seconds = int(width.total_seconds())
    if seconds % 86400 == 0:
        return ngettext("%(count)d day", "%(count)d days", seconds // 86400) % {"count": seconds // 86400}
    if seconds % 3600 == 0:
        return ngettext("%(count)d hour", "%(count)d hours", seconds // 3600) % {"count": seconds // 3600}
    if seconds % 60 == 0:
        return ngettext("%(count)d minute", "%(count)d minutes", seconds // 60) % {"count": seconds // 60}
    return ngettext("%(count)d second", "%(count)d seconds", seconds) % {"count": seconds}
