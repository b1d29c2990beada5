"""A write, as every attempt sends it: checked, with its key and its conditions (CC20, CC22)."""

from __future__ import annotations

from dataclasses import dataclass

from . import errors
from ._core import names
from ._core.durations import Duration, whole_ms
from ._core.ids import uuid7
from ._core.settling import Condition
from ._guard.held import Held
from ._options import checked_switch
from ._request import Request

_KEY_KEPT = (b"X-Fence-Key-Kept", b"1h")
"""For how long the gateway keeps a key that the client made."""
_KEY_KEPT_MS = 3_600_000


@dataclass(slots=True)
class WriteOptions:
    """What a write can be told."""

    if_match: str | None = None
    if_absent: bool = False
    expect_version: int | None = None
    idempotency_key: str | None = None
    timeout: Duration | None = None
    retries: bool | None = None
    ride_out: bool = False


DEFAULTS = WriteOptions()


@dataclass(slots=True)
class Prepared:
    """A write that is ready to be sent."""

    call: str
    request: Request
    resource: str
    """Where its operation is looked up by its key."""
    key: str
    is_own_key: bool
    """Whether the client made the key."""
    kept_ms: int | None
    """For how long the gateway was asked to keep the key; None: as long as it does."""
    condition: Condition
    within_ms: int
    retries: bool
    rides_out: bool
    """Whether a frozen or draining resource is waited for."""
    object: str | None = None
    """The object's key; None: all of a resource, or many."""
    digest: str | None = None
    """The digest that was sent."""

    @property
    def is_replayable(self) -> bool:
        """Whether a second attempt can send the same bytes."""
        return self.request.body is None or self.request.body.is_replayable


def prepare(
    held: Held, call: str, method: str, path: str, resource: str, options: WriteOptions, condition: Condition | None
) -> Prepared:
    """The request, with all headers that every attempt has."""
    settings = held.shared.settings
    given = options.idempotency_key
    key = uuid7() if given is None else names.checked_key(given)
    headers = [*held.write_headers, (b"Idempotency-Key", key.encode())]
    if given is None:
        headers.append(_KEY_KEPT)
    if options is not DEFAULTS:
        _check_switches(options)
        _add_conditions(headers, options)
    return Prepared(
        call=call,
        request=Request(method, path, headers),
        resource=resource,
        key=key,
        is_own_key=given is None,
        kept_ms=_KEY_KEPT_MS if given is None else None,
        condition=_condition(options) if condition is None else condition,
        within_ms=settings.write_ms if options.timeout is None else whole_ms(options.timeout, "timeout"),
        retries=settings.retries if options.retries is None else options.retries,
        rides_out=options.ride_out,
    )


def target(held: Held, resource: str | None) -> str:
    """Where a write goes: the resource is named by the caller, or is the only one."""
    if resource is None:
        if len(held.resources) == 1:
            return held.resources[0]
        raise errors.Misuse("the lock covers several resources: say which, with resource=")
    names.resource_path(resource)
    if resource not in held.resources:
        raise errors.Misuse(f"the lock does not cover {resource}")
    return resource


def _check_switches(options: WriteOptions) -> None:
    checked_switch("if_absent", options.if_absent)
    checked_switch("ride_out", options.ride_out)
    if options.retries is not None:
        checked_switch("retries", options.retries)


def _add_conditions(headers: list[tuple[bytes, bytes]], options: WriteOptions) -> None:
    if options.if_match is not None:
        headers.append((b"If-Match", names.checked_tags(options.if_match).encode()))
    if options.if_absent:
        headers.append((b"If-None-Match", b"*"))
    if options.expect_version is not None:
        headers.append((b"X-If-Resource-Version", str(names.checked_version(options.expect_version)).encode()))


def _condition(options: WriteOptions) -> Condition:
    if options.if_absent or options.expect_version is not None:
        return Condition.ABSENCE
    if options.if_match is None:
        return Condition.NONE
    # A star is met by whatever is there by then.
    return Condition.ABSENCE if options.if_match.strip() == "*" else Condition.TAGS
