"""Many puts and deletes at once, over all resources of a lock: all or nothing (CC29)."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Generator
from typing import Any

from .. import errors
from .._body import Body, BodyLike, body_of, bytes_body, json_bytes
from .._core import multipart, names
from .._core.durations import Duration
from .._core.settling import Condition
from .._guard.held import Held
from .._options import checked_switch
from .._prepared import WriteOptions, prepare
from .._results import Committed, Receipt
from .._wire import CommitResult, CommittedResource, NotOfThisForm, Operation, decode
from . import _runtime as runtime
from ._caller import AsyncCaller
from ._writing import Answered, AsyncWriting

OPERATIONS_MAX = 1_000
_UNSAID: Any = object()


class AsyncCommit:
    """A commit that is put together; to await it, or `send`, sends it."""

    def __init__(self, caller: AsyncCaller, held: Held) -> None:
        self._caller = caller
        self._held = held
        self._operations: list[multipart.Operation] = []
        self._bodies: list[tuple[multipart.Operation, Body]] = []
        self._versions: dict[str, int] = {}

    def put(
        self,
        resource: str,
        key: str,
        body: BodyLike = _UNSAID,
        *,
        json: object = _UNSAID,
        content_type: str | None = None,
        if_match: str | None = None,
        if_absent: bool = False,
    ) -> AsyncCommit:
        """Stores an object: bytes, text, the `Path` of a file, or a `Body`; or else `json`, a value."""
        if (body is _UNSAID) == (json is _UNSAID):
            raise errors.Misuse("a put has a body or json, one of them")
        if json is not _UNSAID and content_type is None:
            content_type = "application/json"
        sent = body_of(json_bytes(json) if body is _UNSAID else body)
        if not sent.is_replayable:
            raise errors.Misuse("a commit takes bodies that can be sent again: bytes, files, or Body.stream")
        operation = multipart.Operation(
            op="put",
            resource=resource,
            key=key,
            body=f"b{len(self._bodies)}",
            content_type=None if content_type is None else names.checked_content_type(content_type),
            if_match=None if if_match is None else names.checked_tags(if_match),
            if_none_match="*" if checked_switch("if_absent", if_absent) else None,
        )
        self._add(operation)
        self._bodies.append((operation, sent))
        return self

    def delete(self, resource: str, key: str, *, if_match: str | None = None) -> AsyncCommit:
        """Removes an object, if it is there."""
        tags = None if if_match is None else names.checked_tags(if_match)
        self._add(multipart.Operation(op="delete", resource=resource, key=key, if_match=tags))
        return self

    def expect_version(self, resource: str, version: int) -> AsyncCommit:
        """The commit is done only if the resource is at this version."""
        names.resource_path(resource)
        self._versions[resource] = names.checked_version(version)
        return self

    def _add(self, operation: multipart.Operation) -> None:
        names.object_path(operation.resource, operation.key)
        self._operations.append(operation)

    def __await__(self) -> Generator[Any, None, Committed]:
        return self.send().__await__()

    async def send(
        self,
        *,
        idempotency_key: str | None = None,
        timeout: Duration | None = None,
        retries: bool | None = None,
        ride_out: bool = False,
    ) -> Committed:
        """Sends it. Raises what writes raise; `Changed.index` says which operation could not be done."""
        self._check()
        options = WriteOptions(None, False, None, idempotency_key, timeout, retries, ride_out)
        first = min(operation.resource for operation in self._operations)
        prepared = prepare(self._held, "commit", "POST", "/commit", first, options, self._condition())
        boundary = f"fencegate-{secrets.token_hex(16)}"
        prepared.request.header(b"Content-Type", multipart.content_type(boundary))
        prepared.request.body = await self._body(boundary)
        effect, receipt = await AsyncWriting(self._caller, self._held, prepared).go()
        return _committed(effect, receipt)

    def _check(self) -> None:
        """The gateway's limits, and what the lock covers."""
        if not 1 <= len(self._operations) <= OPERATIONS_MAX:
            raise errors.Misuse(f"a commit has 1 to {OPERATIONS_MAX} operations")
        objects: set[tuple[str, str]] = set()
        for operation in self._operations:
            one = (operation.resource, operation.key)
            if one in objects:
                raise errors.Misuse(f"the object {operation.key} of {operation.resource} comes twice")
            objects.add(one)
        resources = {resource for resource, _ in objects} | self._versions.keys()
        if len(resources) > names.RESOURCES_MAX:
            raise errors.Misuse(f"a commit is on at most {names.RESOURCES_MAX} resources")
        for resource in sorted(resources):
            if resource not in self._held.resources:
                raise errors.Misuse(f"the lock does not cover {resource}")

    def _condition(self) -> Condition:
        tags = [operation.if_match for operation in self._operations if operation.if_match is not None]
        is_absence = any(operation.if_none_match is not None for operation in self._operations)
        if self._versions or is_absence or "*" in tags:
            return Condition.ABSENCE
        return Condition.TAGS if tags else Condition.NONE

    async def _body(self, boundary: str) -> Body:
        """The parts, in the order of the operations. Streamed, if they are not all in memory."""
        first = multipart.head(boundary, True, "operations", "application/json", None)
        parts = [(first, bytes_body(multipart.listed(self._operations, self._versions)))]
        for operation, body in self._bodies:
            digest = body.digest() if body.whole is not None else await runtime.in_thread(body.digest)
            content_type = operation.content_type or "application/octet-stream"
            parts.append((multipart.head(boundary, False, operation.body or "", content_type, digest), body))
        tail = multipart.tail(boundary)
        wholes = [body.whole for _, body in parts]
        if all(whole is not None for whole in wholes):
            pieces = [piece for (head, _), whole in zip(parts, wholes, strict=True) for piece in (head, whole or b"")]
            return bytes_body(b"".join([*pieces, tail]))
        return Body.stream(lambda: _streamed(parts, tail), _size(parts, tail))


def _size(parts: list[tuple[bytes, Body]], tail: bytes) -> int | None:
    size = len(tail)
    for head, body in parts:
        if body.size is None:
            return None
        size += len(head) + body.size
    return size


async def _streamed(parts: list[tuple[bytes, Body]], tail: bytes) -> AsyncIterator[bytes]:
    """One attempt's stream of all parts."""
    for head, body in parts:
        yield head
        async for piece in runtime.each(body.begin()):
            yield piece
    yield tail


def _committed(effect: Answered | Operation, receipt: Receipt) -> Committed:
    if isinstance(effect, Operation):
        only = (CommittedResource(effect.resource or "", effect.version),)
        return Committed(effect.operation, effect.resources or only, (), True, receipt)
    operation = effect.document.get("operation", effect.operation)
    if not isinstance(operation, str):
        raise errors.GatewayFault("the commit took effect, but its answer does not say as which operation")
    resources, results = _told(effect.document)
    return Committed(operation, resources, results, effect.was_replayed, receipt)


def _told(document: dict[str, Any]) -> tuple[tuple[CommittedResource, ...], tuple[CommitResult, ...]]:
    try:
        resources = decode(tuple[CommittedResource, ...], document.get("resources", []))
        return resources, decode(tuple[CommitResult, ...], document.get("results", []))
    except NotOfThisForm:
        # A newer gateway says it in another way; the commit took effect all the same (CC7).
        return (), ()
