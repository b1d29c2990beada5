"""Objects, whole or without their bytes, as the head of an answer describes them."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from . import errors
from ._core import names

T = TypeVar("T")

_VERSION = re.compile(r'"g[0-9]+-v([0-9]{1,19})"')
ABSENT = ("object-not-found", "resource-not-found")
"""How a gateway says that an object is not there."""


@dataclass(frozen=True, slots=True)
class ObjectHead:
    """What a gateway says of an object beside its bytes."""

    resource: str
    key: str
    etag: str
    """Its tag, for `if_match` of a write: it changes with each write."""
    version: int | None
    """The version of the resource that wrote it, from the tag."""
    resource_version: int | None
    """The version of the resource when it was read."""
    content_type: str
    size: int
    sha256: str | None
    """The SHA-256 of its bytes, in hexadecimal, if the gateway sent it."""


@dataclass(frozen=True, slots=True)
class Object(ObjectHead):
    """An object, whole. Its length was checked, and its SHA-256 if the gateway sent one."""

    body: bytes

    @classmethod
    def of(cls, head: ObjectHead, body: bytes) -> Object:
        """An object of its head and its bytes."""
        return cls(
            head.resource,
            head.key,
            head.etag,
            head.version,
            head.resource_version,
            head.content_type,
            head.size,
            head.sha256,
            body,
        )

    @property
    def text(self) -> str:
        """Its bytes as text. Raises `Misuse` if they are no UTF-8."""
        try:
            return self.body.decode()
        except UnicodeDecodeError as error:
            raise errors.Misuse(f"{self.key!r} is no text: {error}") from error

    def json(self) -> Any:
        """Its bytes, read as JSON. Raises `Misuse` if they are none."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise errors.Misuse(f"{self.key!r} is no JSON: {error}") from error

    def __repr__(self) -> str:
        return f"Object({self.resource!r}, {self.key!r}, {self.size} bytes)"


def path_of(resource: str, key: str, version: int | None) -> str:
    """The path of an object, now or as the write with this version left it."""
    shown = None if version is None else str(names.checked_version(version, 1))
    return names.object_path(resource, key) + names.query([("version", shown)])


def head_of(resource: str, key: str, headers: dict[str, str]) -> ObjectHead:
    """What the head of an answer says of the object."""
    etag, length = headers.get("etag"), _number(headers.get("content-length"))
    if etag is None or length is None:
        missing = "ETag" if etag is None else "Content-Length"
        raise errors.GatewayFault(f"the answer has no {missing}: something on the way took it out")
    version = _VERSION.fullmatch(etag)
    digest = _sha256(headers.get("repr-digest", ""))
    return ObjectHead(
        resource=resource,
        key=key,
        etag=etag,
        version=None if version is None else int(version[1]),
        resource_version=_number(headers.get("x-resource-version")),
        content_type=headers.get("content-type", ""),
        size=length,
        sha256=None if digest is None else digest.hex(),
    )


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A page of a list. There may be no items although more pages follow."""

    items: tuple[T, ...]
    next_cursor: str | None
    """For `page`, to get the next one; None on the last."""


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 20 else None


def whole_size(header: str, first: int) -> int | None:
    """The number of bytes of the whole object, from the answer with a part that begins there."""
    found = re.fullmatch(r"bytes ([0-9]{1,19})-[0-9]{1,19}/([0-9]{1,19})", header)
    return int(found[2]) if found is not None and int(found[1]) == first else None


def _sha256(header: str) -> bytes | None:
    """The SHA-256 in `Repr-Digest`, among others or alone."""
    for one in header.split(","):
        name, _, rest = one.strip().partition("=:")
        if name == "sha-256" and rest.endswith(":"):
            try:
                digest = base64.b64decode(rest[:-1], validate=True)
            except ValueError:
                return None
            return digest if len(digest) == 32 else None
    return None
