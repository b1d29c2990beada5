"""Gives locks back, and buries ids whose grant may still be on its way (CC18, CC43), until that is answered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from .._async._answer import AsyncAnswer
from .._core import clock
from .._core.backoff import Backoff
from .._core.ids import RequestIds
from .._core.replies import AnswerBroken, Problem, floor_ms, summary
from .._guard.held import Burial
from .._hooks import ReleaseFailed
from .._request import Request

if TYPE_CHECKING:
    from .loop import LoopEngine

_AFTER_TTL_MS = 60_000
"""A lock that was not given back is over this long after its ttl, at the latest."""
_PAUSE_MS = 30_000
"""The longest pause between two attempts that nobody waits for."""


async def until_answered(engine: LoopEngine, burial: Burial) -> bool:
    """Asks until a 2xx says that the id is over, or a gateway that the lock is not ours. Gives whether it is over."""
    began_ms, ids, backoff = clock.now_ms(), RequestIds(), Backoff()
    until_ms = None if burial.ttl_ms is None else began_ms + burial.ttl_ms + _AFTER_TTL_MS
    request = Request("DELETE", f"/locks/{burial.id}")
    while True:
        # An attempt that `close` breaks off, with the connections, is made once more.
        was_closed = engine.shared.is_closed
        reply = await engine.caller.transport.attempt(request, ids.next())
        if isinstance(reply, AsyncAnswer):
            try:
                await reply.bytes()
            except AnswerBroken:
                await reply.close()
            return True
        if ids.attempts == 1:
            engine.shared.hooks.tell(ReleaseFailed(burial.resources, summary(reply)))
        # Another principal's, such as a successor's: it is not ours to give back, and never will be.
        if isinstance(reply, Problem) and reply.code == "lock-not-found":
            return False
        now = clock.now_ms()
        if (until_ms is not None and until_ms <= now) or was_closed:
            return False
        # The longer nobody answers, the less often is asked.
        pause_ms = backoff.next(clock.draw(), floor_ms(reply), _PAUSE_MS) or 0
        patient_ms = min((now - began_ms) // 8, _PAUSE_MS)
        await asyncio.sleep(max(pause_ms, patient_ms, 10) / 1000)
