"""How a client lives among threads. Written by hand, once for asyncio and once for threads."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self, Unpack

import httpx2

from .. import _forking
from .._background.thread import ThreadEngine
from .._core.durations import Duration, whole_ms
from .._settings import Options, default_owner, of_environment, settings_of
from .._shared import Shared
from .._words import LossReason
from ._caller import Caller
from ._transport import Transport


class Base:
    """What a client is beside its calls: its settings, its thread, its end."""

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        transport: httpx2.BaseTransport | None = None,
        background_transport: httpx2.AsyncBaseTransport | None = None,
        **options: Unpack[Options],
    ) -> None:
        """A client of the gateway at this base URL; with several, in a list or separated by commas, of all of them, which
        stand before the same ledger. Nothing is sent yet. Threads may share it.

        - `owner`: what it calls itself, shown to everybody; by default `<host>:<pid>:<8 digits>`.
        - `ttl`: that of locks that do not say theirs; by default 30 s.
        - `auth`: a bearer token, or a function that gives one; it is asked before each attempt. `auth_file`: a file that
          holds the token, read before each attempt.
        - `headers`: for each request, such as one that a proxy wants.
        - `connect_timeout` (3 s), `answer_timeout` (15 s, until the head of an answer), `idle_timeout` (30 s, the longest
          pause in a body), `call_timeout` (30 s, a call with all its attempts), `write_timeout` (60 s, the same of a write).
        - `retries`: `False`: one attempt for each call. Renewals and releases go on as ever.
        - `ca_file`: certificates to trust beside those of the machine. `cert_file` and `key_file`: what to show.
        - `on_event`: a function that is told what happens inside: see `fencegate.hooks`. It is called from the thread
          in which that happens.
        - `traceparent`: a function that gives the `traceparent` of the current span, or None.
        - `transport`: what sends the requests, in the place of httpx2's own; `background_transport`: the same for
          renewals, and for releases that nobody waits for. They are closed by whoever made them.
        """
        settings = settings_of(url, options)
        self._engine = ThreadEngine(background_transport)
        self._shared = Shared(settings, self._engine)
        self._engine.shared = self._shared
        self._replaced = transport
        self._caller_ = Caller(self._shared, Transport(self._shared, transport))
        _forking.register(self)

    @classmethod
    def from_env(
        cls,
        *,
        transport: httpx2.BaseTransport | None = None,
        background_transport: httpx2.AsyncBaseTransport | None = None,
        **options: Unpack[Options],
    ) -> Self:
        """A client as the environment describes it: `FENCE_URL` (a base URL, or several with commas), `FENCE_OWNER`,
        `FENCE_AUTH_TOKEN` or `FENCE_AUTH_TOKEN_FILE`, `FENCE_CA_FILE`, `FENCE_CERT_FILE` and `FENCE_KEY_FILE`; each
        request says `TRACEPARENT`. What is given here wins."""
        url, found = of_environment(options)
        return cls(url, transport=transport, background_transport=background_transport, **found)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shared.owner!r})"

    @property
    def owner(self) -> str:
        """What this client calls itself, unless a lock says otherwise."""
        return self._shared.owner

    def _caller(self) -> Caller:
        return self._caller_

    def close(self, within: Duration = "5s") -> None:
        """Ends all guards, with the reason `closed`, gives their locks back, and waits for that for so long. What is not
        answered by then is left: those locks run out by themselves."""
        within_ms = whole_ms(within, "within")
        self._shared.is_closing = True
        for held in self._shared.guards():
            held.lose(LossReason.CLOSED)
        self._engine.close(within_ms)
        self._shared.is_closed = True
        self._caller_.transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _forked(self) -> list[object]:
        left = [*self._caller_.transport.forget(), *self._engine.forked()]
        self._shared.forget_locks_of_threads()
        for held in self._shared.guards():
            held.forked()
        if self._shared.settings.owner is None:
            self._shared.owner = default_owner()
        return left
