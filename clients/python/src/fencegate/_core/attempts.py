"""Which attempts have no head of an answer yet, and how many were begun in this process.

A driver that owns the clock does not move it before both sides agree on what is under way. For tests only.
"""

from __future__ import annotations


class _Counted:
    __slots__ = ("begun", "waiting")

    def __init__(self) -> None:
        self.begun = 0
        self.waiting: list[str] = []
        """The request ids of those that have neither failed nor the head of an answer."""


counted = _Counted()
