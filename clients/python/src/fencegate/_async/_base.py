"""How a client lives on event loops. Written by hand, once for asyncio and once for threads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self, Unpack

import httpx2

from .. import _forking, errors
from .._background.loop import LoopEngine
from .._core.durations import Duration, whole_ms
from .._settings import Options, default_owner, of_environment, settings_of
from .._shared import Shared
from .._words import LossReason
from ._caller import AsyncCaller
from ._transport import AsyncTransport


class AsyncBase:
    """What a client is beside its calls: its settings, its loop, its end."""

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        transport: httpx2.AsyncBaseTransport | None = None,
        **options: Unpack[Options],
    ) -> None:
        """A client of the gateway at this base URL; with several, in a list or separated by commas, of all of them, which
        stand before the same ledger. Nothing is sent yet.

        - `owner`: what it calls itself, shown to everybody; by default `<host>:<pid>:<8 digits>`.
        - `ttl`: that of locks that do not say theirs; by default 30 s.
        - `auth`: a bearer token, or a function that gives one (of this client, it may be a coroutine function); it is
          asked before each attempt. `auth_file`: a file that holds the token, read before each attempt.
        - `headers`: for each request, such as one that a proxy wants.
        - `connect_timeout` (3 s), `answer_timeout` (15 s, until the head of an answer), `idle_timeout` (30 s, the longest
          pause in a body), `call_timeout` (30 s, a call with all its attempts), `write_timeout` (60 s, the same of a write).
        - `retries`: `False`: one attempt for each call. Renewals and releases go on as ever.
        - `ca_file`: certificates to trust beside those of the machine. `cert_file` and `key_file`: what to show.
        - `on_event`: a function that is told what happens inside: see `fencegate.hooks`.
        - `traceparent`: a function that gives the `traceparent` of the current span, or None.
        - `transport`: what sends the requests, in the place of httpx2's own; closed by whoever made it.
        """
        settings = settings_of(url, options)
        self._engine = LoopEngine()
        self._shared = Shared(settings, self._engine)
        self._replaced = transport
        self._loop: asyncio.AbstractEventLoop | None = None
        self._caller_: AsyncCaller | None = None
        self._ending: asyncio.Task[None] | None = None
        _forking.register(self)

    @classmethod
    def from_env(cls, *, transport: httpx2.AsyncBaseTransport | None = None, **options: Unpack[Options]) -> Self:
        """A client as the environment describes it: `FENCE_URL` (a base URL, or several with commas), `FENCE_OWNER`,
        `FENCE_AUTH_TOKEN` or `FENCE_AUTH_TOKEN_FILE`, `FENCE_CA_FILE`, `FENCE_CERT_FILE` and `FENCE_KEY_FILE`; each
        request says `TRACEPARENT`. What is given here wins."""
        url, found = of_environment(options)
        return cls(url, transport=transport, **found)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shared.owner!r})"

    @property
    def owner(self) -> str:
        """What this client calls itself, unless a lock says otherwise."""
        return self._shared.owner

    def _caller(self) -> AsyncCaller:
        """What makes calls on the loop that runs."""
        loop = asyncio.get_running_loop()
        if self._caller_ is None or self._loop is not loop:
            if self._loop is not None and self._loop.is_running():
                raise errors.Misuse("a client belongs to one event loop at a time")
            self._loop, self._ending = loop, None
            self._caller_ = AsyncCaller(self._shared, AsyncTransport(self._shared, self._replaced))
            self._engine.start(self._caller_, loop)
            for held in self._shared.guards():
                # Their loop has ended, and so has the work under them: they are given back on this one.
                held.lose(LossReason.CLOSED)
        return self._caller_

    async def close(self, within: Duration = "5s") -> None:
        """Ends all guards, with the reason `closed`, gives their locks back, and waits for that for so long. What is not
        answered by then is left: those locks run out by themselves."""
        within_ms = whole_ms(within, "within")
        self._shared.is_closing = True
        for held in self._shared.guards():
            held.lose(LossReason.CLOSED)
        loop = asyncio.get_running_loop()
        if self._caller_ is not None and self._loop is loop:
            # In a task of its own: in a scope under one of these locks, this one is cancelled now.
            if self._ending is None or self._ending.done():
                self._ending = loop.create_task(self._end(self._caller_, within_ms))
            await asyncio.shield(self._ending)
        self._shared.is_closed = True

    async def _end(self, caller: AsyncCaller, within_ms: int) -> None:
        try:
            await self._engine.close(within_ms)
        finally:
            self._shared.is_closed = True
            await caller.transport.close()

    async def __aenter__(self) -> Self:
        self._caller()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _forked(self) -> list[object]:
        left: list[object] = [self._loop, self._caller_, self._engine, self._ending]
        if self._caller_ is not None:
            left.extend(self._caller_.transport.forget())
        self._shared.forget_locks_of_threads()
        for held in self._shared.guards():
            held.forked()
        if self._shared.settings.owner is None:
            self._shared.owner = default_owner()
        self._engine = LoopEngine()
        self._shared.engine = self._engine
        self._loop, self._caller_, self._ending = None, None, None
        return left
