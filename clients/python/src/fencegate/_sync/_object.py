# Made by scripts/unasync.py out of ../_async/_object.py: change that, and run it again.
"""Objects, whole or as streams that go on where they broke off (CC47)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType

from .. import errors
from .._core import clock
from .._core.backoff import Backoff
from .._core.replies import AnswerBroken
from .._hooks import Retry
from .._objects import ABSENT, Object, ObjectHead, head_of, path_of, whole_size
from .._options import checked_number
from .._request import Request
from . import _runtime as runtime
from ._answer import Answer
from ._caller import Caller

_RESUMES_MAX = 5
"""How often a stream goes on after a break."""
_RESTARTS_MAX = 5
"""How often a whole read begins again, because the object changed after the answer broke off."""


def read_whole(caller: Caller, resource: str, key: str, limit: int, version: int | None = None) -> Object | None:
    """An object, whole; None if it is not there."""
    checked_number("limit", limit, 0)
    until_ms = caller.shared.call_until_ms()
    restarts = 0
    while True:
        try:
            reader = open_object(caller, resource, key, version, None)
        except errors.NotFound as error:
            if error.code in ABSENT:
                return None
            raise
        head = reader.head
        if head.size > limit:
            reader.close()
            raise errors.Misuse(
                f"{key!r} has {head.size} bytes, more than the limit of {limit}: read it as a stream, or raise the limit"
            )
        try:
            parts = [piece for piece in reader]
        except errors.Changed:
            # It is a read: what it is now is as good as what it was.
            restarts += 1
            if restarts > _RESTARTS_MAX or clock.now_ms() >= until_ms:
                raise
            continue
        return Object.of(head, b"".join(parts))


def open_object(
    caller: Caller, resource: str, key: str, version: int | None, range: tuple[int, int | None] | None
) -> Reader:
    """Opens an object as a stream."""
    request = Request("GET", path_of(resource, key, version))
    if range is not None:
        first, last = range
        checked_number("the first byte of a range", first, 0)
        if last is not None:
            checked_number("the last byte of a range", last, first)
        request.header(b"Range", f"bytes={first}-{'' if last is None else last}")
    answer = caller.call("get", request)
    is_part = answer.status == 206 and range is not None
    if answer.status != 200 and not is_part:
        answer.close()
        raise errors.GatewayFault(f"an answer that makes no sense here: {answer.status}")
    try:
        return Reader(caller, request.path, resource, key, answer, range)
    except errors.FenceError:
        answer.close()
        raise


class Reader:
    """The bytes of an object, piece by piece. Their number is checked at the end, and their SHA-256 if the gateway sent
    it: bytes are good only once the end has come without an error. A connection that breaks is made again, up to five
    times. To be closed, or used as a context manager."""

    def __init__(
        self,
        caller: Caller,
        path: str,
        resource: str,
        key: str,
        answer: Answer,
        range: tuple[int, int | None] | None,
    ) -> None:
        self._caller = caller
        self._path = path
        self._answer: Answer | None = answer
        head = head_of(resource, key, answer.headers)
        first, last = range or (0, None)
        if answer.status == 206:
            whole = whole_size(answer.headers.get("content-range", ""), first)
            if whole is None:
                raise errors.GatewayFault("an answer that makes no sense here: another range than was asked for")
            head = replace(head, size=whole)
        self.head = head
        """What the gateway says of the object."""
        self._at = first
        self._end = head.size if last is None else min(head.size, last + 1)
        self._has_range = range is not None
        # How many bytes of this answer were given out before.
        self._skip = 0 if answer.status == 206 else first
        # The digest of the whole says nothing of a part.
        self._hash = hashlib.sha256() if head.sha256 is not None and range is None else None
        self._resumes = 0
        self._broke = ""
        self._backoff = Backoff()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.head.key!r}, {self.head.size} bytes>"

    def __iter__(self) -> Iterator[bytes]:
        while self._at < self._end:
            if self._answer is None:
                self._resume()
                continue
            self._broke = "it ended early"
            try:
                for piece in self._answer.pieces():
                    taken = self._take(piece)
                    if taken:
                        yield taken
                    if self._has_range and self._at >= self._end:
                        break
            except AnswerBroken as broken:
                self._broke = broken.failure.detail
            if self._at < self._end:
                self.close()
        self._finish()

    def _finish(self) -> None:
        self.close()
        if self._hash is not None and self._hash.hexdigest() != self.head.sha256:
            raise errors.GatewayFault("the bytes are not those that the gateway has: their SHA-256 is another")

    def close(self) -> None:
        """Leaves it."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _take(self, piece: bytes) -> bytes:
        known = min(self._skip, len(piece))
        self._skip -= known
        piece = piece[known:]
        if self._has_range:
            piece = piece[: self._end - self._at]
        self._at += len(piece)
        if self._at > self.head.size:
            raise errors.GatewayFault(f"the answer has more than the {self.head.size} bytes of the object")
        if self._hash is not None:
            self._hash.update(piece)
        return piece

    def _resume(self) -> None:
        """Asks for the rest, if it is of the same object."""
        shared = self._caller.shared
        if self._resumes == _RESUMES_MAX or not shared.settings.retries:
            times = self._resumes + 1
            detail = f"the answer broke off {times} times: {self._broke}"
            raise errors.Unavailable(detail, retryable=True, attempts=times)
        self._resumes += 1
        shared.hooks.tell(Retry("get", self._resumes, self._broke))
        pause_ms = self._backoff.next(clock.draw(), None, None) or 0
        runtime.sleep_until_ms(clock.now_ms() + pause_ms)
        last = str(self._end - 1) if self._has_range else ""
        request = Request("GET", self._path).header(b"Range", f"bytes={self._at}-{last}")
        request.header(b"If-Range", self.head.etag)
        try:
            answer = self._caller.call("get", request)
        except errors.NotFound as error:
            if error.code in ABSENT:
                raise _changed() from None
            raise
        if answer.headers.get("etag") != self.head.etag:
            answer.close()
            raise _changed()
        goes_on = answer.headers.get("content-range", "").startswith(f"bytes {self._at}-")
        if answer.status == 206 and goes_on:
            self._skip = 0
        elif answer.status == 200:
            # Something on the way knows no ranges.
            self._skip = self._at
        else:
            answer.close()
            raise errors.GatewayFault(f"an answer that makes no sense here: {answer.status}")
        self._answer = answer


def look(caller: Caller, resource: str, key: str, version: int | None) -> ObjectHead:
    """Looks at an object without its bytes."""
    path = path_of(resource, key, version)
    try:
        answer = caller.call("head", Request("HEAD", path))
    except errors.GatewayFault as fault:
        if fault.status is None or not 400 <= fault.status < 500:
            raise
        # A refusal of HEAD has no body that says why: the same as GET, without the bytes, has.
        request = Request("GET", path).header(b"If-None-Match", "*")
        answer = caller.call("head", request)
        answer.close()
        if answer.status != 304:
            raise
        # It has come into being since.
        answer = caller.call("head", Request("HEAD", path))
    answer.close()
    return head_of(resource, key, answer.headers)


def _changed() -> errors.Changed:
    return errors.Changed("the object changed after its answer had broken off")
