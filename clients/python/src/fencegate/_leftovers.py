"""Connections on which more came than was asked for."""

from __future__ import annotations

from typing import Any

import httpx2


def tainted(response: httpx2.Response) -> Any:
    """The connection of an answer that was read to its end, if bytes came behind that end; else None.

    They would be taken for the answer to the next request. The HTTP client keeps them where it has no name for them: if
    it is built otherwise one day, such an answer is still known by its request id (CC24a), and only costs an attempt.
    """
    at: Any = response.stream
    for name in ("_httpcore_stream", "_stream", "_connection"):
        at = getattr(at, name, None)
    behind = getattr(getattr(at, "_h11_state", None), "trailing_data", (b"", False))
    return at if behind[0] else None
