# Made by scripts/unasync.py out of ../_async/_unknown.py: change that, and run it again.
"""An outcome that is unknown, and how to find it out (CC24, CC25)."""

from __future__ import annotations

from typing import Any, Protocol

from .. import errors
from .._core import clock
from .._core.durations import Duration, whole_ms
from .._results import Applied, NotApplied, Settled
from .._words import OperationOutcome
from . import _runtime as runtime
from ._caller import Caller
from ._operations import operation_of_id


class UnknownWrite(Protocol):
    """A write of unknown outcome."""

    def go_on(self, within_ms: int) -> Settled:
        """Goes on with it for so long."""
        ...

    def bury(self, within_ms: int) -> bool:
        """Gives its lock back."""
        ...

    def ask_finally(self) -> Settled | None:
        """Asks once its lock is over."""
        ...


class OutcomeUnknown(errors.OutcomeUnknown):
    """A write to storage may have taken effect or not: find out with `resolve`, and assume nothing."""

    def __init__(self, detail: str, *, write: UnknownWrite, **known: Any) -> None:
        super().__init__(detail, **known)
        self._write = write

    def resolve(self, within: Duration = "60s") -> Settled:
        """Finds out what became of it: gives `Applied` or `NotApplied`.

        It looks the write up, and sends it again under its key and number as long as the gateway surely knows the
        key. Raises `OutcomeUnknown` if it is unknown still.
        """
        return self._write.go_on(whole_ms(within, "within"))

    def abandon(self, within: Duration = "60s") -> Settled:
        """Gives the lock back, so that no copy of the write takes effect any more, and asks then: the answer is final.

        Gives `Applied` or `NotApplied`. The guard is released by this, whatever comes of it. Raises `OutcomeUnknown`
        if no gateway could be asked.
        """
        if self._write.bury(whole_ms(within, "within")):
            settled = self._write.ask_finally()
            if settled is not None:
                return settled
        raise self


class OutcomeOfForward(errors.OutcomeUnknown):
    """A request to an upstream may have taken effect or not. It is never sent again, only looked up."""

    def __init__(self, detail: str, *, caller: Caller, **known: Any) -> None:
        super().__init__(detail, **known)
        self._caller = caller

    def resolve(self, within: Duration = "60s") -> Settled:
        """Looks it up until the gateway's record says what became of it. Raises `OutcomeUnknown` if it does not."""
        until_ms = clock.now_ms() + whole_ms(within, "within")
        pause_ms = 100
        if self.operation is None:
            raise self
        while True:
            settled = self._look_up(self.operation, until_ms)
            if settled is not None:
                return settled
            if clock.now_ms() + pause_ms >= until_ms:
                raise self
            runtime.sleep_until_ms(clock.now_ms() + pause_ms)
            pause_ms = min(pause_ms * 2, 2_000)

    def abandon(self, within: Duration = "60s") -> Settled:
        """The same: a release does not reach what is at an upstream."""
        return self.resolve(within)

    def _look_up(self, operation: str, until_ms: int) -> Settled | None:
        try:
            found = operation_of_id(self._caller, operation, until_ms)
        except errors.FenceError:
            return None
        if found is None:
            return None
        if found.outcome == OperationOutcome.APPLIED:
            return Applied(found.operation, found.version)
        if found.outcome == OperationOutcome.NOT_APPLIED:
            return NotApplied(errors.Unavailable("the gateway's record says that it took no effect"))
        return None
