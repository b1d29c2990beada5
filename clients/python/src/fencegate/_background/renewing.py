"""Renewals in batches (CC31, CC32), and when an operator's break is due (CC34)."""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING

from .._async._answer import AsyncAnswer
from .._core import clock
from .._core.ids import RequestIds
from .._core.renewals import (
    BREAKING,
    RefusedBy,
    Times,
    Told,
    is_about_lock,
    learn,
    times_of,
    told_of_batch,
)
from .._core.replies import AnswerBroken, Problem, summary
from .._guard.held import Held
from .._hooks import Renewed, RenewFailed
from .._json import members
from .._request import Request, json_request

if TYPE_CHECKING:
    from .loop import LoopEngine

_ASKED_AGAIN_S = 1.0


async def renew(engine: LoopEngine, batch: list[Held], within_ms: int, lateness_ms: int) -> None:
    """Renews all guards of a batch, whose turns it has, with one call."""
    sent_ms = clock.now_ms()
    try:
        try:
            # The head and the body of the answer are bounded alike.
            async with asyncio.timeout(within_ms / 1000):
                told: dict[str, Told] | str = await _ask(engine, [held.id for held in batch], within_ms)
        except TimeoutError:
            told = f"no answer within {within_ms} ms"
    finally:
        for held in batch:
            held.renewing.give_back()
    for held in batch:
        one = told if isinstance(told, str) else told.get(held.id, "the gateway left it out of its answer")
        _learn(engine, held, sent_ms, one, lateness_ms)
        engine.look_at(held)


def _learn(engine: LoopEngine, held: Held, sent_ms: int, told: Told | str, lateness_ms: int) -> None:
    hooks = engine.shared.hooks
    if isinstance(told, str):
        held.renew_failed()
        failure: str | None = told
    else:
        failure = learn(held, sent_ms, told)
        if isinstance(told, RefusedBy) and told.code == BREAKING:
            engine.ask_when_it_breaks(held)
    if failure is not None:
        hooks.tell(RenewFailed(held.resources, failure))
    elif isinstance(told, Times) and hooks.listens:
        deadline_ms = held.lease.deadline_ms
        headroom_ms = 0 if deadline_ms is None else max(deadline_ms - clock.now_ms(), 0)
        hooks.tell(Renewed(held.resources, headroom_ms / 1000, lateness_ms / 1000))


async def _ask(engine: LoopEngine, ids: list[str], within_ms: int) -> dict[str, Told] | str:
    if len(ids) == 1:
        request = json_request("POST", f"/locks/{ids[0]}/renew", {})
    else:
        request = json_request("POST", "/locks/renew", {"ids": ids})
    # Who waits for so long hears a little sooner why.
    request.within_ms = within_ms - within_ms // 10
    reply = await engine.caller.transport.attempt(request, RequestIds().next())
    if isinstance(reply, AsyncAnswer):
        try:
            answer = await reply.json()
            return {ids[0]: times_of(answer)} if len(ids) == 1 else told_of_batch(answer)
        except AnswerBroken as broken:
            return broken.failure.detail
    if isinstance(reply, Problem) and len(ids) == 1 and is_about_lock(reply):
        return {ids[0]: RefusedBy(reply.code, reply)}
    return summary(reply)


async def ask_when_it_breaks(engine: LoopEngine, reference: weakref.ref[Held]) -> None:
    """Asks when the break is due, apart from the renewals. Until it is known, the deadline is the end."""
    while (held := reference()) is not None and held.is_live():
        request = Request("GET", f"/locks/{held.id}")
        sent_ms = clock.now_ms()
        reply = await engine.caller.transport.attempt(request, RequestIds().next())
        if isinstance(reply, AsyncAnswer):
            try:
                lock = await reply.json()
                times = times_of(lock)
            except AnswerBroken:
                pass
            else:
                held.heard_why(members(lock).get("reason"))
                held.breaking(sent_ms, times.left_ms or 0)
                return
        del held
        await asyncio.sleep(_ASKED_AGAIN_S)
