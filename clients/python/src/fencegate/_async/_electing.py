"""One leader among many candidates (CC52). Written by hand, once for asyncio and once for threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from .._core import clock
from .._core.backoff import portion
from .._wish import LockOptions
from .._words import LossReason
from . import _runtime as runtime
from ._caller import AsyncCaller
from ._lock import AsyncLock
from ._scope import acquire

T = TypeVar("T")


async def elect(
    caller: AsyncCaller,
    name: str,
    work: Callable[[AsyncLock], Awaitable[T]],
    options: LockOptions,
    rejoins: bool,
    stop_grace_ms: int,
) -> T:
    """Waits for the leadership, runs the work in a task of its own, and stands again if it is lost."""
    while True:
        lock = await acquire(caller, name, options)
        task = asyncio.get_running_loop().create_task(_run(work, lock))
        lost = asyncio.get_running_loop().create_task(lock.lost.wait())
        try:
            await asyncio.wait({task, lost}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task}, timeout=stop_grace_ms / 1000)
            await lock.release()
            raise
        finally:
            lost.cancel()
        if not lock.lost.is_set():
            await lock.release()
            return task.result()
        # The work ends before anybody stands again.
        task.cancel("the leadership is lost")
        await asyncio.wait({task}, timeout=stop_grace_ms / 1000)
        if not rejoins or lock.reason is LossReason.CLOSED:
            raise lock._held.loss_error()
        await runtime.sleep_until_ms(clock.now_ms() + portion(1_000, clock.draw()))


def _run(work: Callable[[AsyncLock], Awaitable[T]], lock: AsyncLock) -> Coroutine[Any, Any, T]:
    async def run() -> T:
        return await work(lock)

    return run()
