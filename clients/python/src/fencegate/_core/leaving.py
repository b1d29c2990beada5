"""How a scope ends (CC43 to CC46): whose result counts, and whether a release is due."""

from __future__ import annotations

from enum import Enum

from .._words import LossReason
from .classes import is_dead_everywhere


class Body(Enum):
    """How the body of a scope ended."""

    RETURNED = "returns"
    FAILED = "raises"
    CANCELLED = "cancelled-by-signal"
    DROPPED = "cancelled-outside"


class Outcome(Enum):
    """What the scope gives."""

    VALUE = "value"
    OWN_ERROR = "own-error"
    LOST = "lost"
    CANCELLED = "cancelled"


class Release(Enum):
    """When the lock is given back."""

    AWAITED = "awaited"
    BACKGROUND = "background"
    NONE = "none"


def leave(body: Body, lost: LossReason | None, ignores_loss: bool) -> tuple[Outcome, Release]:
    """How a scope ends, from how its body ended and whether the guard was lost by then."""
    return _outcome(body, lost, ignores_loss), _release(body, lost)


def _outcome(body: Body, lost: LossReason | None, ignores_loss: bool) -> Outcome:
    if body is Body.FAILED:
        return Outcome.OWN_ERROR
    if body is Body.CANCELLED and lost is not None:
        return Outcome.LOST
    if body is not Body.RETURNED:
        return Outcome.CANCELLED
    if lost is None or ignores_loss or lost in (LossReason.TRANSFERRED, LossReason.RELEASED):
        return Outcome.VALUE
    return Outcome.LOST


def _release(body: Body, lost: LossReason | None) -> Release:
    if lost is None:
        return Release.BACKGROUND if body is Body.DROPPED else Release.AWAITED
    # Of a lock on several resources the rest is given back where the loss is learnt.
    if lost is LossReason.RELEASED or is_dead_everywhere(lost, 1):
        return Release.NONE
    return Release.BACKGROUND
