"""A text that is used and never seen: API keys, webhook secrets, plan tokens."""

import hmac
from typing import Final, Never

HIDDEN: Final = "[secret]"
"""What stands wherever a secret would have been shown."""

_SHORTEST_INSIDE: Final = 8
"""Characters from which a secret is hidden inside other text too; a shorter one only where it is the whole text."""


class Secret:
    """Holds a text that `reveal()` alone gives out.

    Its repr, str and format say nothing of it. It refuses to be copied, pickled, hashed, changed, and to go into JSON.
    """

    __slots__ = ("__text",)
    __text: str

    def __init__(self, text: str) -> None:
        if not text:
            raise ValueError("A secret cannot be empty.")
        object.__setattr__(self, "_Secret__text", text)

    def reveal(self) -> str:
        """The text itself, for the one line that sends, stores or signs with it."""
        return self.__text

    def is_in(self, text: str) -> bool:
        """Whether this text shows the secret."""
        return self.__text in text

    def hide_in(self, text: str) -> str:
        """This text without the secret: what may be shown, logged or raised."""
        if len(self.__text) < _SHORTEST_INSIDE:
            return HIDDEN if text == self.__text else text
        return text.replace(self.__text, HIDDEN)

    def __repr__(self) -> str:
        return "Secret(...)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self.__text.encode(), other.__text.encode())

    __hash__ = None  # type: ignore[assignment]

    def __setattr__(self, name: str, value: object) -> Never:
        raise AttributeError("a Secret does not change")

    def __delattr__(self, name: str) -> Never:
        raise AttributeError("a Secret does not change")

    def __reduce_ex__(self, protocol: object) -> Never:
        raise TypeError("a Secret is not pickled")

    def __getstate__(self) -> Never:
        raise TypeError("a Secret is not pickled")

    def __copy__(self) -> Never:
        raise TypeError("a Secret is not copied")

    def __deepcopy__(self, memo: object) -> Never:
        raise TypeError("a Secret is not copied")
