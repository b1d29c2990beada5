"""The driver of the library for asyncio."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from ... import AsyncFence, AsyncFencegate, AsyncLock, errors
from ..._hooks import Breaking, Event, Expiring, ReleaseFailed, RenewFailed, Revived
from . import commands
from .clock import VirtualLoop, advance, own_time
from .mishaps import MISHAPS
from .told import DriverError, Out, Told, error_told, without_frames

FEATURES = [
    "run",
    "deadlock",
    "download",
    "events",
    "elect",
    "stop",
    "observe",
    "shards",
    "upstream",
    "stall",
    "watch",
    "s3",
    *MISHAPS,
]
_WARNINGS: dict[type[Event], str] = {
    Expiring: "expiring",
    Breaking: "breaking",
    Revived: "revived",
    RenewFailed: "renew_failed",
    ReleaseFailed: "release_failed",
}


class BodyFailed(Exception):
    """The body of a scope was told to fail."""


class State:
    """What the driver remembers between commands."""

    def __init__(self, out: Out) -> None:
        self.out = out
        self.clients: dict[bool, AsyncFencegate] = {}
        self.guards: dict[str, AsyncLock | AsyncFence] = {}
        self.bodies: dict[str, asyncio.Queue[Callable[[], Awaitable[bool | None]]]] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self._unknown: dict[str, errors.OutcomeUnknown] = {}
        self._signals: dict[asyncio.Task[None], str] = {}

    def client(self, once: bool = False) -> AsyncFencegate:
        """The client, or its like that makes one attempt for each call."""
        if once not in self.clients:
            raise DriverError("there is no client yet")
        return self.clients[once]

    def guard(self, name: str) -> AsyncLock | AsyncFence:
        """A guard by the scenario's name for it."""
        if name not in self.guards:
            raise DriverError(f"there is no guard {name}")
        return self.guards[name]

    def lock(self, name: str) -> AsyncLock:
        """The same, of a lock."""
        guard = self.guard(name)
        if not isinstance(guard, AsyncLock):
            raise DriverError(f"{name} is a fence")
        return guard

    def keep(self, name: str, guard: AsyncLock | AsyncFence) -> Told:
        """Remembers a guard, tells when it is lost, and describes it."""
        self.guards[name] = guard
        if isinstance(guard, AsyncLock):
            signal = asyncio.get_running_loop().create_task(self._tell_loss(name, guard))
            self._signals[signal] = name
            signal.add_done_callback(self._signals.pop)
        return {
            "lock": name,
            "id": guard.id,
            "token": guard.token,
            "resources": list(guard.resources),
            "versions": list(guard.versions),
        }

    async def forget(self, name: str) -> None:
        """Forgets a guard, and waits no more for its loss."""
        signals = [signal for signal, known in self._signals.items() if known == name]
        for signal in signals:
            signal.cancel()
        # Until they have ended, they have the guard.
        await asyncio.gather(*signals, return_exceptions=True)
        self.guards.pop(name)

    async def _tell_loss(self, name: str, guard: AsyncLock) -> None:
        await guard.lost.wait()
        self.out.event("lost", {"lock": name, "reason": str(guard.reason)})

    def keep_unknown(self, error: errors.OutcomeUnknown) -> str:
        """Remembers an unknown outcome, and gives a handle to it."""
        handle = f"U{len(self._unknown) + 1}"
        self._unknown[handle] = without_frames(error)
        return handle

    def unknown(self, handle: str) -> errors.OutcomeUnknown:
        """An unknown outcome."""
        if handle not in self._unknown:
            raise DriverError(f"there is no handle {handle}")
        return self._unknown[handle]

    def hear(self, event: Event) -> None:
        """Warnings of the library become events."""
        warning = _WARNINGS.get(type(event))
        if warning is not None:
            resources: Any = getattr(event, "resources", ())
            named = [name for name, guard in self.guards.items() if guard.resources == resources]
            self.out.event("warning", {"warning": warning, "lock": named[0] if named else None})

    async def live(self, name: str) -> bool:
        """Does what a body is told, until it is told to end; False if by a failure."""
        queue = self.bodies[name]
        while True:
            ended = await (await queue.get())()
            if ended is not None:
                return ended

    def tell_body(self, name: str, deed: Callable[[], Awaitable[bool | None]]) -> None:
        """Tells a body what to do."""
        if name not in self.bodies:
            raise DriverError("there is no such body any more")
        self.bodies[name].put_nowait(deed)


def drive(virtual: bool) -> None:
    """Does what the commands on the standard input say, until they end."""
    if virtual:
        loop = VirtualLoop()
        own_time(loop)
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(_drive(loop))
    else:
        asyncio.run(_drive(None))


async def _drive(virtual: VirtualLoop | None) -> None:
    state = State(Out(None if virtual is None else virtual.now_ms))
    state.out.say({"driver": "python", "virtual_time": virtual is not None, "features": FEATURES})
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    threading.Thread(target=_read, args=(loop, lines), daemon=True).start()
    while (line := await lines.get()) is not None:
        command = json.loads(line)
        id, word = command.pop("id"), command.pop("do")
        await _begin(state, virtual, id, word, command)
        if word == "close":
            break
    sys.stdout.flush()
    # What is under way is left: nobody asks for it any more.
    os._exit(0)


def _read(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[str | None]) -> None:
    for line in sys.stdin:
        loop.call_soon_threadsafe(lines.put_nowait, line)
    loop.call_soon_threadsafe(lines.put_nowait, None)


async def _begin(state: State, virtual: VirtualLoop | None, id: int, word: str, command: dict[str, Any]) -> None:
    """Begins a command. Those about time, and the last, are over when this returns; others go on beside."""
    try:
        if word == "advance":
            if virtual is None:
                raise DriverError("time passes by itself here")
            state.out.answer(id, await advance(virtual, command["ms"], command.get("leap", False)))
        elif word == "cancel":
            task = state.tasks.get(command["call"])
            if task is None:
                raise DriverError("it is not under way")
            task.cancel()
            state.out.answer(id, {})
        elif word == "close":
            for client in state.clients.values():
                await client.close("1s")
            state.out.answer(id, {})
        else:
            task = asyncio.get_running_loop().create_task(_carry_out(state, id, word, command))
            state.tasks[id] = task
    except DriverError as error:
        state.out.failed(id, error_told(error, state.keep_unknown))


async def _carry_out(state: State, id: int, word: str, command: dict[str, Any]) -> None:
    try:
        state.out.answer(id, await _result(state, word, command))
    except asyncio.CancelledError:
        state.out.failed(id, {"class": "Cancelled"})
    except BodyFailed:
        state.out.failed(id, {"class": "Body"})
    except Exception as error:
        state.out.failed(id, error_told(error, state.keep_unknown))
    finally:
        state.tasks.pop(id, None)


async def _result(state: State, word: str, command: dict[str, Any]) -> Any:
    carry_out = commands.ALL.get(word)
    if carry_out is None:
        raise DriverError(f"there is no command {word}")
    known = inspect.signature(carry_out).parameters
    # Those that have a name for the rest look at it themselves.
    takes_more = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values())
    for name in command:
        if name not in known and not takes_more:
            raise DriverError(f"{word} has no field {name}")
    return await carry_out(state, **command)
