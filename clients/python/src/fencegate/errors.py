"""Errors by what the caller does about them (CC58): catch the class, not codes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from ._words import ErrorClass, LossReason, Supersession

if TYPE_CHECKING:
    from ._core.durations import Duration


class FenceError(Exception):
    """Anything that a call of this library can fail with.

    Every error carries what is known: `detail` (for people), `code` (the gateway's, None if no gateway answered or
    nothing was sent), `status` (of the answer), `resource`, `request_id` (as in the gateway's log), `retryable`
    (whether the gateway says that the same may succeed later), `attempts`, `retry_after`, `operator_reason`
    (an operator's words on why). Of a write also its `idempotency_key` and `number`.
    """

    error_class: ClassVar[str] = "FenceError"

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        status: int | None = None,
        resource: str | None = None,
        request_id: str | None = None,
        retryable: bool = False,
        attempts: int = 0,
        retry_after: timedelta | None = None,
        operator_reason: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code
        self.status = status
        self.resource = resource
        self.request_id = request_id
        self.retryable = retryable
        self.attempts = attempts
        self.retry_after = retry_after
        self.operator_reason = operator_reason
        self.idempotency_key: str | None = None
        self.number: int | None = None

    def __str__(self) -> str:
        code = f" [{self.code}]" if self.code else ""
        words = f": {self.operator_reason}" if self.operator_reason else ""
        attempts = f" after {self.attempts} attempts" if self.attempts > 1 else ""
        return f"{self.detail}{words}{code}{attempts}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors travel between processes: what belongs to this one stays here.
        state = {name: value for name, value in self.__dict__.items() if not name.startswith("_")}
        return (_rebuilt, (_travelling(type(self)), self.detail, state))


def _travelling(kind: type[FenceError]) -> type[FenceError]:
    return next(one for one in kind.__mro__ if one.__module__ == __name__)


def _rebuilt(kind: type[FenceError], detail: str, state: dict[str, Any]) -> FenceError:
    error = kind.__new__(kind, detail)
    error.__dict__.update(state)
    return error


class LockLost(FenceError):
    """The lock is lost: stop, forget what you read, take the lock again.

    `reason` says why; `superseded_by` and `superseded_at` what put a newer token in its place, and when, if the
    gateway said so.
    """

    error_class: ClassVar[str] = ErrorClass.LOCK_LOST

    def __init__(
        self,
        detail: str,
        *,
        reason: LossReason,
        superseded_by: Supersession | None = None,
        superseded_at: datetime | None = None,
        **known: Any,
    ) -> None:
        super().__init__(detail, **known)
        self.reason = reason
        self.superseded_by = superseded_by
        self.superseded_at = superseded_at


class Busy(FenceError):
    """Something is in the way: come back later, nothing is wrong.

    `holder` and `holder_age` tell who holds the lock and for how long, `position` the place in line that was reached.
    """

    error_class: ClassVar[str] = ErrorClass.BUSY
    kind: ClassVar[str] = "Other"

    def __init__(
        self,
        detail: str,
        *,
        holder: str | None = None,
        holder_age: timedelta | None = None,
        position: int | None = None,
        **known: Any,
    ) -> None:
        super().__init__(detail, **known)
        self.holder = holder
        self.holder_age = holder_age
        self.position = position


class LockHeld(Busy):
    """Somebody else holds the lock."""

    kind = "LockHeld"


class WaitElapsed(Busy):
    """The wait was over before it was our turn."""

    kind = "WaitElapsed"


class QueueFull(Busy):
    """Too many wait for the lock."""

    kind = "QueueFull"


class ResourceFrozen(Busy):
    """An operator has stopped all writers."""

    kind = "ResourceFrozen"


class ResourceDraining(Busy):
    """Effects of older tokens at an upstream are under way."""

    kind = "ResourceDraining"


class InProgress(Busy):
    """The first request with this key is under way."""

    kind = "InProgress"


class Changed(FenceError):
    """Something changed since it was read: read again, redo, send again. The token is good.

    Of a commit `index` says which operation could not be done. `version` and `etag` are those that are there now.
    """

    error_class: ClassVar[str] = ErrorClass.CHANGED

    def __init__(
        self,
        detail: str,
        *,
        index: int | None = None,
        version: int | None = None,
        etag: str | None = None,
        **known: Any,
    ) -> None:
        super().__init__(detail, **known)
        self.index = index
        self.version = version
        self.etag = etag


class NotFound(FenceError):
    """It is not there."""

    error_class: ClassVar[str] = ErrorClass.NOT_FOUND


class Unavailable(FenceError):
    """Nobody could do it until the call's deadline. It was not applied, and nothing of it is on its way."""

    error_class: ClassVar[str] = ErrorClass.UNAVAILABLE


class OutcomeUnknown(FenceError):
    """A write may have taken effect or not: find out with `resolve`, and assume nothing.

    `operation` is its operation if a gateway named it; `can_resend` says whether `resolve` may send it again.
    """

    error_class: ClassVar[str] = ErrorClass.OUTCOME_UNKNOWN

    def __init__(self, detail: str, *, operation: str | None = None, can_resend: bool = False, **known: Any) -> None:
        super().__init__(detail, **known)
        self.operation = operation
        self.can_resend = can_resend

    def resolve(self, within: Duration = "60s") -> Any:
        """Finds out what became of it: gives `Applied` or `NotApplied`. With an `AsyncFencegate` it is awaited.

        It looks the write up, and sends it again under its key and number as long as the gateway surely knows the
        key. Raises `OutcomeUnknown` if it is unknown still.
        """
        raise Misuse("an unknown outcome is resolved in the process that has it")

    def abandon(self, within: Duration = "60s") -> Any:
        """Gives the lock back, so that no copy of the write takes effect any more, and asks then: the answer is final.

        Gives `Applied` or `NotApplied`. With an `AsyncFencegate` it is awaited. The guard is released by this,
        whatever comes of it. Raises `OutcomeUnknown` if no gateway could be asked.
        """
        raise Misuse("an unknown outcome is resolved in the process that has it")


class Misuse(FenceError):
    """The call or a setting is wrong: sent again it fails again."""

    error_class: ClassVar[str] = ErrorClass.MISUSE


class WouldDeadlock(Misuse):
    """This task or thread holds the lock already: locks are not re-entrant."""

    error_class = "WouldDeadlock"


class NoFence(Misuse):
    """A guard without a lock behind it cannot write."""

    error_class = "NoFence"


class GatewayFault(FenceError):
    """Something between here and the ledger does what it should not: tell the operator, with the `request_id`."""

    error_class: ClassVar[str] = ErrorClass.GATEWAY_FAULT


class CursorVoid(FenceError):
    """The place in the feed is void: begin behind `begin_after`, and check what was built since."""

    error_class: ClassVar[str] = ErrorClass.CURSOR_VOID

    def __init__(self, detail: str, *, begin_after: str | None = None, **known: Any) -> None:
        super().__init__(detail, **known)
        self.begin_after = begin_after


class Denied(FenceError):
    """No right to do this, or no credential that is good."""

    error_class: ClassVar[str] = ErrorClass.DENIED


BUSY_OF_CODE: dict[str, type[Busy]] = {
    "lock-held": LockHeld,
    "lock-wait-elapsed": WaitElapsed,
    "queue-full": QueueFull,
    "resource-frozen": ResourceFrozen,
    "resource-draining": ResourceDraining,
    "idempotency-in-progress": InProgress,
}

_WHY_LOST = {
    LossReason.SUPERSEDED: "somebody else holds it now",
    LossReason.BROKEN: "an operator broke it",
    LossReason.VOID: "the ledger was re-fenced",
    LossReason.RELEASED_ELSEWHERE: "it was released elsewhere",
    LossReason.HOLD_EXCEEDED: "it was held for as long as it may be",
    LossReason.GONE: "the gateway does not know it any more",
    LossReason.ORDER_STALE: "the order of the fence did not rise",
    LossReason.UNCONFIRMED: "its deadline passed before a renewal was answered",
    LossReason.STALLED: "the work gave no sign of life",
    LossReason.TRANSFERRED: "it was handed over",
    LossReason.RELEASED: "it was released",
    LossReason.CLOSED: "the client was closed",
    LossReason.FORKED: "this process is a copy of the one that holds it",
}


def lost(reason: LossReason, operator_reason: str | None = None) -> LockLost:
    """A loss of which no problem document has told."""
    return LockLost(f"the lock is lost: {_WHY_LOST[reason]}", reason=reason, operator_reason=operator_reason)
