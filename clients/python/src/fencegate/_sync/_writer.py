# Made by scripts/unasync.py out of ../_async/_writer.py: change that, and run it again.
"""What can be written through a guard. Writes exist here only, so that none can be made without a token."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import errors
from .._body import Body, BodyLike, body_of, json_bytes
from .._core import names
from .._core.durations import Duration
from .._guard.held import Held
from .._options import checked_switch
from .._prepared import DEFAULTS, Prepared, WriteOptions, prepare, target
from .._results import Delete, Deleted, Keep, Receipt, UpstreamAnswer, Written
from .._wire import Operation
from . import _runtime as runtime
from ._caller import Caller
from ._commit import Commit
from ._update import update, update_json
from ._upstream import forward
from ._writing import Answered, Writing

_OCTETS = (b"Content-Type", b"application/octet-stream")
_JSON = (b"Content-Type", b"application/json")
_UNSAID: Any = object()


class Writer:
    """The writes of a guard. Raises, with each of them: `LockLost`: stop. `Changed`: a condition failed.
    `OutcomeUnknown`: nobody knows; resolve it. `Unavailable`: it certainly took no effect. `Misuse`: the gateway would
    refuse a name or an option."""

    __slots__ = ("_caller", "_held")

    def __init__(self, caller: Caller, held: Held) -> None:
        self._caller = caller
        self._held = held

    def put(
        self,
        key: str,
        body: BodyLike = _UNSAID,
        *,
        json: object = _UNSAID,
        resource: str | None = None,
        content_type: str | None = None,
        if_match: str | None = None,
        if_absent: bool = False,
        expect_version: int | None = None,
        idempotency_key: str | None = None,
        timeout: Duration | None = None,
        retries: bool | None = None,
        ride_out: bool = False,
        digest: bool = True,
    ) -> Written:
        """Stores an object. It takes effect once or not at all, and only while nobody has a newer token.

        - `body`: bytes, text, the `Path` of a file, or a `Body`; or else `json`: a value.
        - `resource`: where, of a guard of several.
        - `content_type`: by default `application/octet-stream`, of JSON `application/json`.
        - `if_match`: only if the object carries this tag, such as `"g0-v17"` with its quotes; `*`: if it is there.
        - `if_absent`: only if the object is not there.
        - `expect_version`: only if the resource is at this version.
        - `idempotency_key`: a key of one's own, such as the id of a message: with it the write takes effect once,
          however often it is made.
        - `timeout`: for how long it goes on; by default as the client says.
        - `retries`: `False`: one attempt, whatever comes of it.
        - `ride_out`: waits while an operator has the resource frozen.
        - `digest`: `False`: without `Repr-Digest`, which costs a reading of the body before it is sent.
        """
        held = self._held
        where = target(held, resource)
        sent = _body(body, json)
        is_plain = if_match is None and expect_version is None and idempotency_key is None and timeout is None
        options = DEFAULTS
        if not is_plain or if_absent is not False or ride_out is not False or retries is not None:
            options = WriteOptions(if_match, if_absent, expect_version, idempotency_key, timeout, retries, ride_out)
        prepared = prepare(held, "put", "PUT", names.object_path(where, key), where, options, None)
        prepared.object = key
        request = prepared.request
        if content_type is not None:
            request.header(b"Content-Type", names.checked_content_type(content_type))
        else:
            request.headers.append(_OCTETS if json is _UNSAID else _JSON)
        if checked_switch("digest", digest):
            prepared.digest = sent.digest() if sent.whole is not None else runtime.in_thread(sent.digest)
            if prepared.digest is not None:
                request.header(b"Repr-Digest", prepared.digest)
        request.body = sent
        effect, receipt = Writing(self._caller, held, prepared).go()
        return _written(where, key, effect, receipt)

    def delete(
        self,
        key: str,
        *,
        resource: str | None = None,
        if_match: str | None = None,
        expect_version: int | None = None,
        idempotency_key: str | None = None,
        timeout: Duration | None = None,
        retries: bool | None = None,
        ride_out: bool = False,
    ) -> Deleted:
        """Removes an object, if it is there. The options are those of `put`."""
        where = target(self._held, resource)
        options = WriteOptions(if_match, False, expect_version, idempotency_key, timeout, retries, ride_out)
        path = names.object_path(where, key)
        prepared = prepare(self._held, "delete", "DELETE", path, where, options, None)
        prepared.object = key
        return self._delete(prepared)

    def delete_all(
        self,
        *,
        resource: str | None = None,
        expect_version: int | None = None,
        idempotency_key: str | None = None,
        timeout: Duration | None = None,
        retries: bool | None = None,
        ride_out: bool = False,
    ) -> Deleted:
        """Removes all objects of the resource, as one write. The options are those of `put`."""
        where = target(self._held, resource)
        options = WriteOptions(None, False, expect_version, idempotency_key, timeout, retries, ride_out)
        path = names.resource_path(where)
        return self._delete(prepare(self._held, "delete", "DELETE", path, where, options, None))

    def _delete(self, prepared: Prepared) -> Deleted:
        effect, receipt = Writing(self._caller, self._held, prepared).go()
        replayed = effect.was_replayed if isinstance(effect, Answered) else True
        return Deleted(prepared.resource, prepared.object, effect.version, effect.operation, replayed, receipt)

    def commit(self) -> Commit:
        """Many puts and deletes at once: all or nothing."""
        return Commit(self._caller, self._held)

    def update(
        self,
        key: str,
        change: Callable[[bytes | None], BodyLike | Keep | Delete],
        *,
        resource: str | None = None,
    ) -> Written | None:
        """Reads the object, lets `change` make a new one of it (None: there is none), and stores that, if nobody
        changed the object meanwhile; else again, at most 16 times. `change` may run several times.

        `change` may give `KEEP` or `DELETE`. Gives what was written; None if it was kept or deleted.
        """
        return update(self, target(self._held, resource), key, change)

    def update_json(
        self,
        key: str,
        change: Callable[[Any], Any],
        *,
        resource: str | None = None,
    ) -> Any:
        """The same for a value as JSON. `change` gets None if there is no object. Gives the new value; None if the
        object was deleted, the old value if it was kept."""
        return update_json(self, target(self._held, resource), key, change)

    def upstream(
        self,
        upstream: str,
        method: str,
        path: str,
        *,
        body: BodyLike | None = None,
        headers: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> UpstreamAnswer:
        """A request that changes something at an upstream, at this path of it. It is sent once: the gateway cannot know
        what a service of somebody else does with a second one."""
        given = None if body is None else body_of(body)
        return forward(self._caller, self._held, upstream, method, path, given, headers or {}, idempotency_key)


def _body(body: Any, json: object) -> Body:
    if (body is _UNSAID) == (json is _UNSAID):
        raise errors.Misuse("a put has a body or json, one of them")
    return body_of(json_bytes(json) if body is _UNSAID else body)


def _written(resource: str, key: str, effect: Answered | Operation, receipt: Receipt) -> Written:
    if isinstance(effect, Operation):
        return Written(
            resource=resource,
            key=key,
            version=effect.version or 0,
            etag=None,
            size=effect.size,
            sha256=effect.sha256,
            operation=effect.operation,
            created=None,
            replayed=True,
            receipt=receipt,
        )
    said = effect.document
    version, operation, size, sha256 = said.get("version"), said.get("operation"), said.get("size"), said.get("sha256")
    version = version if isinstance(version, int) else effect.version
    operation = operation if isinstance(operation, str) else effect.operation
    if version is None or operation is None:
        raise errors.GatewayFault("the write took effect, but its answer does not say as which operation")
    return Written(
        resource=resource,
        key=key,
        version=version,
        etag=effect.headers.get("etag"),
        size=size if isinstance(size, int) else None,
        sha256=sha256 if isinstance(sha256, str) else None,
        operation=operation,
        created=effect.status == 201,
        replayed=effect.was_replayed,
        receipt=receipt,
    )
