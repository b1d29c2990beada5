"""Sends one request, and waits for the head of its answer. Written by hand, once for asyncio and once for threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator

import httpx2

from .._body import Body
from .._core.attempts import counted


class BodyStream(httpx2.AsyncByteStream):
    """The pieces of a body. The time for an answer begins when the last of them is out (CC9)."""

    def __init__(self, body: Body) -> None:
        self._pieces = body.begin()
        self._limit: asyncio.Timeout | None = None
        self._head_s = 0.0

    def bound(self, limit: asyncio.Timeout, head_s: float) -> None:
        """An answer that takes longer than that, once all is sent, ends this limit."""
        self._limit, self._head_s = limit, head_s
        limit.reschedule(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            if isinstance(self._pieces, AsyncIterable):
                async for piece in self._pieces:
                    yield piece
            else:
                for piece in self._pieces:
                    yield piece
        finally:
            if self._limit is not None and not self._limit.expired():
                self._limit.reschedule(asyncio.get_running_loop().time() + self._head_s)


class NoHead(Exception):
    """No head of an answer came in time."""


async def send(transport: httpx2.AsyncBaseTransport, request: httpx2.Request, head_ms: int) -> httpx2.Response:
    """Sends it, and gives the head of the answer. Raises `NoHead`, or what the transport raises."""
    head_s = head_ms / 1000
    id = request.headers.get("x-request-id", "")
    counted.begun += 1
    counted.waiting.append(id)
    try:
        async with asyncio.timeout(head_s) as limit:
            if isinstance(request.stream, BodyStream):
                request.stream.bound(limit, head_s)
            return await transport.handle_async_request(request)
    except TimeoutError:
        raise NoHead(f"no answer within {head_ms} ms") from None
    finally:
        counted.waiting.remove(id)
