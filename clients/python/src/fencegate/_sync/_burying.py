"""Gives a lock back, and waits for that for a while. Written by hand, once for asyncio and once for threads."""

from __future__ import annotations

import concurrent.futures

from .._core import clock
from .._core.ids import RequestIds
from .._core.replies import AnswerBroken, Problem, summary
from .._guard.held import Burial
from .._hooks import ReleaseFailed
from .._request import Request
from ._answer import Answer
from ._caller import Caller

AWAITED_MS = 5_000
"""How long the holder waits for its release to be answered."""


def bury(caller: Caller, burial: Burial, within_ms: int) -> bool:
    """Gives it back, and waits for that; then it goes on in the background, also if the caller is interrupted.

    Gives True once it is answered: nothing of the id will ever take effect any more.
    """
    until_ms = clock.now_ms() + within_ms
    is_done = False
    try:
        # The first attempt is made here, over a connection that is there already.
        request = Request("DELETE", f"/locks/{burial.id}", within_ms=within_ms)
        reply = caller.transport.attempt(request, RequestIds().next())
        if isinstance(reply, Answer):
            is_done = True
            try:
                reply.bytes()
            except AnswerBroken:
                reply.close()
            return True
        caller.shared.hooks.tell(ReleaseFailed(burial.resources, summary(reply)))
        if isinstance(reply, Problem) and reply.code == "lock-not-found":
            is_done = True
            return False
    except BaseException:
        if not is_done:
            caller.shared.engine.bury(burial)
        raise
    going_on: concurrent.futures.Future[bool] = caller.shared.engine.bury(burial)
    try:
        return going_on.result(max(until_ms - clock.now_ms(), 0) / 1000)
    except (concurrent.futures.TimeoutError, concurrent.futures.CancelledError):
        return False
