"""What every way of sending has in common: one message out, or one sentence why not."""

from datetime import timedelta
from typing import Final

from plans.errors import Sentence

TIMEOUT: Final = timedelta(seconds=20)
"""Of one message over one channel, in all."""


class NotDelivered(Exception):
    """Why a message did not get out: one sentence without a secret. `is_gone`: the address will never work again."""

    def __init__(self, sentence: Sentence, *, is_gone: bool = False) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.is_gone = is_gone
