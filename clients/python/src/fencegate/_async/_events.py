"""The feed of committed writes, as an iterator that goes on across broken connections (CC48)."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Literal

from .. import errors
from .._core import clock
from .._core.backoff import Backoff
from .._core.sse import SsePlace, SseRetry
from .._feed import Void, is_told
from .._hooks import Retry
from .._wire import WriteEvent
from . import _runtime as runtime
from ._caller import AsyncCaller
from ._connection import WAIT_MS, AsyncConnection, Passing, connect, poll

_POLLS_MS = 300_000
"""For how long the feed is asked call by call, where streams are held back, before one is tried again."""
_GOOD_MS = 10_000
"""A stream that was open for so long was a good one, although nothing came."""


class AsyncEvents:
    """The events of the feed, each once, without an end. It is its own iterator, and a context manager that closes its
    connection; `cursor` is where it stands.

    What does not answer, answers 5xx or 429, or breaks off is asked again, for ever. A definite refusal is an error, and
    the end.
    """

    def __init__(self, caller: AsyncCaller, after: str | None, on_void: Literal["raise", "continue"]) -> None:
        if on_void not in ("raise", "continue"):
            raise errors.Misuse("on_void is raise or continue")
        self._caller = caller
        self.cursor = after
        """Where it stands: behind the last event that it gave, or where it began; None at the very beginning."""
        self._goes_on = on_void == "continue"
        self._connection: AsyncConnection | None = None
        # What came and was not given out yet.
        self._found: deque[WriteEvent] = deque()
        # Until when no stream is tried.
        self._polls_until_ms = 0
        # The pause that the stream asks for before the next.
        self._retry_ms: int | None = None
        self._backoff = Backoff()
        self._attempts = 0
        self._is_over = False

    def __aiter__(self) -> AsyncIterator[WriteEvent | Void]:
        return self

    async def __anext__(self) -> WriteEvent | Void:
        while not self._is_over and not self._caller.shared.is_closed:
            while self._found:
                event = self._found.popleft()
                if not is_told(self.cursor, event.event):
                    self.cursor = event.event
                    self._progress()
                    return event
            try:
                await self._step()
            except Passing as passing:
                await self._rest(passing.detail, passing.floor_ms)
            except errors.CursorVoid as void:
                await self.close()
                if not self._goes_on or void.begin_after is None:
                    self._is_over = True
                    raise
                self.cursor = void.begin_after
                await self._rest("the place in the feed is void", None)
                return Void(void.begin_after)
            except errors.FenceError:
                self._is_over = True
                await self.close()
                raise
        await self.close()
        raise StopAsyncIteration

    async def close(self) -> None:
        """Leaves the feed."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def __aenter__(self) -> AsyncEvents:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _step(self) -> None:
        """One step towards the next event."""
        if self._connection is not None:
            await self._listen(self._connection)
        elif clock.now_ms() < self._polls_until_ms:
            await self._ask()
        else:
            self._connection = await connect(self._caller, self.cursor)
            if self._connection is None:
                self._polls_until_ms = clock.now_ms() + _POLLS_MS

    def _progress(self) -> None:
        """The last step towards the next event did good."""
        self._backoff, self._attempts = Backoff(), 0

    def _stand_at(self, place: str) -> None:
        """Moves the place where nothing was told, never back."""
        if not is_told(self.cursor, place):
            self.cursor = place

    async def _listen(self, connection: AsyncConnection) -> None:
        try:
            said = await connection.next()
        except Exception:
            if connection.opened_ms + _GOOD_MS <= clock.now_ms():
                self._progress()
            await self.close()
            raise
        if isinstance(said, SsePlace):
            if said.id:
                self._stand_at(said.id)
        elif isinstance(said, SseRetry):
            self._retry_ms = said.ms
        else:
            self._found.append(said)

    async def _ask(self) -> None:
        """One call that waits. If it fails, it was perhaps not the stream's fault, either: the next is one."""
        began_ms = clock.now_ms()
        try:
            found = await poll(self._caller, self.cursor)
        except Exception:
            self._polls_until_ms = 0
            raise
        self._found.extend(event for event in found.events if not is_told(self.cursor, event.event))
        if self._found:
            return
        self._stand_at(found.next_cursor)
        if began_ms + WAIT_MS // 2 > clock.now_ms():
            raise Passing("an answer without events that did not wait for any")
        self._progress()

    async def _rest(self, detail: str, floor_ms: int | None) -> None:
        """A pause, longer each time until something good comes."""
        self._attempts += 1
        self._caller.shared.hooks.tell(Retry("events", self._attempts, detail))
        floor_ms = max(floor_ms or 0, self._retry_ms or 0)
        pause_ms = self._backoff.next(0.5 + clock.draw() / 2, floor_ms, None) or 0
        await runtime.sleep_until_ms(clock.now_ms() + pause_ms)
