"""Virtual time: an event loop whose clock stands still unless it is moved. Sockets are real, timers are not."""

from __future__ import annotations

import asyncio
import selectors
import time
from typing import Any

from ..._core import clock
from ..._core.attempts import counted

STEP_MS = 50
"""How far the clock moves between two looks at what can run."""
_TURNS = 40
"""How often the loop turns, so that everything runs that can run without the network."""
_BREATH_S = 0.0003
"""How long the network and other threads get for what needs no time, a few times over."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time is moved by hand."""

    def __init__(self) -> None:
        super().__init__(selectors.DefaultSelector())
        self.virtual_ms = 0

    def time(self) -> float:
        """The virtual time, in seconds."""
        return self.virtual_ms / 1000

    def now_ms(self) -> int:
        """The same in milliseconds."""
        return self.virtual_ms


def own_time(loop: VirtualLoop) -> None:
    """Makes the library live by the time of this loop, with dice that always fall in the middle."""
    clock.replace(loop.now_ms, lambda: 0.5)


async def advance(loop: VirtualLoop, ms: int, leaps: bool) -> dict[str, Any]:
    """Moves the clock, at most until an attempt is begun."""
    before = loop.virtual_ms
    if leaps:
        loop.virtual_ms += ms
    else:
        await _settle()
        begun, end_ms = counted.begun, before + ms
        while loop.virtual_ms < end_ms and counted.begun == begun:
            loop.virtual_ms = min(loop.virtual_ms + STEP_MS, end_ms)
            await _turns()
    await _settle()
    return {"advanced": loop.virtual_ms - before, "waiting": counted.waiting}


async def _settle() -> None:
    """Lets everything run that needs no time."""
    quiet, last = 0, (counted.begun, counted.waiting)
    while quiet < 2:
        await _turns()
        await asyncio.get_running_loop().run_in_executor(None, time.sleep, _BREATH_S)
        now = (counted.begun, counted.waiting)
        quiet = quiet + 1 if now == last else 0
        last = now


async def _turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
