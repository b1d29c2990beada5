"""Names and slots of jobs, and what is said of a job (CC61, CC63, CC64)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from statistics import median
from typing import Any

from ..errors import Misuse
from .names import resource_path

CAUGHT_UP_MAX = 100
"""How many slots one call runs at most."""
SHARDS_MAX = 10_000
_NAME = re.compile(r"[A-Za-z0-9._~-]{1,200}")
_KEPT = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})T([0-9]{2})([0-9]{2})([0-9]{2})Z")
_RFC_3339 = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})Z")
_SUCCESSES_MIN = 3
# Nothing is stuck before that, however short the runs usually are.
_STUCK_LEAST_MS = 60_000


def job_resource(name: str, shard: tuple[int, int] | None = None) -> str:
    """The resource of a job, or of one shard of it: its number, and how many there are."""
    if not _NAME.fullmatch(name):
        raise Misuse(f"{name!r} is no name of a job: 1 to 200 of A-Z a-z 0-9 . _ ~ -")
    if shard is None:
        return f"job:{name}"
    index, count = shard
    if not 0 <= index < count <= SHARDS_MAX:
        raise Misuse(f"a shard is a number from 0, and how many there are: 1 to {SHARDS_MAX}")
    resource = shard_name(f"job:{name}", index, count)
    resource_path(resource)
    return resource


def shard_name(name: str, index: int, count: int) -> str:
    """`name@07.16`: as many digits as the count has, so that names sort as numbers do."""
    return f"{name}@{index:0{len(str(count))}d}.{count}"


def slot_text(second: int) -> str:
    """The slot that begins with this second since 1970."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y%m%dT%H%M%SZ")


def slot_second(text: str) -> int:
    """The second since 1970 with which a slot begins. The caller writes it in either form."""
    found = _KEPT.fullmatch(text) or _RFC_3339.fullmatch(text)
    try:
        second = -1 if found is None else int(datetime(*map(int, found.groups()), tzinfo=UTC).timestamp())
    except ValueError:
        second = -1
    if second < 0:
        raise Misuse(f"{text!r} is no slot such as 20261122T020000Z or 2026-11-22T02:00:00Z")
    return second


def begins(slot: str) -> int:
    """The second with which a slot begins that is kept, also one of a run that named none."""
    return slot_second(slot.partition("-")[0])


def interval_s(every_ms: int) -> int:
    """The interval of a schedule."""
    second, rest = divmod(every_ms, 1_000)
    if rest or second < 1:
        raise Misuse("every is whole seconds, at least one: slots are named by seconds")
    return second


def slot_at(every_ms: int, now: int) -> int:
    """The slot of a schedule at this second."""
    return now - now % interval_s(every_ms)


def caught_up(every_ms: int, slot: int, last: int | None, last_is_done: bool) -> list[int]:
    """The slots to run, oldest first, up to this one, if one was begun last."""
    if last is None or last >= slot:
        return [slot]
    every = interval_s(every_ms)
    missed = range(last - last % every + every, slot + 1, every)
    begun = [] if last_is_done else [last]
    return [*begun, *missed[: CAUGHT_UP_MAX - len(begun)]]


def is_next(every_ms: int, slot: int, last: int, last_is_done: bool) -> bool:
    """Says whether this is the oldest slot to run, now that another one was begun last."""
    return last <= slot and caught_up(every_ms, slot, last, last_is_done)[0] == slot


def is_late(slot: int, now: int, every_ms: int | None, overdue_after_ms: int | None) -> bool:
    """Whether it is too late for a slot."""
    within_ms = every_ms if overdue_after_ms is None else overdue_after_ms
    return within_ms is not None and (now - slot) * 1_000 > within_ms


def is_overdue(last_success: str | None, now: int, every_ms: int | None, overdue_after_ms: int | None) -> bool:
    """Whether a job should have succeeded again by now."""
    if last_success is None or every_ms is None:
        return False
    more_ms = every_ms if overdue_after_ms is None else overdue_after_ms
    return (now - begins(last_success)) * 1_000 > every_ms + more_ms


def is_stuck(running_ms: int, max_runtime_ms: int | None, recent: list[dict[str, Any]]) -> bool:
    """Whether a run takes longer than it may, or than it usually does."""
    if max_runtime_ms is not None:
        return running_ms > max_runtime_ms
    took = [run["duration_ms"] for run in recent if run.get("status") == "succeeded" and "duration_ms" in run]
    return len(took) >= _SUCCESSES_MIN and running_ms > max(3 * median(took), _STUCK_LEAST_MS)
