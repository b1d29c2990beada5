"""Answers of the gateway, as objects. Members that this version does not know are ignored, words kept (CC7)."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Any, TypeVar, cast

from ._words import (
    AuditAction,
    BlobsKind,
    CommitVerb,
    ForwardState,
    GrantEnd,
    Kind,
    LedgerKind,
    LockEnd,
    LockState,
    MintKind,
    OperationOutcome,
    Part,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CommittedResource:
    """A resource of a commit, and the version that it became; None if nothing on it changed."""

    resource: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class CommitResult:
    """What one operation of a commit did."""

    op: CommitVerb
    resource: str
    key: str
    version: int | None = None
    etag: str | None = None
    size: int | None = None
    sha256: str | None = None
    created: bool | None = None


@dataclass(frozen=True, slots=True)
class S3Access:
    """What S3 tools write with under a lock: the key names the lock's token, for ever and no other (CC14b).

    A client of S3 that was made of it is as fenced as the guard, and a new lock needs a new one.
    """

    endpoint: str
    """Where the gateway speaks S3."""
    region: str
    """The region that it says it is in."""
    access_key_id: str
    secret_access_key: str = field(repr=False)
    """Whoever has it writes under the lock's token."""

    def boto3(self) -> dict[str, str]:
        """The arguments for boto3: `boto3.client("s3", **lock.s3.boto3())`."""
        return {
            "endpoint_url": self.endpoint,
            "region_name": self.region,
            "aws_access_key_id": self.access_key_id,
            "aws_secret_access_key": self.secret_access_key,
        }


@dataclass(frozen=True, slots=True)
class LockRecord:
    """What a gateway knows of a lock. Whoever has it can use the lock: treat it as a secret."""

    id: str
    resources: tuple[str, ...]
    owner: str
    state: LockState
    acquired_at: datetime
    expires_in_ms: int | None
    ttl_ms: int | None
    versions: tuple[int, ...]
    token: str | None = None
    principal: str | None = None
    writers: tuple[str, ...] = ()
    metadata: dict[str, str] | None = None
    confirm_within_ms: int | None = None
    hold_until: datetime | None = None
    lapsed_ms: int | None = None
    frozen: str | None = None
    reason: str | None = None
    ended: LockEnd | None = None
    ended_at: datetime | None = None

    def __repr__(self) -> str:
        return f"LockRecord(resources={self.resources!r}, owner={self.owner!r}, state={str(self.state)!r})"


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource and its lock, as everybody may see them."""

    resource: str
    owner: str
    state: LockState
    acquired_at: datetime
    age_ms: int
    expires_in_ms: int | None
    ttl_ms: int | None
    renewed_ms_ago: int
    version: int
    objects: int
    queue_length: int
    state_tag: str
    ended_at: datetime | None = None
    breaks_in_ms: int | None = None
    principal: str | None = None
    frozen: str | None = None
    protected: str | None = None


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """An object in a list."""

    key: str
    etag: str
    version: int
    size: int
    content_type: str
    written_at: datetime
    sha256: str | None = None
    sha256_parts: str | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """A write in the history of a resource."""

    version: int
    kind: Kind
    operation: str
    owner: str
    committed_at: datetime
    key: str | None = None
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class ForwardRecord:
    """What became of a request to an upstream."""

    upstream: str
    state: ForwardState
    opened_at: datetime
    closed_at: datetime | None = None
    status: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """The record of a write."""

    operation: str
    outcome: OperationOutcome
    kind: Kind | None = None
    resource: str | None = None
    resources: tuple[CommittedResource, ...] | None = None
    key: str | None = None
    version: int | None = None
    size: int | None = None
    sha256: str | None = None
    owner: str | None = None
    committed_at: datetime | None = None
    forward: ForwardRecord | None = None


@dataclass(frozen=True, slots=True)
class Waiter:
    """Somebody who waits in line for a lock."""

    owner: str
    position: int
    since: datetime
    present: bool


@dataclass(frozen=True, slots=True)
class WriteEvent:
    """A committed write, in the feed."""

    event: str
    """Its place in the feed: keep it, to go on behind it."""
    resource: str
    version: int
    kind: Kind
    operation: str
    owner: str
    committed_at: datetime
    key: str | None = None
    size: int | None = None

    @property
    def cursor(self) -> str:
        """The place to go on behind."""
        return self.event


@dataclass(frozen=True, slots=True)
class StatusCounts:
    """Who is there at a gateway."""

    waiters: int
    watchers: int
    event_readers: int
    forwards: int


@dataclass(frozen=True, slots=True)
class Status:
    """What a gateway says of itself."""

    version: str
    api: int
    gateway: str
    started_at: datetime
    ledger: LedgerKind
    mint: MintKind
    blobs: BlobsKind
    draining: bool
    answer_within_ms: int
    keys_kept_ms: int
    requires_lock_id: bool
    counts: StatusCounts
    epoch: int | None = None
    generation: int | None = None
    events: int | None = None
    own_time_behind_ms: int | None = None
    s3: str | None = None
    settings: str | None = None


@dataclass(frozen=True, slots=True)
class PartState:
    """The state of one part of a gateway."""

    part: Part
    ready: bool
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether requests should be sent to a gateway, and the state of its parts."""

    ready: bool
    parts: tuple[PartState, ...]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """Something that was done to a lock or a resource."""

    at: datetime
    action: AuditAction
    resource: str | None = None
    owner: str | None = None
    previous_owner: str | None = None
    previous_end: GrantEnd | None = None
    previous_ended_at: datetime | None = None
    reason: str | None = None
    principal: str | None = None
    credential: str | None = None
    peer: str | None = None
    request_id: str | None = None
    gateway_request_id: str | None = None


