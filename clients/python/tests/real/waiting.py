"""Waiting for what must come. How soon it comes says nothing: only what hangs does not come within two minutes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from fencegate import AsyncLock, Lock

HANGS_S = 120.0
"""What takes longer hangs."""


def until(is_so: Callable[[], object]) -> None:
    """Waits until it is so."""
    deadline = time.monotonic() + HANGS_S
    while not is_so():
        assert time.monotonic() < deadline, "it never was so"
        time.sleep(0.02)


async def until_so(is_so: Callable[[], object]) -> None:
    """The same on a loop."""
    deadline = time.monotonic() + HANGS_S
    while not is_so():
        assert time.monotonic() < deadline, "it never was so"
        await asyncio.sleep(0.02)


class Renewals:
    """Counts how often a guard was renewed from here on."""

    def __init__(self, lock: Lock | AsyncLock) -> None:
        self._lock = lock
        self._left = lock.remaining
        self._seen = 0

    def are(self, count: int) -> bool:
        """Whether they are so many by now. Raises `LockLost` if there will be no more."""
        self._lock.check()
        left = self._lock.remaining
        assert left is not None and self._left is not None, "the lock has no end"
        if left > self._left:
            self._seen += 1
        self._left = left
        return self._seen >= count
