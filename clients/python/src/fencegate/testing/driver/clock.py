"""Virtual time: an event loop whose clock stands still unless it is moved. Sockets are real, timers are not."""

from __future__ import annotations

import asyncio
import concurrent.futures
import selectors
import time
from collections.abc import Callable
from typing import Any

from ..._core import clock
from ..._core.attempts import counted

STEP_MS = 50
"""How far the clock moves between two looks at what can run."""
_TURNS = 40
"""How often the loop turns, so that everything runs that can run without the network."""
_BREATH_S = 0.0003
"""Time for the network in what needs no time, given a few times over."""
_QUIET = 2
"""Count of looks in a row at which nothing had happened, after which all is quiet."""


class _Selector(selectors.DefaultSelector):
    """Counts what the network brings."""

    def __init__(self) -> None:
        super().__init__()
        self.own: int | None = None
        """The file descriptor by which other threads wake the loop."""
        self.events = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready."""
        ready = super().select(timeout)
        self.events += sum(key.fd != self.own for key, _ in ready)
        return ready


class _Worker(concurrent.futures.ThreadPoolExecutor):
    """One thread for what blocks, so that what is given to it last ends last."""

    def __init__(self) -> None:
        super().__init__(max_workers=1)
        self.begun: int = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        """Does something after all that was given to it before."""
        self.begun += 1
        return super().submit(fn, *args, **kwargs)

    async def end_of_work(self) -> None:
        """Waits until nothing is left of what was given to it before, and a breath longer."""
        await asyncio.wrap_future(super().submit(time.sleep, _BREATH_S))


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time is moved by hand."""

    def __init__(self) -> None:
        self._network = _Selector()
        super().__init__(self._network)
        self._network.own = self._ssock.fileno()  # type: ignore[attr-defined]
        self.worker: _Worker = _Worker()
        self.set_default_executor(self.worker)
        self.virtual_ms: int = 0

    def time(self) -> float:
        """The virtual time, in seconds."""
        return self.virtual_ms / 1000

    def now_ms(self) -> int:
        """The same in milliseconds."""
        return self.virtual_ms

    def happened(self) -> tuple[int, ...]:
        """How much has happened that is none of the loop's own turns."""
        return (counted.begun, len(counted.waiting), self._network.events, self.worker.begun)


def own_time(loop: VirtualLoop) -> None:
    """Makes the library live by the time of this loop, with dice that always fall in the middle."""
    clock.replace(loop.now_ms, lambda: 0.5)


async def advance(loop: VirtualLoop, ms: int, leaps: bool) -> dict[str, Any]:
    """Moves the clock, at most until an attempt is begun."""
    before = loop.virtual_ms
    if leaps:
        loop.virtual_ms += ms
    else:
        await _settle(loop)
        begun, end_ms = counted.begun, before + ms
        while loop.virtual_ms < end_ms and counted.begun == begun:
            happened = loop.happened()
            loop.virtual_ms = min(loop.virtual_ms + STEP_MS, end_ms)
            await _turns()
            if loop.happened() != happened:
                await _settle(loop)
    await _settle(loop)
    return {"advanced": loop.virtual_ms - before, "waiting": counted.waiting}


async def _settle(loop: VirtualLoop) -> None:
    """Lets everything run that needs no time."""
    quiet, last = 0, loop.happened()
    while quiet < _QUIET:
        await _turns()
        await loop.worker.end_of_work()
        now = loop.happened()
        quiet = quiet + 1 if now == last else 0
        last = now


async def _turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
