"""A good answer of a gateway, whose body is yet to be read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2

from .._core.replies import AnswerBroken, Foreign, Nothing
from .._leftovers import tainted

JSON_BYTES_MAX = 16 << 20
"""The longest answer that is read whole, unless a call says otherwise."""


class AsyncAnswer:
    """The head of an answer, and its body. It is read to its end, or closed: its connection hangs on it."""

    __slots__ = ("_response", "_timeout", "headers", "status")

    def __init__(self, response: httpx2.Response, timeout: dict[str, Any]) -> None:
        self._response = response
        self._timeout = timeout
        self.status: int = response.status_code
        self.headers: dict[str, str] = {
            name.decode("ascii", "replace").lower(): value.decode("latin-1") for name, value in response.headers.raw
        }

    def may_pause(self, idle_ms: int) -> None:
        """How long the body may stand still, if not as the client's settings say."""
        self._timeout["read"] = idle_ms / 1000

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, piece by piece. Raises `AnswerBroken` if it breaks off or stands still."""
        if self._response.is_stream_consumed:
            # A transport of the caller's own may give answers whole.
            yield self._response.content
            return
        try:
            async for piece in self._response.aiter_raw():
                yield piece
            connection = tainted(self._response)
            if connection is not None:
                await connection.aclose()
        except httpx2.TimeoutException:
            raise AnswerBroken(Nothing(True, True, "the answer stood still")) from None
        except httpx2.TransportError as error:
            raise AnswerBroken(Nothing(True, False, f"the answer broke off: {error}")) from None

    async def bytes(self, limit: int = JSON_BYTES_MAX) -> bytes:
        """The body, whole. Raises `AnswerBroken` if it breaks off, stands still, or is longer than that."""
        parts: list[bytes] = []
        size = 0
        async for piece in self.pieces():
            size += len(piece)
            if size > limit:
                await self.close()
                raise AnswerBroken(Nothing(True, False, f"the answer is longer than {limit} bytes"))
            parts.append(piece)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def json(self) -> Any:
        """The body, as JSON. Raises `AnswerBroken` if it is none."""
        body = await self.bytes()
        try:
            return json.loads(body)
        except ValueError as error:
            detail = f"an answer that is not the gateway's: {error}"
            raise AnswerBroken(Foreign(self.status, detail)) from None

    async def close(self) -> None:
        """Leaves it. What was not read of it costs the connection."""
        await self._response.aclose()
