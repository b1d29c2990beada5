"""Keeps all guards of a client: one timer, which gives signals in time, begins renewals, and follows events."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import weakref
from typing import TYPE_CHECKING

from .._core import clock
from .._core.renewals import BATCH_MAX
from .._guard.held import Held
from .renewing import renew
from .watching import Watching

if TYPE_CHECKING:
    from .loop import LoopEngine

_SLICE_MS = 5_000
"""The longest sleep: timers stand still while the machine is suspended, and the clock does not."""


class Keeper:
    """Looks at each guard when that is due. All of it runs on the loop."""

    def __init__(self, engine: LoopEngine) -> None:
        self._engine = engine
        self._heap: list[tuple[int, int, weakref.ref[Held]]] = []
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self.watching = Watching(engine)

    def look_at(self, held: Held) -> None:
        """Does what is due of this guard, and looks at it again in time."""
        # 1. The clock first: a process that was stopped learns it before anything else happens (CC37).
        if not held.is_live():
            return
        now = clock.now_ms()
        # 2. What is due.
        thread = held.where.thread
        if thread is not None and not thread.is_alive():
            # Nobody works under it any more (CC38).
            held.stop_renewing()
        due_ms = held.lease.due_ms
        if due_ms is not None and due_ms <= now:
            self._renew_from(held, now, due_ms)
        if held.watched_ms is not None and held.watched_ms <= now:
            held.watched_ms = None
            held.is_followed = True
            self.watching.watch(held)
        # 3. The next moment that matters.
        self._queue(held)
        self._set_timer()

    def stop(self) -> None:
        """Nothing is kept any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_ms = None, None
        self._heap.clear()

    def _queue(self, held: Held) -> None:
        times = [time for time in (held.lease.wake_ms, held.watched_ms) if time is not None]
        held.queued_ms = min(times) if times else None
        if held.queued_ms is not None:
            heapq.heappush(self._heap, (held.queued_ms, next(self._order), weakref.ref(held)))

    def _wake(self) -> None:
        self._timer, self._timer_ms = None, None
        now = clock.now_ms()
        while self._heap and self._heap[0][0] <= now:
            queued_ms, _, reference = heapq.heappop(self._heap)
            held = reference()
            # A guard may be in the heap several times: only the last entry counts.
            if held is not None and held.queued_ms == queued_ms:
                held.queued_ms = None
                self.look_at(held)
        self._set_timer()

    def _set_timer(self) -> None:
        if not self._heap:
            return
        now = clock.now_ms()
        wake_ms = min(self._heap[0][0], now + _SLICE_MS)
        if self._timer is not None:
            if self._timer_ms is not None and self._timer_ms <= wake_ms:
                return
            self._timer.cancel()
        self._timer_ms = wake_ms
        self._timer = self._engine.loop.call_later(max(wake_ms - now, 0) / 1000, self._wake)

    def _renew_from(self, first: Held, now: int, due_ms: int) -> None:
        """Renews a guard that is due, and takes others along (CC32)."""
        if not first.renewing.try_take():
            first.renewal_began(now)
            return
        # Not those that would have to wait longer than they may: the batch has the patience of the first.
        patience_ms = first.lease.attempt_ms
        batch = [first]
        for other in self._engine.shared.guards():
            if len(batch) == BATCH_MAX:
                break
            if other is first or not other.lease.joins(now) or other.lease.attempt_ms < patience_ms:
                continue
            is_worked_under = other.where.thread is None or other.where.thread.is_alive()
            if is_worked_under and other.renewing.try_take():
                batch.append(other)
        # Whatever becomes of this attempt, the next is not before it is over.
        for held in batch:
            held.renewal_began(now)
        self._engine.spawn(renew(self._engine, batch, patience_ms, now - due_ms))
