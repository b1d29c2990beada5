"""How many attempts were begun in this process, and how many of them have no head of an answer yet.

A driver that owns the clock does not move it before both sides agree on what is under way. For tests only.
"""

from __future__ import annotations


class _Counters:
    __slots__ = ("begun", "waiting")

    def __init__(self) -> None:
        self.begun = 0
        self.waiting = 0


counted = _Counters()
