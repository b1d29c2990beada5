"""What writes became."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ._wire import CommitResult, CommittedResource
from .errors import FenceError


@dataclass(frozen=True, slots=True)
class Receipt:
    """How a write went, for those who keep histories."""

    key: str
    """Its idempotency key."""
    number: int | None
    """Its number among the writes of its guard, if it has one."""
    attempts: int
    """How many attempts were made."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a put became."""

    resource: str
    key: str
    """The object's key."""
    version: int
    """The version of the resource that the write became."""
    etag: str | None
    """The object's tag; None if the write was looked up afterwards."""
    size: int | None
    """The number of bytes stored; None if the record or the answer does not say it."""
    sha256: str | None
    """The SHA-256 of the bytes stored, in hexadecimal, if the gateway knows it."""
    operation: str
    """The id of the operation."""
    created: bool | None
    """Whether the object is a new one; None if the write was looked up afterwards."""
    replayed: bool
    """Whether it took effect by an earlier attempt."""
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Deleted:
    """What a delete became."""

    resource: str
    key: str | None
    """The object's key; None if all were deleted."""
    version: int | None
    """The version of the resource that the write became; None if there was nothing to delete."""
    operation: str | None
    replayed: bool
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Committed:
    """What a commit became."""

    operation: str
    """The id of the operation, the same on all resources."""
    resources: tuple[CommittedResource, ...]
    """Its resources, and the versions that they became; empty if a newer gateway says it in another way."""
    results: tuple[CommitResult, ...]
    """What each operation did, in order; empty if the commit was looked up afterwards."""
    replayed: bool
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class UpstreamAnswer:
    """What an upstream answered."""

    status: int
    """Its status. What it did before it answered anything but a 2xx, only it knows."""
    headers: dict[str, str]
    """Its headers and the gateway's, with names in lower case."""
    body: bytes
    operation: str | None
    """The operation, by which the gateways know the request."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The write took effect, once."""

    operation: str | None
    """Its operation, if the gateway named it."""
    version: int | None
    """The version of the resource that it became; None for a delete of nothing."""


@dataclass(frozen=True, slots=True)
class NotApplied:
    """The write took no effect and never will, for this reason."""

    error: FenceError


Settled: TypeAlias = Applied | NotApplied
"""What became of a write whose outcome was unknown."""


class _Word:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


class Keep(_Word):
    """That an update changes nothing."""


class Delete(_Word):
    """That an update removes the object."""


KEEP = Keep("KEEP")
"""Returned by the function of an update: the object stays as it is."""
DELETE = Delete("DELETE")
"""Returned by the function of an update: the object is removed."""
