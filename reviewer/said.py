"""Sentences of the domain in the reader's language: their templates are translated, and what they hold is put in."""

from django.utils.translation import gettext

from plans.errors import Sentence, fill, kept


def in_words(text: str) -> str:
    """The sentence as people read it here; a plain text is looked up whole, and nothing in it is ever read as more."""
    if not text:
        return ""
    if not isinstance(text, Sentence):
        return gettext(text)
    values = {name: in_words(value) if isinstance(value, Sentence) else value for name, value in text.values.items()}
    return fill(gettext(text.template), values)


def kept_in_words(text: str) -> str:
    """A column that `plans.errors.keep` writes, as people read it here. For no other: a target's words are its own."""
    return in_words(kept(text))
