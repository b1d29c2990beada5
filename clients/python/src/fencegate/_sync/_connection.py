# Made by scripts/unasync.py out of ../_async/_connection.py: change that, and run it again.
"""One connection to the feed of writes: a stream of events, or a call that waits for the next ones (CC48)."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .. import errors
from .._core import clock, names
from .._core.ids import RequestIds
from .._core.replies import AnswerBroken, Failure, Nothing, error_of, floor_ms, summary
from .._core.sse import SseEvent, SseItem, SseParser, SsePlace, SseRetry
from .._request import Request
from .._shared import Shared
from .._wire import NotOfThisForm, WriteEvent, decode
from . import _runtime as runtime
from ._answer import Answer
from ._caller import Caller

SILENCE_MS = 5_000
"""A stream says where it begins at once. One of which nothing is heard for so long is held back on the way."""
DEAD_MS = 60_000
"""A stream without a byte for so long is dead: gateways send a comment every 15 s."""
WAIT_MS = 25_000
"""For how long a call waits for events. Load balancers cut calls of 30 s or 60 s."""
_FLOOR_MS_MAX = 60_000
"""The longest pause that anybody on the way may ask for."""


class Passing(Exception):
    """A call or a stream came to nothing. Another attempt, after a pause, may do better."""

    def __init__(self, detail: str, floor_ms: int | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.floor_ms = floor_ms


@dataclass(frozen=True, slots=True)
class Found:
    """Events that a call found, and where it stands behind them."""

    events: list[WriteEvent]
    next_cursor: str


def is_passing(error: errors.FenceError) -> bool:
    """Whether what failed may do better later, although nothing here is changed."""
    status = error.status
    is_crowded = status is not None and (status >= 500 or status in (408, 429))
    return isinstance(error, errors.Unavailable | errors.Busy) or is_crowded


def failed(failure: Failure) -> Exception:
    """What follows from a failure: a pause, or the end."""
    error = error_of(failure, 1)
    if not is_passing(error):
        return error
    wait_ms = floor_ms(failure)
    return Passing(summary(failure), None if wait_ms is None else min(wait_ms, _FLOOR_MS_MAX))


class Connection:
    """A stream of events."""

    def __init__(self, shared: Shared, answer: Answer) -> None:
        self._shared = shared
        self._answer = answer
        self._parser = SseParser()
        self._items: deque[SseItem] = deque()
        self._pieces: Iterator[bytes] = answer.pieces()
        self.opened_ms = clock.now_ms()
        """Since when it is open."""

    def next(self) -> WriteEvent | SsePlace | SseRetry:
        """What it says next. It does not end by itself but with a failure."""
        while True:
            while self._items:
                item = self._items.popleft()
                if isinstance(item, SsePlace):
                    return item
                if isinstance(item, SseRetry):
                    return SseRetry(min(item.ms, _FLOOR_MS_MAX))
                if not isinstance(item, SseEvent):
                    raise errors.GatewayFault("a stream of events without events")
                # Others are of a kind that a newer gateway has.
                if item.event == "write":
                    return _event(item.data)
            self.read()

    def read(self) -> None:
        """Reads one piece."""
        try:
            piece = next(self._pieces)
        except StopIteration:
            raise Passing("the stream ended") from None
        except AnswerBroken as broken:
            raise Passing(broken.failure.detail) from None
        self._items.extend(self._parser.push(piece))

    def close(self) -> None:
        """Leaves it."""
        self._shared.give_stream_back()
        self._answer.close()


def connect(caller: Caller, after: str | None) -> Connection | None:
    """Opens a stream behind this place, and waits until it has said something. None: it is held back on the way, or
    there is none to be had now."""
    shared = caller.shared
    if not shared.take_stream():
        return None
    connection: Connection | None = None
    try:
        request = Request("GET", _place(after, []), [(b"Accept", b"text/event-stream")], within_ms=SILENCE_MS)
        reply = caller.transport.attempt(request, RequestIds().next())
        if not isinstance(reply, Answer):
            if isinstance(reply, Nothing) and reply.timed_out:
                return None
            raise failed(reply)
        if not reply.headers.get("content-type", "").startswith("text/event-stream"):
            reply.close()
            return None
        reply.may_pause(DEAD_MS)
        opened = Connection(shared, reply)
        try:
            if not runtime.within(opened.read, SILENCE_MS):
                reply.close()
                return None
        except BaseException:
            reply.close()
            raise
        connection = opened
        return connection
    finally:
        if connection is None:
            shared.give_stream_back()


def poll(caller: Caller, after: str | None) -> Found:
    """Asks for the events behind this place, and waits for the first of them for a while."""
    place = _place(after, [("limit", "1000"), ("wait", f"{WAIT_MS}ms")])
    reply = caller.transport.attempt(Request("GET", place, wait_ms=WAIT_MS), RequestIds().next())
    if not isinstance(reply, Answer):
        raise failed(reply)
    try:
        said: Any = reply.json()
    except AnswerBroken as broken:
        raise failed(broken.failure) from None
    try:
        found = [decode(WriteEvent, item) for item in said["items"]]
        return Found(found, str(said["next_cursor"]))
    except (NotOfThisForm, KeyError, TypeError) as error:
        raise errors.GatewayFault(f"an answer that is not the gateway's: {error}") from None


def _event(data: str) -> WriteEvent:
    try:
        return decode(WriteEvent, json.loads(data))
    except (ValueError, NotOfThisForm) as error:
        raise errors.GatewayFault(f"an event that is none: {error}") from None


def _place(after: str | None, more: list[tuple[str, str | None]]) -> str:
    return "/events" + names.query([("after", after), *more])
