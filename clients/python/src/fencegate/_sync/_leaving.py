# Made by scripts/unasync.py out of ../_async/_leaving.py: change that, and run it again.
"""The end of a scope (CC43 to CC46): whose result counts, and when the lock is given back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._core.leaving import Body, Outcome, Release, leave
from .._words import LockStatus, LossReason
from . import _runtime as runtime

if TYPE_CHECKING:
    from ._lock import Lock


class Leaving:
    """The scope of a lock, from its beginning to its end."""

    def __init__(self, lock: Lock, ignores_loss: bool, interruption: runtime.Interruption) -> None:
        self._lock = lock
        self._ignores_loss = ignores_loss
        self._interruption = interruption
        held = lock._held
        if not ignores_loss:
            lock._on_signal = self._interruption.interrupt
            if held.status() is LockStatus.LOST:
                self._interruption.interrupt()

    def leave(self, error: BaseException | None) -> None:
        """The body has ended, with this error if it failed. Raises `LockLost` if the scope fails by that."""
        lock, held = self._lock, self._lock._held
        lock._on_signal = None
        was_interrupted = self._interruption.leave(error)
        if error is None:
            body = Body.RETURNED
        elif was_interrupted:
            body = Body.CANCELLED
        else:
            body = Body.DROPPED if runtime.is_cancelled(error) else Body.FAILED
        status = held.status()
        lost = LossReason.RELEASED if status is LockStatus.RELEASED else held.lease.reason
        outcome, release = leave(body, lost, self._ignores_loss)
        if release is Release.AWAITED:
            lock.release()
        elif release is Release.BACKGROUND:
            held.dropped()
        if outcome is Outcome.LOST:
            raise held.loss_error() from error
