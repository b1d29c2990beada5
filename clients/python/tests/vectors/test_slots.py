"""Slots and names of jobs, and what is said of a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fencegate import Misuse
from fencegate._core import slots
from fencegate._core.durations import whole_ms

from .replay import cases


def _ms(duration: str | None) -> int | None:
    return None if duration is None else whole_ms(duration)


def _name(case: dict[str, Any]) -> str:
    shard = case.get("shard")
    return slots.job_resource(case["name"], None if shard is None else (shard["index"], shard["count"]))


def _catch_up(case: dict[str, Any]) -> tuple[str, str, int]:
    last = None if case["last_slot"] is None else slots.slot_second(case["last_slot"])
    found = slots.caught_up(whole_ms(case["every"]), slots.slot_second(case["slot"]), last, case["last_is_done"])
    return slots.slot_text(found[0]), slots.slot_text(found[-1]), len(found)


DECIDED: dict[str, Callable[[dict[str, Any]], object]] = {
    "slot": lambda case: slots.slot_text(slots.slot_at(whole_ms(case["every"]), slots.slot_second(case["now"]))),
    "name": _name,
    "text": lambda case: slots.slot_text(slots.slot_second(case["given"])),
    "catch_up": _catch_up,
    "late": lambda case: slots.is_late(
        slots.slot_second(case["slot"]),
        slots.slot_second(case["now"]),
        _ms(case["every"]),
        _ms(case["overdue_after"]),
    ),
    "overdue": lambda case: slots.is_overdue(
        case["last_success"], slots.slot_second(case["now"]), _ms(case["every"]), _ms(case["overdue_after"])
    ),
    "stuck": lambda case: slots.is_stuck(case["running_ms"], case["max_runtime_ms"], case["recent"]),
}
EXPECTED: dict[str, Callable[[dict[str, Any]], object]] = {
    "slot": lambda case: case["slot"],
    "name": lambda case: case["resource"],
    "text": lambda case: case["slot"],
    "catch_up": lambda case: (case["first"], case["last"], case["count"]),
    "late": lambda case: case["late"],
    "overdue": lambda case: case["overdue"],
    "stuck": lambda case: case["stuck"],
}


@cases("slots")
def test_slots(case: dict[str, Any]) -> None:
    kind = case["kind"]
    if case.get("refused"):
        with pytest.raises(Misuse):
            DECIDED[kind](case)
    else:
        assert DECIDED[kind](case) == EXPECTED[kind](case)
