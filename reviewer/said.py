"""Sentences of the domain in the reader's language: their templates are translated, and what they hold is put in."""

from django.utils.translation import gettext

from plans.errors import Sentence, kept


def in_words(text: str) -> str:
    """The sentence as people read it here; a plain text is looked up whole, and one that was kept is put together."""
    if not text:
        return ""
    text = kept(text)
    if not isinstance(text, Sentence):
        return gettext(text)
    values = {name: in_words(value) if isinstance(value, Sentence) else value for name, value in text.values.items()}
    template = gettext(text.template)
    return template % values if values else template
