"""One request, as it is sent in each attempt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ._body import Body, bytes_body, json_bytes

_JSON = (b"Content-Type", b"application/json")


@dataclass(slots=True)
class Request:
    """What an attempt sends, but for what differs between attempts."""

    method: str
    path: str
    """The path and query, encoded."""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list[tuple[bytes, bytes]])
    body: Body | None = None
    wait_ms: int = 0
    """For how long the gateway was asked to wait."""
    within_ms: int | None = None
    """How long the head of the answer may take, if less than usual."""

    def header(self, name: bytes, value: str) -> Request:
        """With a header whose value was checked, or made by us."""
        self.headers.append((name, value.encode()))
        return self


def json_request(method: str, path: str, document: dict[str, Any]) -> Request:
    """A request with JSON as its body. Members without a value are left out."""
    said = {name: value for name, value in document.items() if value is not None}
    return Request(method, path, [_JSON], bytes_body(json_bytes(said)))