@dataclass(frozen=True, slots=True)
class RejectionEntry:
    """Writes that were refused."""

    at: datetime
    resource: str
    reason: str
    request_id: str
    times: int
    key: str | None = None
    owner: str | None = None
    grants_behind: int | None = None
    superseded_ms: int | None = None


@dataclass(frozen=True, slots=True)
class IntentEntry:
    """A request to an upstream that has no known end."""

    operation: str
    resource: str
    upstream: str
    method: str
    path: str
    owner: str
    gateway: str
    opened_at: datetime
    age_ms: int
    closes_at: datetime | None = None
    in_flight: bool | None = None


@dataclass(frozen=True, slots=True)
class DoubtEntry:
    """An upstream of which intents may have been lost when the ledger was re-fenced."""

    upstream: str
    resource_prefix: str
    since: datetime
    ends_at: datetime | None = None


class NotOfThisForm(ValueError):
    """The answer is not of the form that a gateway gives."""


def decode(kind: type[T], value: Any) -> T:
    """Makes an object of an answer in JSON. Raises `NotOfThisForm`."""
    return _reader(kind)(value)


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """A function that makes a value of this type out of JSON."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        inner = _reader(next(one for one in arguments if one is not types.NoneType))
        return lambda value: None if value is None else inner(value)
    if origin is tuple:
        inner = _reader(arguments[0])
        return lambda value: tuple(inner(one) for one in _array(value))
    if origin is dict:
        inner = _reader(arguments[1])
        return lambda value: {name: inner(one) for name, one in _object(value).items()}
    if kind is datetime:
        return _moment
    if is_dataclass(kind):
        return _record_reader(kind)
    if issubclass(kind, Enum):
        return lambda value: kind(_checked(value, str))
    return _plain_reader(kind)


def _plain_reader(kind: Any) -> Callable[[Any], Any]:
    return lambda value: _checked(value, kind)


def _record_reader(kind: Any) -> Callable[[Any], Any]:
    hints = typing.get_type_hints(kind)
    members = [(one.name, hints[one.name], one.default is MISSING) for one in fields(kind)]

    def read(value: Any) -> Any:
        said = _object(value)
        known: dict[str, Any] = {}
        for name, hint, is_required in members:
            if name in said:
                known[name] = _reader(hint)(said[name])
            elif is_required:
                raise NotOfThisForm(f"there is no {name!r}")
        return kind(**known)

    return read


def _checked(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise NotOfThisForm(f"{type(value).__name__} instead of {kind.__name__}")
    return value


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", _checked(value, dict))


def _array(value: Any) -> list[Any]:
    return cast("list[Any]", _checked(value, list))


def _moment(value: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(_checked(value, str))
    except ValueError:
        raise NotOfThisForm("no time") from None
    if moment.tzinfo is None:
        raise NotOfThisForm("a time without its zone")
    return moment
