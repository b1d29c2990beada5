"""A renewal that the holder asks for. All others go on in the background."""

from __future__ import annotations

from typing import Any

from .. import errors
from .._core import clock
from .._core.durations import text
from .._core.ids import RequestIds
from .._core.renewals import BREAKING, RefusedBy, Times, is_about_lock, learn, times_of
from .._core.replies import AnswerBroken, Failure, Problem, error_of, error_of_problem, is_retried
from .._guard.held import Held
from .._request import json_request
from . import _runtime as runtime
from ._answer import AsyncAnswer
from ._caller import AsyncCaller

_PAUSE_MS = 100


class Unasked:
    """No other ttl is asked for."""


UNASKED = Unasked()


TOO_LATE = "the lock was granted, but too little of its ttl is left: answers take too long for it"
"""Why a lock that was granted is not given out (CC19)."""


async def renew_first(caller: AsyncCaller, held: Held, left_ms: int | None) -> None:
    """Renews a guard before it is given out, so that its time begins now, as long as the lock can be there.

    It may last for `left_ms` from now on (CC19). Raises `LockLost`, or what the attempts come to, or `Unavailable` if
    less is left than a holder needs.
    """
    until_ms = caller.shared.call_until_ms()
    if left_ms is not None:
        until_ms = min(until_ms, clock.now_ms() + left_ms)
    await _renew_until(caller, held, UNASKED, until_ms)
    held.begin_call()
    if not held.lease.can_begin(clock.now_ms()):
        raise errors.Unavailable(TOO_LATE)


async def renew_now(caller: AsyncCaller, held: Held, ttl_ms: int | Unasked | None = UNASKED) -> None:
    """Renews a guard: until that is answered, or the deadline of the call has passed.

    With a ttl the lock lasts for that long from now on. Raises `LockLost`, or what the attempts come to.
    """
    until_ms = caller.shared.call_until_ms()
    held.begin_call()
    try:
        await _renew_until(caller, held, ttl_ms, until_ms)
    finally:
        caller.shared.engine.poke(held)


async def _renew_until(caller: AsyncCaller, held: Held, ttl_ms: int | Unasked | None, until_ms: int) -> None:
    await runtime.take(held.renewing)
    try:
        await _renew(caller, held, ttl_ms, until_ms)
    finally:
        held.renewing.give_back()


async def _renew(caller: AsyncCaller, held: Held, ttl_ms: int | Unasked | None, until_ms: int) -> None:
    while True:
        held.check()
        sent_ms = clock.now_ms()
        if not isinstance(ttl_ms, Unasked):
            # It may take effect although nobody hears of it: from now on the shorter of the two counts.
            held.ttl_asked(sent_ms, ttl_ms)
        told = await _ask(caller, held, ttl_ms)
        if isinstance(told, Times):
            if not isinstance(ttl_ms, Unasked):
                held.ttl_known(told.ttl_ms)
            learn(held, sent_ms, told)
            held.check()
            return
        if isinstance(told, RefusedBy):
            learn(held, sent_ms, told)
            if told.code == BREAKING:
                caller.shared.engine.ask_when_it_breaks(held)
            held.check()
            raise (
                errors.Misuse("the lock is not renewed") if told.problem is None else error_of_problem(told.problem, 1)
            )
        if not is_retried(told) or clock.now_ms() + _PAUSE_MS >= until_ms:
            raise error_of(told, 1)
        await runtime.sleep_until_ms(clock.now_ms() + _PAUSE_MS)


async def _ask(caller: AsyncCaller, held: Held, ttl_ms: int | Unasked | None) -> Times | RefusedBy | Failure:
    document: dict[str, Any] = {} if isinstance(ttl_ms, Unasked) else {"ttl": text(ttl_ms)}
    request = json_request("POST", f"/locks/{held.id}/renew", document)
    request.within_ms = min(caller.shared.settings.call_ms, held.lease.attempt_ms)
    reply = await caller.transport.attempt(request, RequestIds().next())
    if isinstance(reply, AsyncAnswer):
        reply.may_pause(request.within_ms)
        try:
            return times_of(await reply.json(), reply.status)
        except AnswerBroken as broken:
            return broken.failure
    if isinstance(reply, Problem) and is_about_lock(reply):
        return RefusedBy(reply.code, reply)
    return reply
