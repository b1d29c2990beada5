"""What happens inside, for metrics and logs (CC60): one function that is told of each event.

No event ever has a token or the id of a lock. Durations are in seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from ._words import LossReason

logger = logging.getLogger("fencegate")
"""The library's logger. It says nothing unless the program sets it up."""
logger.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class Acquired:
    """A lock was granted, so long after the call."""

    resources: tuple[str, ...]
    waited: float


@dataclass(frozen=True, slots=True)
class Ended:
    """A guard ended, so long after the grant."""

    resources: tuple[str, ...]
    reason: LossReason
    held: float


@dataclass(frozen=True, slots=True)
class Renewed:
    """A renewal was answered. `headroom` is the time that is left; `lateness` how late the renewal began, which is a
    sign of a busy loop."""

    resources: tuple[str, ...]
    headroom: float
    lateness: float


@dataclass(frozen=True, slots=True)
class RenewFailed:
    """A renewal was not answered, or not as wished; it goes on until the deadline."""

    resources: tuple[str, ...]
    detail: str


@dataclass(frozen=True, slots=True)
class Expiring:
    """The lock should have been renewed long ago, and nobody has answered; so much is left of it."""

    resources: tuple[str, ...]
    left: float


@dataclass(frozen=True, slots=True)
class Breaking:
    """An operator is about to break the lock; so much is left of it."""

    resources: tuple[str, ...]
    left: float


@dataclass(frozen=True, slots=True)
class Revived:
    """A guard that holds on was confirmed so long after its deadline."""

    resources: tuple[str, ...]
    lapsed: float


@dataclass(frozen=True, slots=True)
class Retry:
    """An attempt of a call failed, and another follows. `attempt` is the one that failed, from 1."""

    call: str
    attempt: int
    detail: str


@dataclass(frozen=True, slots=True)
class Called:
    """A call ended. `error_class` is None if it ended well."""

    call: str
    error_class: str | None
    attempts: int
    took: float


@dataclass(frozen=True, slots=True)
class OutcomeResolved:
    """An outcome that was unknown was asked for; `resolved` says whether it is known now."""

    resource: str
    resolved: bool


@dataclass(frozen=True, slots=True)
class StaleWrite:
    """A write bounced, since the lock was no longer ours: the fence did its work."""

    resource: str
    reason: LossReason


@dataclass(frozen=True, slots=True)
class ReleaseFailed:
    """A release was not answered; it goes on in the background."""

    resources: tuple[str, ...]
    detail: str


Event: TypeAlias = (
    Acquired
    | Ended
    | Renewed
    | RenewFailed
    | Expiring
    | Breaking
    | Revived
    | Retry
    | Called
    | OutcomeResolved
    | StaleWrite
    | ReleaseFailed
)

Hook: TypeAlias = Callable[[Event], object]

_LOUD = (Ended, RenewFailed, Expiring, Breaking, Revived, StaleWrite, ReleaseFailed)


class Hooks:
    """Tells the logger and the caller's hook. The hook should be quick; if it raises, that is logged and ignored."""

    __slots__ = ("_hook",)

    def __init__(self, hook: Hook | None) -> None:
        self._hook = hook

    @property
    def listens(self) -> bool:
        """Whether anybody hears of what happens all the time."""
        return self._hook is not None or logger.isEnabledFor(logging.DEBUG)

    def tell(self, event: Event) -> None:
        """Something happened."""
        is_quiet = not isinstance(event, _LOUD) or (isinstance(event, Ended) and event.reason is LossReason.RELEASED)
        logger.log(logging.DEBUG if is_quiet else logging.WARNING, "%s", event)
        if self._hook is None:
            return
        try:
            self._hook(event)
        except Exception:
            logger.exception("a hook failed")
