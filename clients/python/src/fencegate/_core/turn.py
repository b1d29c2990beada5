"""Who may go, one after another: a queue that neither waits nor blocks, so that tasks and threads can share it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


class Turn:
    """One place, given from one to the next in the order of asking."""

    __slots__ = ("_is_taken", "_lock", "_waiting")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_taken = False
        self._waiting: deque[Callable[[], object]] = deque()

    def try_take(self) -> bool:
        """Takes the turn, if nobody has it."""
        with self._lock:
            if self._is_taken:
                return False
            self._is_taken = True
            return True

    def ask(self, told: Callable[[], object]) -> bool:
        """Takes the turn, or stands in line and has the function called when it is one's own."""
        with self._lock:
            if self._is_taken:
                self._waiting.append(told)
                return False
            self._is_taken = True
            return True

    def give_up(self, told: Callable[[], object]) -> None:
        """Leaves the line; or passes the turn on, if it came meanwhile."""
        with self._lock:
            is_waiting = told in self._waiting
            if is_waiting:
                self._waiting.remove(told)
        if not is_waiting:
            self.give_back()

    def give_back(self) -> None:
        """Passes the turn on."""
        with self._lock:
            told = self._waiting.popleft() if self._waiting else None
            self._is_taken = told is not None
        if told is not None:
            told()
