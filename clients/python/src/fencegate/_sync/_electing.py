"""One leader among many candidates (CC52). Written by hand, once for asyncio and once for threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .._core import clock
from .._core.backoff import portion
from .._wish import LockOptions
from .._words import LossReason
from . import _runtime as runtime
from ._caller import Caller
from ._lock import Lock
from ._scope import acquire

T = TypeVar("T")


def elect(
    caller: Caller,
    name: str,
    work: Callable[[Lock], T],
    options: LockOptions,
    rejoins: bool,
    stop_grace_ms: int,
) -> T:
    """Waits for the leadership, runs the work in this thread, and stands again if it was lost meanwhile.

    A thread cannot be ended from outside: the work is told by `lock.lost`, and is waited for however long it takes.
    """
    while True:
        lock = acquire(caller, name, options)
        is_lost = lock.lost
        try:
            result = work(lock)
        except Exception:
            # Whoever loses the lock in the midst of its work may fail by that.
            if not is_lost.is_set():
                lock.release()
                raise
        except BaseException:
            lock.release()
            raise
        else:
            if not is_lost.is_set():
                lock.release()
                return result
        if not rejoins or lock.reason is LossReason.CLOSED:
            raise lock._held.loss_error()
        runtime.sleep_until_ms(clock.now_ms() + portion(1_000, clock.draw()))
