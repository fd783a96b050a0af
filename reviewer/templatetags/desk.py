"""Template tags of the pages: icons, and foreign values shown as they are spelled. The one place that makes HTML."""

from django import template
from django.template import Context
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _

from plans import spelling
from plans.changes import Kind, Value
from reviewer.compare import Span
from reviewer.moments import Moment
from reviewer.said import in_words, kept_in_words
from reviewer.templatetags.icons import DRAWINGS

register = template.Library()


@register.simple_tag
def icon(name: str, css: str = "") -> SafeString:
    """One of our drawings, hidden from screen readers: a word stands beside it."""
    return mark_safe(  # noqa: S308 (constants of ours)
        f'<svg class="icon{" " + escape(css) if css else ""}" viewBox="0 0 16 16" aria-hidden="true">'
        f"{DRAWINGS[name]}</svg>"
    )


@register.filter
def spelled(text: str) -> SafeString:
    """A foreign text, whole, with every character that hides, moves or imitates shown as a visible mark."""
    return mark_safe("".join(_html(piece.text, piece) for piece in spelling.tokens(text)))  # noqa: S308 (escaped)


@register.simple_tag
def foreign(value: Value, marks: tuple[Span, ...] = ()) -> SafeString:
    """A foreign value: its own type told apart, its text whole, `marks` where it differs from the other side."""
    match value.kind:
        case Kind.UNTOLD:
            return format_html('<span class="none">{}</span>', _("not told"))
        case Kind.ABSENT:
            return format_html('<span class="none">{}</span>', _("no value"))
        case Kind.KEYWORD:
            return format_html('<span class="kw">{}</span>', value.raw)
        case Kind.TEXT if value.text == "":
            return format_html('"" <span class="none">{}</span>', _("empty text"))
    body = _marked(value.text, marks)
    if value.is_mistakable:
        return format_html(
            '<span class="q">"</span>{}<span class="q">"</span> <span class="none">{}</span>', body, _("text")
        )
    return body


def _marked(text: str, marks: tuple[Span, ...]) -> SafeString:
    """The pieces of the text, cut again where a mark starts or ends."""
    parts: list[str] = []
    at, cuts = 0, list(marks)
    for piece in spelling.tokens(text):
        end = at + len(piece.text)
        if not piece.is_plain:
            parts.append(_html(piece.text, piece))
            at = end
            continue
        while at < end:
            while cuts and cuts[0][1] <= at:
                cuts.pop(0)
            start, stop = cuts[0] if cuts else (end, end)
            upto = min(end, stop if start <= at else start)
            part = escape(text[at:upto])
            parts.append(f"<mark>{part}</mark>" if start <= at else part)
            at = upto
    return mark_safe("".join(parts))  # noqa: S308 (every part is escaped)


def _html(text: str, piece: spelling.Piece) -> str:
    if piece.is_plain:
        return escape(text)
    if text in ("\n", "\r\n") or (piece.kind == "control" and set(text) <= {"\n"}):
        return f'<span class="nl" title="{escape(piece.label)}">{"↵" * text.count(chr(10))}</span>{escape(text)}'
    css = "tok" if piece.is_warning else "tok soft"
    # A letter that only looks like another stays in view beside its name; what cannot be seen is its name alone.
    seen = escape(text) if piece.kind in ("lookalike", "composition") else ""
    return (
        f'<bdi class="odd">{seen}</bdi><span class="{css}">{escape(piece.label)}</span>'
        if seen
        else (f'<span class="{css}">{escape(piece.label)}</span>')
    )


@register.simple_tag(takes_context=True)
def when(context: Context, moment: Moment | None) -> SafeString:
    """An instant in UTC and in the reader's zone, in the order they like; `T` swaps the two on the page."""
    if moment is None:
        return mark_safe("")
    if not moment.local:
        return format_html('<time datetime="{}">{}</time>', moment.iso, moment.utc)
    first, second = moment.utc, moment.local
    if getattr(context.get("person"), "is_local_time_first", False):
        first, second = second, first
    return format_html(
        '<time class="both" datetime="{}"><span>{}</span><i>, </i><span>{}</span></time>', moment.iso, first, second
    )


@register.filter
def said(text: str) -> str:
    """A sentence of the domain in the reader's language."""
    return in_words(text)


@register.filter
def kept(text: str) -> str:
    """A column that `plans.errors.keep` writes, in the reader's language. For no other column."""
    return kept_in_words(text)


@register.filter
def initials(person: object) -> str:
    """Up to two letters for an avatar."""
    words = str(person).replace("@", " ").split()
    return "".join(word[0] for word in words[:2]).upper()
