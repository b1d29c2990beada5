# Made by scripts/unasync.py out of ../_async/_caller.py: change that, and run it again.
"""Calls that may simply be made again: reads, renewals, releases and what operators do."""

from __future__ import annotations

from typing import Any

from .. import errors
from .._core import clock
from .._core.backoff import Backoff
from .._core.ids import RequestIds
from .._core.replies import AnswerBroken, Failure, Nothing, error_of, floor_ms, is_retried, summary
from .._hooks import Retry
from .._json import members
from .._request import Request
from .._shared import Shared
from . import _runtime as runtime
from ._answer import Answer
from ._transport import Transport

_STATUS_WITHIN_MS = 5_000


class Caller:
    """Makes calls, again and again until their deadlines (CC10, CC11)."""

    __slots__ = ("shared", "transport")

    def __init__(self, shared: Shared, transport: Transport) -> None:
        self.shared: Shared = shared
        self.transport: Transport = transport

    def call(self, call: str, request: Request, until_ms: int | None = None) -> Answer:
        """Makes a call, and gives the answer, whose body is yet to be read."""
        return self._call(call, request, until_ms, reads=False)

    def json(self, call: str, request: Request, until_ms: int | None = None) -> Any:
        """The same, for an answer in JSON."""
        return self._call(call, request, until_ms, reads=True)

    def done(self, call: str, request: Request, until_ms: int | None = None) -> int:
        """The same, for an answer of which only the status counts."""
        answer = self._call(call, request, until_ms, reads=False)
        try:
            answer.bytes()
        except AnswerBroken:
            answer.close()
        return answer.status

    def _call(self, call: str, request: Request, until_ms: int | None, reads: bool) -> Any:
        shared = self.shared
        began_ms = clock.now_ms()
        until_ms = began_ms + shared.settings.call_ms if until_ms is None else until_ms
        is_replayable = request.body is None or request.body.is_replayable
        ids, backoff = RequestIds(), Backoff()
        while True:
            reply = self.transport.attempt(request, ids.next())
            if isinstance(reply, Answer):
                try:
                    result = reply.json() if reads else reply
                except AnswerBroken as broken:
                    reply = broken.failure
                else:
                    shared.called(call, began_ms, ids.attempts, None)
                    return result
            self.note_slowness(reply)
            left_ms = until_ms - clock.now_ms()
            pause_ms = None
            if is_retried(reply) and shared.settings.retries and is_replayable:
                pause_ms = backoff.next(clock.draw(), floor_ms(reply), left_ms)
            if pause_ms is None or pause_ms >= left_ms:
                error = error_of(reply, ids.attempts)
                shared.called(call, began_ms, ids.attempts, error)
                raise error
            shared.hooks.tell(Retry(call, ids.attempts, summary(reply)))
            runtime.sleep_until_ms(clock.now_ms() + pause_ms)

    def note_slowness(self, reply: Failure) -> None:
        """After an answer that did not come in time: how long may they take here (CC9)?"""
        if isinstance(reply, Nothing) and reply.timed_out:
            self.status_now()

    def status_now(self) -> int | None:
        """Asks a gateway for its state, once, and keeps what calls need of it. Gives for how long it keeps keys; None:
        it did not say."""
        request = Request("GET", "/status", within_ms=_STATUS_WITHIN_MS)
        reply = self.transport.attempt(request, RequestIds().next())
        if not isinstance(reply, Answer):
            return None
        try:
            status = members(reply.json())
        except AnswerBroken:
            return None
        self.shared.learn_status(status)
        kept_ms = status.get("keys_kept_ms")
        return kept_ms if isinstance(kept_ms, int) else None

    def must_not_be_closing(self) -> None:
        """Raises `Unavailable` once the client is closed."""
        if self.shared.is_closing:
            raise errors.Unavailable("the client was closed")
