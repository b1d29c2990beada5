"""When the next attempt of a call starts (CC10)."""

from __future__ import annotations

_BASE_MS = 50
_MOST_MS = 2_000


def portion(ms: int, draw: float) -> int:
    """This part, from 0 to 1, of so many milliseconds."""
    return min(int(ms * min(max(draw, 0.0), 1.0)), ms)


class Backoff:
    """Pauses between the attempts of one call: full jitter over a bound that doubles."""

    __slots__ = ("_attempts",)

    def __init__(self) -> None:
        self._attempts = 0

    def next(self, draw: float, floor_ms: int | None, left_ms: int | None) -> int | None:
        """The pause before the next attempt, in milliseconds.

        It is at least `floor_ms`, which the gateway asked for, and at most `left_ms`, which are left until the
        deadline (None: there is no deadline). Gives None if the deadline has passed.
        """
        if left_ms is not None and left_ms <= 0:
            return None
        bound_ms = min(_MOST_MS, _BASE_MS << min(self._attempts, 10))
        self._attempts += 1
        pause_ms = max(portion(bound_ms, draw), floor_ms or 0)
        return pause_ms if left_ms is None else min(pause_ms, left_ms)
