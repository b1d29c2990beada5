"""Follows the events of locks (CC39): a loss is known before the next renewal tells it. Silence means nothing: the
deadline alone decides."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections import deque
from typing import TYPE_CHECKING

from .._async._answer import AsyncAnswer
from .._core import clock
from .._core.backoff import portion
from .._core.ids import RequestIds
from .._core.replies import AnswerBroken, Problem
from .._core.sse import SseEvent, SseParser, SseTooLong
from .._guard.held import Held
from .._json import members
from .._request import Request
from .._words import LossReason

if TYPE_CHECKING:
    from .loop import LoopEngine

_REFUSED_MS = 60_000
"""A gateway that refuses a stream is not asked for one for so long."""
_DEAD_MS = 60_000
"""Without a byte for so long, a stream is dead: gateways send comments."""
_LASTED_MS = 30_000
_PAUSE_MS = 500
_PAUSE_MOST_MS = 30_000
_PURGED_AT = 64
"""Among fewer guards that wait for a stream nobody looks for those that are over."""

_REASON_OF_STATE = {
    "superseded": LossReason.SUPERSEDED,
    "broken": LossReason.BROKEN,
    "void": LossReason.VOID,
    "released": LossReason.RELEASED_ELSEWHERE,
}


class Watching:
    """The streams about the locks of a client: at most 16 with those of the feed, for the locks held longest."""

    def __init__(self, engine: LoopEngine) -> None:
        self._engine = engine
        # Guards come here in the order of their grants.
        self._waiting: deque[weakref.ref[Held]] = deque()
        self._purged_at = _PURGED_AT
        self._tries: asyncio.TimerHandle | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def watch(self, held: Held) -> None:
        """Follows the events of this guard as soon as there is a stream for it."""
        self._waiting.append(weakref.ref(held))
        if len(self._waiting) > self._purged_at:
            self._purge()
        self._next()

    def stop(self, id: str) -> None:
        """The guard with this lock is over."""
        task = self._tasks.pop(id, None)
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def _purge(self) -> None:
        """Forgets guards that are over, behind one that waits for long."""
        waiting = [(reference, reference()) for reference in self._waiting]
        self._waiting = deque(reference for reference, held in waiting if held is not None and held.lease.is_live)
        # Seldom enough that it costs little for each guard.
        self._purged_at = max(_PURGED_AT, 2 * len(self._waiting))

    def _next(self) -> None:
        """Gives free streams to those who wait."""
        while self._waiting:
            held = self._waiting[0]()
            if held is None or not held.lease.is_live:
                self._waiting.popleft()
                continue
            if not self._engine.shared.take_stream():
                # Those of the feed may end, and tell nobody here.
                if self._tries is None:
                    self._tries = self._engine.loop.call_later(_PAUSE_MOST_MS / 1000, self._try_again)
                return
            self._waiting.popleft()
            self._tasks[held.id] = self._engine.spawn(self._follow(weakref.ref(held)))

    def _try_again(self) -> None:
        self._tries = None
        self._next()

    async def _follow(self, reference: weakref.ref[Held]) -> None:
        """Follows until the guard is over."""
        shared, pause_ms = self._engine.shared, _PAUSE_MS
        try:
            while True:
                wait_ms = shared.no_streams_before_ms - clock.now_ms()
                if wait_ms <= 0:
                    began_ms = clock.now_ms()
                    if not await self._connect(reference):
                        return
                    # Whoever ends streams at once is asked less and less often.
                    lasted = clock.now_ms() > began_ms + _LASTED_MS
                    pause_ms = _PAUSE_MS if lasted else min(pause_ms * 2, _PAUSE_MOST_MS)
                    wait_ms = max(shared.no_streams_before_ms - clock.now_ms(), 0)
                wait_ms += pause_ms // 2 + portion(pause_ms, clock.draw())
                await asyncio.sleep(wait_ms / 1000)
        finally:
            shared.give_stream_back()
            self._next()

    async def _connect(self, reference: weakref.ref[Held]) -> bool:
        """One connection, until it ends. Gives whether there is a guard yet."""
        held = reference()
        if held is None or not held.is_live():
            return False
        request = Request("GET", f"/locks/{held.id}/events", [(b"Accept", b"text/event-stream")])
        del held
        reply = await self._engine.caller.transport.attempt(request, RequestIds().next())
        if isinstance(reply, AsyncAnswer):
            await self._read(reply, reference)
        elif isinstance(reply, Problem):
            if reply.status in (429, 503):
                self._engine.shared.no_streams_before_ms = clock.now_ms() + _REFUSED_MS
            held = reference()
            if held is not None:
                held.refused(reply)
        held = reference()
        return held is not None and held.is_live()

    async def _read(self, answer: AsyncAnswer, reference: weakref.ref[Held]) -> None:
        parser = SseParser()
        answer.may_pause(_DEAD_MS)
        try:
            async for piece in answer.pieces():
                held = reference()
                if held is None:
                    return
                for item in parser.push(piece):
                    if isinstance(item, SseTooLong):
                        return
                    if isinstance(item, SseEvent):
                        self._learn(held, item)
                if not held.is_live():
                    return
                del held
        except AnswerBroken:
            pass
        finally:
            await answer.close()

    def _learn(self, held: Held, event: SseEvent) -> None:
        try:
            said = members(json.loads(event.data))
        except ValueError:
            return
        state = said.get("state")
        if not isinstance(state, str):
            return
        if state in ("broken", "breaking"):
            held.heard_why(said.get("reason"))
        if event.event in ("lost", "released"):
            held.lose(_REASON_OF_STATE.get(state, LossReason.GONE))
        elif event.event == "breaking":
            # Nobody knows how long the event was on its way.
            self._engine.ask_when_it_breaks(held)
