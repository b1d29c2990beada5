"""The engine on an event loop: that of the caller, or that of the thread of a `Fencegate`."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from .._guard.held import Burial, Held
from .burying import until_answered
from .keeper import Keeper
from .renewing import ask_when_it_breaks

if TYPE_CHECKING:
    from .._async._caller import AsyncCaller
    from .._shared import Shared


class LoopEngine:
    """Does what goes on behind the caller's back, on one loop."""

    def __init__(self) -> None:
        self.shared: Shared
        self.caller: AsyncCaller
        self.loop: asyncio.AbstractEventLoop
        self._thread_id: int | None = None
        self._keeper: Keeper
        self._tasks: set[asyncio.Task[Any]] = set()
        self._asks: set[str] = set()

    def start(self, caller: AsyncCaller, loop: asyncio.AbstractEventLoop) -> None:
        """Begins on this loop. Runs in the thread of the loop."""
        self.shared, self.caller, self.loop = caller.shared, caller, loop
        self._thread_id = threading.get_ident()
        self._keeper = Keeper(self)
        self._tasks.clear()
        self._asks.clear()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._tasks

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begins something, which goes on by itself. Runs in the thread of the loop."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def look_at(self, held: Held) -> None:
        """Looks at a guard now. Runs in the thread of the loop."""
        self._keeper.look_at(held)

    # As `Engine` has it, from any thread.

    def keep(self, held: Held) -> None:
        """Keeps the guard."""
        self.run(lambda: self._keeper.look_at(held))

    def poke(self, held: Held) -> None:
        """Looks at the guard anew."""
        self.run(lambda: self._keeper.look_at(held))

    def over(self, held: Held) -> None:
        """Follows it no more."""
        self.run(lambda: self._keeper.watching.stop(held.id))

    def ask_when_it_breaks(self, held: Held) -> None:
        """Asks when the break is due."""
        held.stop_renewing()
        if held.id in self._asks:
            return
        self._asks.add(held.id)
        reference, id = weakref.ref(held), held.id
        self.run(lambda: self.spawn(self._ask_when_it_breaks(reference, id)))

    async def _ask_when_it_breaks(self, reference: weakref.ref[Held], id: str) -> None:
        try:
            await ask_when_it_breaks(self, reference)
        finally:
            self._asks.discard(id)

    def bury(self, burial: Burial) -> asyncio.Task[bool] | None:
        """Gives the lock back. Gives its task in the thread of the loop."""
        if self._is_here():
            return self.spawn(until_answered(self, burial))
        self.run(lambda: self.spawn(until_answered(self, burial)))
        return None

    def run(self, work: Callable[[], object]) -> None:
        """Does something on the loop: at once in its own thread, else soon. Not at all once the loop is closed."""
        if self._is_here():
            work()
        elif not self.loop.is_closed():
            try:
                self.loop.call_soon_threadsafe(work)
            except RuntimeError:
                # It was closed at this moment.
                return

    def _is_here(self) -> bool:
        return self._thread_id == threading.get_ident() and not self.loop.is_closed()

    async def close(self, within_ms: int) -> None:
        """Waits for what is under way, but not longer than that; then it is left."""
        until_s = self.loop.time() + within_ms / 1000
        # Some begin others: a lock that is given back is granted to a caller that waits, and given back once more.
        while self._tasks and (left_s := until_s - self.loop.time()) > 0:
            await asyncio.wait(set(self._tasks), timeout=left_s)
        self._keeper.stop()
        left = set(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=1.0)
