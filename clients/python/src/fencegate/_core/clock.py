"""The client's clock and its dice. Tests that own the time put others in their place."""

from __future__ import annotations

import random
import time
from collections.abc import Callable


def _boot_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class _Source:
    """Where the time and the jitter come from."""

    __slots__ = ("draw", "now_ms")

    def __init__(self) -> None:
        # On Linux the time in suspend counts, so that a laptop that wakes up knows that its locks are over (CC30).
        self.now_ms: Callable[[], int] = _boot_ms if hasattr(time, "CLOCK_BOOTTIME") else _monotonic_ms
        self.draw: Callable[[], float] = random.random


_source = _Source()


def now_ms() -> int:
    """Milliseconds since some moment, never going back."""
    return _source.now_ms()


def draw() -> float:
    """A number from 0 to 1, for jitter."""
    return _source.draw()


def replace(now: Callable[[], int], dice: Callable[[], float]) -> None:
    """Takes the time and the jitter from elsewhere, in the whole process."""
    _source.now_ms = now
    _source.draw = dice
