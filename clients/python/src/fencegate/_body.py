"""What a write sends (CC26): bytes, text, a file, or a stream."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias, cast

from .errors import Misuse

PIECE = 64 << 10
"""Bodies in memory that are larger are sent in pieces, to see how far they got; files are read so."""
LARGE = 1 << 20
"""Bodies above this size are worth a renewal before they are sent (CC27)."""
_FILE_DIGEST_MAX = 64 << 20

Pieces: TypeAlias = Iterable[bytes] | AsyncIterable[bytes]


def digest_header(digest: bytes) -> str:
    """A SHA-256 as `Repr-Digest` has it."""
    return f"sha-256=:{base64.b64encode(digest).decode()}:"


class Body:
    """The bytes of an object. Made by the functions of this class; `put` takes bytes, text and paths as they are, too.

    All but `Body.once` can be sent again.
    """

    __slots__ = ("_begin", "_can_digest", "_digest", "is_replayable", "size")

    def __init__(self, begin: Callable[[], Pieces], size: int | None, is_replayable: bool) -> None:
        self._begin = begin
        self.size: int | None = size
        """How many bytes it has; None: that is not known."""
        self.is_replayable: bool = is_replayable
        """Whether a second attempt can send the same bytes."""
        self._digest: str | None = None
        self._can_digest = False

    @staticmethod
    def file(path: str | os.PathLike[str]) -> Body:
        """A file, read as it is sent. It must not change until the write is answered."""
        return _FileBody(Path(path))

    @staticmethod
    def stream(begin: Callable[[], Pieces], size: int | None = None) -> Body:
        """A stream that the function begins anew for each attempt, always with the same bytes.

        On an `AsyncFencegate` it may give an asynchronous iterable. `size` is the number of bytes, if it is known.
        """
        if not callable(begin):
            raise Misuse("Body.stream takes a function that begins the stream; Body.once takes the stream itself")
        return Body(begin, size, is_replayable=True)

    @staticmethod
    def once(pieces: Pieces, size: int | None = None) -> Body:
        """A stream that can be read once. A write of it makes one attempt only, so that its outcome is unknown as soon
        as that goes without an answer: prefer any other body."""
        left = [pieces]

        def begin() -> Pieces:
            if not left:
                raise Misuse("the stream has been sent already")
            return left.pop()

        return Body(begin, size, is_replayable=False)

    @staticmethod
    def json(value: object) -> Body:
        """A value as JSON, in UTF-8, without NaN and infinities."""
        return bytes_body(json_bytes(value))

    def begin(self) -> Pieces:
        """The bytes of one attempt."""
        try:
            pieces = self._begin()
        except OSError as error:
            raise Misuse(f"the body cannot be read: {error}") from error
        return pieces if self.size is None else _exactly(pieces, self.size)

    def digest(self) -> str | None:
        """`Repr-Digest` of it, if that is cheap to know."""
        return None

    @property
    def whole(self) -> bytes | None:
        """All of it, if it is in memory."""
        return None

    @property
    def is_large(self) -> bool:
        """Whether a holder that has lost its lock should learn it for some hundred bytes instead."""
        return self.size is None or self.size > LARGE


class BytesBody(Body):
    """Bytes in memory."""

    __slots__ = ("_bytes",)

    def __init__(self, data: bytes) -> None:
        super().__init__(self._pieces, len(data), is_replayable=True)
        self._bytes = data

    def _pieces(self) -> Iterator[bytes]:
        view = memoryview(self._bytes)
        for at in range(0, len(view), PIECE):
            yield bytes(view[at : at + PIECE])

    def digest(self) -> str | None:
        if self._digest is None:
            self._digest = digest_header(hashlib.sha256(self._bytes).digest())
        return self._digest

    @property
    def whole(self) -> bytes | None:
        return self._bytes


class _FileBody(Body):
    """A file, and how it looked at the first attempt: what is sent again must be the same."""

    __slots__ = ("_first", "_path")

    def __init__(self, path: Path) -> None:
        super().__init__(self._pieces, None, is_replayable=True)
        self._path = path
        self._first = self._look()
        self.size = self._first[0]

    def _look(self) -> tuple[int, int]:
        try:
            found = self._path.stat()
        except OSError as error:
            raise Misuse(f"cannot read {self._path}: {error}") from error
        if not self._path.is_file():
            raise Misuse(f"{self._path} is no file")
        if not os.access(self._path, os.R_OK):
            raise Misuse(f"cannot read {self._path}: it is not ours to read")
        return (found.st_size, found.st_mtime_ns)

    def _pieces(self) -> Iterator[bytes]:
        if self._look() != self._first:
            raise Misuse(f"{self._path} changed since the first attempt to send it")
        return _read(self._path)

    def digest(self) -> str | None:
        if self._digest is None and self._first[0] <= _FILE_DIGEST_MAX:
            try:
                with self._path.open("rb") as file:
                    self._digest = digest_header(hashlib.file_digest(file, "sha256").digest())
            except OSError as error:
                raise Misuse(f"cannot read {self._path}: {error}") from error
        return self._digest


def _read(path: Path) -> Iterator[bytes]:
    # Opened once it is read: nobody would close it if the request is never sent.
    try:
        file = path.open("rb")
    except OSError as error:
        raise Misuse(f"cannot read {path}: {error}") from error
    with file:
        while piece := file.read(PIECE):
            yield piece


def _exactly(pieces: Pieces, size: int) -> Pieces:
    """A stream that gives more or less than was promised breaks the request."""
    if isinstance(pieces, AsyncIterable):
        return _exactly_async(pieces, size)
    return _exactly_sync(pieces, size)


class WrongLength(Exception):
    """The stream has another length than was promised."""

    def __init__(self) -> None:
        super().__init__("the body is longer or shorter than its length")


def _exactly_sync(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    left = size
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise WrongLength
        yield piece
    if left:
        raise WrongLength


async def _exactly_async(pieces: AsyncIterable[bytes], size: int) -> AsyncIterator[bytes]:
    left = size
    async for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise WrongLength
        yield piece
    if left:
        raise WrongLength


BodyLike: TypeAlias = Body | bytes | bytearray | memoryview | str | os.PathLike[str]
"""What `put` takes: bytes, text (sent as UTF-8), the path of a file (a `Path`, not a `str`), or a `Body`."""


def bytes_body(data: bytes) -> Body:
    """Bytes in memory as a body."""
    return BytesBody(data)


def json_bytes(value: object) -> bytes:
    """A value as JSON (CC26)."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise Misuse(f"no JSON: {error}") from error


def body_of(given: object) -> Body:
    """What a caller gives, as a body."""
    if type(given) is bytes:
        return BytesBody(given)
    if isinstance(given, str):
        try:
            return BytesBody(given.encode())
        except UnicodeEncodeError as error:
            raise Misuse(f"the text cannot be written in UTF-8: {error}") from error
    if isinstance(given, Body):
        return given
    if isinstance(given, bytes | bytearray):
        return BytesBody(bytes(given))
    if isinstance(given, memoryview):
        return BytesBody(cast("memoryview[int]", given).tobytes())
    if isinstance(given, os.PathLike):
        return Body.file(cast("os.PathLike[str]", given))
    raise Misuse(f"a body is bytes, text, a Path or a Body, not {type(given).__name__}")
