"""Names, durations, streams of events, and the body of a commit."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from fencegate import Misuse
from fencegate._body import digest_header
from fencegate._core import durations, multipart, names
from fencegate._core.sse import SseEvent, SseItem, SseParser, SseRetry, SseTooLong

from .replay import cases, decoded


@cases("names")
def test_names(case: dict[str, Any]) -> None:
    name = case["name"]
    if case["kind"] == "resource":
        problem, path = names.resource_problem(name), lambda: names.resource_path(name).removeprefix("/resources/")
    else:
        problem, path = names.key_problem(name), lambda: names.key_path(name)
    assert problem == case.get("refused")
    if problem is None:
        assert path() == case["path"]
    else:
        with pytest.raises(Misuse):
            path()


@cases("durations")
def test_durations(case: dict[str, Any]) -> None:
    given, kind = case["given"], case["kind"]
    # The vectors count in milliseconds, this library in seconds.
    given = given if isinstance(given, str) else given / 1000

    def sent() -> str:
        if kind == "ttl":
            return durations.text(durations.ttl_ms(given))
        if kind == "max_hold":
            return durations.text(durations.max_hold_ms(given))
        return "forever" if given == "forever" else durations.text(durations.whole_ms(given))

    if case.get("refused"):
        with pytest.raises(Misuse):
            sent()
    else:
        assert sent() == case["sent"]


def _read(chunks: list[bytes]) -> tuple[list[dict[str, str]], int | None]:
    parser, items = SseParser(), list[SseItem]()
    for chunk in chunks:
        items.extend(parser.push(chunk))
    assert not any(isinstance(item, SseTooLong) for item in items)
    events = [item for item in items if isinstance(item, SseEvent)]
    retries = [item.ms for item in items if isinstance(item, SseRetry)]
    shown = [{"event": event.event, "data": event.data, "id": event.id} for event in events]
    return shown, retries[-1] if retries else None


@cases("sse")
def test_sse(case: dict[str, Any]) -> None:
    chunks = [
        chunk.encode() if isinstance(chunk, str) else base64.b64decode(chunk["base64"]) for chunk in case["chunks"]
    ]
    whole = b"".join(chunks)
    expected = (case["events"], case["retry"])
    assert _read(chunks) == expected
    assert _read([whole]) == expected, "in one"
    assert _read([whole[at : at + 1] for at in range(len(whole))]) == expected, "byte by byte"


@cases("multipart")
def test_multipart(case: dict[str, Any]) -> None:
    operations: list[multipart.Operation] = []
    bodies: list[tuple[str, str, bytes]] = []
    for planned in case["operations"]:
        body = None
        if planned["op"] == "put":
            body = f"b{len(bodies)}"
            bodies.append((body, planned.get("content_type", "application/octet-stream"), decoded(planned)))
        operations.append(
            multipart.Operation(
                planned["op"],
                planned["resource"],
                planned["key"],
                body,
                planned.get("content_type"),
                planned.get("if_match"),
                "*" if planned.get("if_absent") else None,
            )
        )
    boundary = case["boundary"]
    parts = [multipart.head(boundary, True, "operations", "application/json", None)]
    parts.append(multipart.listed(operations, case["versions"]))
    for name, content_type, data in bodies:
        digest = digest_header(hashlib.sha256(data).digest())
        parts += [multipart.head(boundary, False, name, content_type, digest), data]
    parts.append(multipart.tail(boundary))
    assert b"".join(parts) == decoded(case["body"])
