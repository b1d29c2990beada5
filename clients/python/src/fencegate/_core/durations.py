"""Durations that callers give (CC5): timedeltas, seconds, or text such as `30s`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Literal, TypeAlias

from ..errors import Misuse

Duration: TypeAlias = timedelta | str | float
"""A duration: a `timedelta`, seconds as a number, or text: a whole number and one of `ms`, `s`, `m`, `h`, `d`."""

_TEXT = re.compile(r"(0|[1-9][0-9]{0,18})(ms|s|m|h|d)", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MOST_MS = 2**63 - 1

SECOND_MS = 1_000
DAY_MS = 86_400_000


def whole_ms(duration: Duration, what: str = "a duration") -> int:
    """A duration in whole milliseconds, not negative."""
    if isinstance(duration, str):
        found = _TEXT.fullmatch(duration)
        if found is None:
            raise Misuse(f"{what}: {duration!r} is not a duration such as 500ms, 30s, 5m, 2h or 1d")
        ms = int(found[1]) * _UNIT_MS[found[2]]
    elif isinstance(duration, timedelta):
        ms, rest = divmod(duration, timedelta(milliseconds=1))
        if rest:
            raise Misuse(f"{what}: a duration has whole milliseconds")
    else:
        ms = _of_seconds(duration, what)
    if not 0 <= ms <= _MOST_MS:
        raise Misuse(f"{what}: {duration!r} is out of range")
    return ms


def _of_seconds(seconds: object, what: str) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise Misuse(f"{what} is a timedelta, a number of seconds, or text such as 30s")
    exact = seconds * 1000
    if not -_MOST_MS < exact < _MOST_MS:
        raise Misuse(f"{what}: {seconds!r} is out of range")
    ms = round(exact)
    # What is nearer than that comes from binary fractions, as in 1.1 * 1000.
    if abs(exact - ms) > 1e-6:
        raise Misuse(f"{what}: a duration has whole milliseconds")
    return ms


def ttl_ms(ttl: Duration | Literal["infinite"]) -> int | None:
    """A ttl in milliseconds, 1 s to 24 h; None: for ever."""
    if ttl == "infinite":
        return None
    ms = whole_ms(ttl, "ttl")
    if not SECOND_MS <= ms <= DAY_MS:
        raise Misuse("a ttl is from 1s to 24h, or infinite")
    return ms


def max_hold_ms(max_hold: Duration) -> int:
    """The longest hold in milliseconds, 1 s to 30 d."""
    ms = whole_ms(max_hold, "max_hold")
    if not SECOND_MS <= ms <= 30 * DAY_MS:
        raise Misuse("max_hold is from 1s to 30d")
    return ms


def setting_ms(duration: Duration, what: str) -> int:
    """The setting of a client in milliseconds: more than nothing, at most 24 h."""
    ms = whole_ms(duration, what)
    if not 1 <= ms <= DAY_MS:
        raise Misuse(f"{what} is from 1ms to 24h")
    return ms


def text(ms: int | None) -> str:
    """As it is sent."""
    return "infinite" if ms is None else f"{ms}ms"
