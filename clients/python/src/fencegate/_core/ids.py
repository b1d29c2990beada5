"""Ids: random UUIDs of version 7, and those of the attempts of a call (CC8, CC14, CC22)."""

from __future__ import annotations

import os
import time


def uuid7() -> str:
    """A UUID of version 7 as text: the time in milliseconds, and 74 random bits."""
    random = int.from_bytes(os.urandom(10))
    value = (time.time_ns() // 1_000_000 & 0xFFFF_FFFF_FFFF) << 80 | 0x7 << 76 | 0x2 << 62
    # 12 random bits behind the version, 62 behind the variant.
    value |= (random & 0xFFF) << 64 | random >> 18
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class RequestIds:
    """The ids of the attempts of one call: `<id>`, then `<id>.2`, and so on, so that a log shows them together."""

    __slots__ = ("_first", "attempts")

    def __init__(self) -> None:
        self._first = uuid7()
        self.attempts = 0

    def next(self) -> str:
        """The id of the next attempt."""
        self.attempts += 1
        return self._first if self.attempts == 1 else f"{self._first}.{self.attempts}"
