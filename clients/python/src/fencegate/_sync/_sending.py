"""Sends one request, and waits for the head of its answer. Written by hand, once for asyncio and once for threads."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterator

import httpx2

from .._body import Body
from ..errors import Misuse


class BodyStream(httpx2.SyncByteStream):
    """The pieces of a body."""

    def __init__(self, body: Body) -> None:
        pieces = body.begin()
        if isinstance(pieces, AsyncIterable):
            raise Misuse("a Fencegate sends no asynchronous streams: use an AsyncFencegate")
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        yield from self._pieces


class NoHead(Exception):
    """No head of an answer came in time."""


def send(transport: httpx2.BaseTransport, request: httpx2.Request, head_ms: int) -> httpx2.Response:
    """Sends it, and gives the head of the answer. Raises `NoHead`, or what the transport raises."""
    # The socket gives up where nothing comes for so long; the time begins when all is sent.
    request.extensions["timeout"]["read"] = head_ms / 1000
    try:
        return transport.handle_request(request)
    except httpx2.ReadTimeout:
        raise NoHead(f"no answer within {head_ms} ms") from None
