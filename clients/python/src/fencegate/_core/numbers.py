"""The numbers of a guard's writes (CC23), and which of them overlapped."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Numbers:
    """Gives each write a rising number, and knows which writes are under way. Safe to use from several threads."""

    __slots__ = ("_last", "_last_end", "_lock", "_moment", "_on_idle", "_open", "_under_way")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0
        # Numbers of writes of which a copy may still land.
        self._open: set[int] = set()
        # Rises with each write that begins or ends.
        self._moment = 0
        self._under_way = 0
        self._last_end = 0
        self._on_idle: list[Callable[[], object]] = []

    def next(self) -> int:
        """The next number."""
        with self._lock:
            self._last += 1
            self._open.add(self._last)
            return self._last

    def settled(self, number: int) -> None:
        """No copy of the write with this number will land any more, or it has landed."""
        with self._lock:
            self._open.discard(number)

    def is_earlier_open(self, number: int) -> bool:
        """Whether a write with a lower number is under way, or its outcome is unknown."""
        with self._lock:
            return any(other < number for other in self._open)

    def begin(self) -> UnderWay:
        """A write begins."""
        with self._lock:
            self._moment += 1
            self._under_way += 1
            return UnderWay(self, self._moment, self._under_way > 1)

    @property
    def is_idle(self) -> bool:
        """Whether no write is under way."""
        return not self._under_way

    def when_idle(self, tell: Callable[[], object]) -> None:
        """Calls the function once no write is under way; at once if none is."""
        with self._lock:
            if self._under_way:
                self._on_idle.append(tell)
                return
        tell()

    def overlapped(self, began: int) -> bool:
        """Whether another write was under way at some time since this moment, at which a write began."""
        with self._lock:
            return self._under_way > 1 or self._last_end > began

    def end(self) -> None:
        """A write ends."""
        with self._lock:
            self._moment += 1
            self._last_end = self._moment
            self._under_way -= 1
            told = [] if self._under_way else self._on_idle
            if told:
                self._on_idle = []
        for tell in told:
            tell()


class UnderWay:
    """One write, from its first attempt to its answer."""

    __slots__ = ("_began", "_is_over", "_numbers", "_overlapped")

    def __init__(self, numbers: Numbers, began: int, overlapped: bool) -> None:
        self._numbers = numbers
        self._began = began
        self._overlapped = overlapped
        self._is_over = False

    def overlapped(self) -> bool:
        """Whether another write of the guard was under way at some time since this one began."""
        return self._overlapped or self._numbers.overlapped(self._began)

    def end(self) -> None:
        """It is over."""
        if not self._is_over:
            self._is_over = True
            self._numbers.end()
