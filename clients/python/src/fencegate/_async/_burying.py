"""Gives a lock back, and waits for that for a while. Written by hand, once for asyncio and once for threads."""

from __future__ import annotations

import asyncio

from .._guard.held import Burial
from ._caller import AsyncCaller

AWAITED_MS = 5_000
"""How long the holder waits for its release to be answered."""


async def bury(caller: AsyncCaller, burial: Burial, within_ms: int) -> bool:
    """Gives it back, and waits for that; then it goes on in the background, also if the caller is cancelled.

    Gives True once it is answered: nothing of the id will ever take effect any more.
    """
    task: asyncio.Task[bool] | None = caller.shared.engine.bury(burial)
    if task is None:
        return False
    done, _ = await asyncio.wait({task}, timeout=within_ms / 1000)
    return bool(done) and not task.cancelled() and task.exception() is None and task.result()
