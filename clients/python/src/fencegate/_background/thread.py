"""The engine of a `Fencegate`: one daemon thread with a loop. It begins with the first guard, and ends with the last."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import httpx2

from .._async._caller import AsyncCaller
from .._async._transport import AsyncTransport
from .._credential import Credential
from .._guard.held import Burial, Held
from .burying import until_answered
from .loop import LoopEngine

if TYPE_CHECKING:
    from .._shared import Shared

_LINGERS_S = 1.0
"""Locks often follow each other: the thread waits for the next one a little."""


class ThreadEngine:
    """Does what goes on behind the caller's back, in a thread of its own."""

    def __init__(self, transport: httpx2.AsyncBaseTransport | None) -> None:
        self.shared: Shared
        self._replaced = transport
        self._lock = threading.RLock()
        self._running: _Running | None = None

    def keep(self, held: Held) -> None:
        """Keeps the guard."""
        self._run(lambda engine: engine.keep(held))

    def poke(self, held: Held) -> None:
        """Looks at the guard anew, if it is kept."""
        if held.queued_ms is not None:
            self._run(lambda engine: engine.poke(held))

    def over(self, held: Held) -> None:
        """Follows it no more."""
        self._run(lambda engine: engine.over(held))

    def ask_when_it_breaks(self, held: Held) -> None:
        """Asks when the break is due."""
        held.stop_renewing()
        self._run(lambda engine: engine.ask_when_it_breaks(held))

    def bury(self, burial: Burial) -> concurrent.futures.Future[bool]:
        """Gives the lock back."""
        told: concurrent.futures.Future[bool] = concurrent.futures.Future()

        def begin(engine: LoopEngine) -> None:
            task = engine.spawn(until_answered(engine, burial))
            task.add_done_callback(lambda task: _pass_on(task, told))

        # Also after the end: a grant may come while the client closes.
        self._run(begin, is_last=True)
        return told

    @property
    def is_running(self) -> bool:
        """Whether there is a thread."""
        return self._running is not None

    def close(self, within_ms: int) -> None:
        """Waits for what is under way, but not longer than that, and ends the thread."""
        with self._lock:
            running, self._running = self._running, None
        if running is not None:
            running.end(within_ms)

    def forked(self) -> list[object]:
        """In a process that is a copy: the thread is not here. Gives what must not be touched any more."""
        left: list[object] = [self._running]
        self._running = None
        self._lock = threading.RLock()
        return left

    def _run(self, work: Callable[[LoopEngine], object], is_last: bool = False) -> None:
        with self._lock:
            if self._running is None:
                if self.shared.is_closed and not is_last:
                    return
                running = _Running(self.shared, self._replaced, self._is_over)
                # A guard that was collected meanwhile, in this very thread, may have begun one. The other ends by itself.
                self._running = self._running or running
            self._running.run(work)

    def _is_over(self, running: _Running) -> bool:
        """Whether the thread may end: nobody has given it anything to do."""
        with self._lock:
            if running.is_busy or (self._running is running and self.shared.guards()):
                return False
            if self._running is running:
                self._running = None
            return True


class _Running:
    """A thread that is there."""

    def __init__(
        self,
        shared: Shared,
        replaced: httpx2.AsyncBaseTransport | None,
        is_over: Callable[[_Running], bool],
    ) -> None:
        self._shared = shared
        self._replaced = replaced
        self._is_over = is_over
        self._engine = LoopEngine()
        # How much was given to it, and how much of that it has begun: each is counted by one side alone.
        self._given = 0
        self._begun = 0
        self._within_ms: int | None = None
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._thread = threading.Thread(target=self._main, name="fencegate", daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """Whether something is under way, or yet to be begun."""
        return self._given != self._begun or not self._engine.is_idle

    def run(self, work: Callable[[LoopEngine], object]) -> None:
        """Does something on the loop. Called under the lock of the engine."""

        def begin() -> None:
            self._begun += 1
            work(self._engine)

        self._given += 1
        self._loop.call_soon_threadsafe(begin)

    def end(self, within_ms: int) -> None:
        """Ends it, and waits for that."""
        self._within_ms = within_ms
        self._loop.call_soon_threadsafe(self._ended.set)
        if threading.current_thread() is not self._thread:
            self._thread.join(within_ms / 1000 + 2)

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        transport = AsyncTransport(self._shared, self._replaced, _asked_elsewhere(self._shared))
        # Before anything runs on the loop: it was given work already.
        self._engine.start(AsyncCaller(self._shared, transport), self._loop)
        try:
            self._loop.run_until_complete(self._live(transport))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()

    async def _live(self, transport: AsyncTransport) -> None:
        try:
            while self._within_ms is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LINGERS_S):
                        await self._ended.wait()
                if self._within_ms is None and self._is_over(self):
                    break
        finally:
            # What was given before the end is begun: a client that is closed at once gives its locks back, too.
            while self._given != self._begun:
                await asyncio.sleep(0)
            await self._engine.close(0 if self._within_ms is None else self._within_ms)
            await transport.close()


def _asked_elsewhere(shared: Shared) -> Credential | None:
    """A function that gives the credential may block: it does not hold up renewals of other guards."""
    credential = shared.settings.credential
    if credential is None or credential.ask is None:
        return credential
    ask = credential.ask

    async def asked() -> str:
        return await asyncio.to_thread(cast("Callable[[], str]", ask))

    return Credential(None, None, asked)


def _pass_on(task: asyncio.Task[bool], told: concurrent.futures.Future[bool]) -> None:
    if task.cancelled() or task.exception() is not None:
        told.set_result(False)
    else:
        told.set_result(task.result())
