"""What is asked to renew locks, and what the answers say of each (CC31 to CC34)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from .._json import items, members
from .classes import loss_of
from .replies import AnswerBroken, Foreign, Problem

if TYPE_CHECKING:
    from .._guard.held import Held

BATCH_MAX = 1_000
"""The most locks of one call."""
BREAKING = "lock-breaking"


@dataclass(frozen=True, slots=True)
class Times:
    """What is left of a lock, and its ttl, in milliseconds; None: for ever."""

    left_ms: int | None
    ttl_ms: int | None


@dataclass(frozen=True, slots=True)
class RefusedBy:
    """The lock was not renewed: with this code, and this problem if there was a whole one."""

    code: str
    problem: Problem | None = None
    words: object = None
    """Why an operator breaks it, if the answer says so."""


Told: TypeAlias = Times | RefusedBy


def times_of(lock: Any, status: int = 200) -> Times:
    """The times of a lock, as an answer has them. Raises `AnswerBroken` if it is no lock."""
    said = members(lock)
    if "expires_in_ms" not in said or "ttl_ms" not in said:
        raise AnswerBroken(Foreign(status, "an answer that is not the gateway's: no lock is in it"))
    left_ms, ttl_ms = _whole(said["expires_in_ms"], status), _whole(said["ttl_ms"], status)
    if left_ms is None:
        left_ms = _whole(said.get("confirm_within_ms"), status)
    return Times(left_ms, ttl_ms)


def told_of_batch(answer: Any) -> dict[str, Told]:
    """What the answer to the renewal of many says of each, by its id. What it leaves out is not there."""
    found = items(members(answer).get("items"))
    if found is None:
        raise AnswerBroken(Foreign(200, "an answer that is not the gateway's: no items are in it"))
    told: dict[str, Told] = {}
    for item in map(members, found):
        id, lock, code = item.get("id"), item.get("lock"), item.get("code")
        if not isinstance(id, str):
            continue
        if lock is not None:
            told[id] = times_of(lock)
        elif isinstance(code, str):
            told[id] = RefusedBy(code, words=item.get("reason"))
    return told


def is_about_lock(problem: Problem) -> bool:
    """Whether a refusal is about the lock itself, and no failure of the attempt."""
    return problem.code == BREAKING or loss_of(problem.code) is not None


def learn(held: Held, sent_ms: int, told: Told) -> str | None:
    """Tells a guard what became of its renewal. Gives why it failed, if it did and the guard goes on.

    A break that is due is not told here: it has to be asked when.
    """
    if isinstance(told, Times):
        held.renewed(sent_ms, told.left_ms, told.ttl_ms)
        return None
    held.heard_why(told.words if told.problem is None else told.problem.members.get("reason"))
    if told.code == BREAKING:
        return None
    reason = loss_of(told.code)
    if reason is None:
        held.renew_failed()
        return told.code
    held.lose(reason, told.problem)
    return None


def _whole(value: object, status: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise AnswerBroken(Foreign(status, "an answer that is not the gateway's: a time is no number"))
    return max(value, 0)
