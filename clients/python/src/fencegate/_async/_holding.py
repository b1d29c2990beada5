"""Other ways to hold: fences for locks that are kept elsewhere (CC51), locks handed over or lent (CC40, CC50), shards
(CC54)."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from .. import errors
from .._core import clock, names
from .._core.ids import RequestIds, uuid7
from .._core.lease import Lease, Terms
from .._core.renewals import times_of
from .._core.replies import AnswerBroken, error_of
from .._core.slots import SHARDS_MAX, shard_name
from .._guard.held import Grant, Held
from .._handoff import Handoff
from .._json import members
from .._options import checked_number, checked_switch
from .._request import Request, json_request
from .._wire import LockRecord, Readiness
from . import _runtime as runtime
from ._answer import AsyncAnswer
from ._caller import AsyncCaller
from ._lock import AsyncFence, AsyncLock
from ._operations import decoded
from ._renewing import renew_first
from ._scope import acquire

_ORDER_MAX = 2**63 - 1
_TOKEN = re.compile(r"[1-9][0-9]{0,18}")
_LOCK_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[47][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE)


async def set_fence(
    caller: AsyncCaller, resource: str, order: int | str | None, id: str | None, force: bool, owner: str | None
) -> AsyncFence:
    """Raises a fence."""
    path = f"{names.resource_path(resource)}/fence"
    document: dict[str, Any] = {
        "id": uuid7() if id is None else checked_lock_id(id),
        "order": None if order is None else _checked_order(order),
        "force": True if checked_switch("force", force) else None,
        "owner": caller.shared.owner if owner is None else names.checked_owner(owner),
    }
    said = members(await caller.json("fence", json_request("POST", path, document)))
    token, version = said.get("token"), said.get("version")
    if not isinstance(token, str):
        raise errors.GatewayFault("an answer that is not the gateway's: no token is in it")
    grant = _without_renewals(document["id"], token, (resource,), document["owner"], is_numbered=id is None)
    held = Held(caller.shared, grant, runtime.where())
    return AsyncFence(caller, held, version if isinstance(version, int) else None)


async def adopt(
    caller: AsyncCaller, handoff: Handoff | str, numbers: bool, on_uncertain: Literal["stop", "hold"]
) -> AsyncLock:
    """Takes up a lock that was handed over, and renews it at once, which shows that it is good."""
    if isinstance(handoff, str):
        handoff = Handoff.from_text(handoff)
    if on_uncertain not in ("stop", "hold"):
        raise errors.Misuse("on_uncertain is stop or hold")
    checked_switch("numbers", numbers)
    checked_lock_id(handoff.id)
    sent_ms = clock.now_ms()
    said = await caller.json("adopt", json_request("POST", f"/locks/{handoff.id}/renew", {}))
    lock = decoded(LockRecord, said)
    try:
        times = times_of(said)
    except AnswerBroken as broken:
        raise errors.GatewayFault(broken.failure.detail) from None
    terms, now = Terms(holds_on=on_uncertain == "hold"), clock.now_ms()
    lease = Lease(now, sent_ms, times.left_ms, times.ttl_ms, terms, clock.draw())
    # Of several attempts the answered one may have been sent long after the first.
    is_proven = lease.can_begin(now)
    if not is_proven:
        lease = Lease.unproven(now, times.ttl_ms, terms, clock.draw())
    grant = Grant(
        id=handoff.id,
        token=handoff.token,
        resources=lock.resources,
        owner=handoff.owner,
        lease=lease,
        versions=lock.versions,
        principal=lock.principal,
        writers=lock.writers,
        is_numbered=numbers and not lock.writers,
    )
    held = Held(caller.shared, grant, runtime.where())
    held.watched_ms = held.granted_ms + 5_000
    if not is_proven:
        await renew_first(caller, held, times.left_ms)
    guard = AsyncLock(caller, held)
    # `close` may have ended all guards before this one was among them. It is given back when it is collected.
    caller.must_not_be_closing()
    held.check()
    caller.shared.engine.keep(held)
    return guard


def lent(caller: AsyncCaller, resources: str | Iterable[str], token: str, id: str) -> AsyncFence:
    """A guard for a token that another process holds: it is neither renewed nor given back, and numbers nothing."""
    chosen = names.checked_resources(resources)
    if not _TOKEN.fullmatch(token) or int(token) > _ORDER_MAX:
        raise errors.Misuse("a token is a number from 1 to 2^63-1, as text")
    grant = _without_renewals(checked_lock_id(id), token, chosen, caller.shared.owner, is_numbered=False)
    return AsyncFence(caller, Held(caller.shared, grant, runtime.where()), None)


def checked_lock_id(id: str) -> str:
    """The id of a lock."""
    if not _LOCK_ID.fullmatch(id):
        raise errors.Misuse("the id of a lock is a random UUID, version 4 or 7")
    return id


def _checked_order(order: int | str) -> str:
    """The growing number of a lock of one's own. It is kept as text: it may be larger than floating point can count."""
    text = str(order)
    if isinstance(order, bool) or not _TOKEN.fullmatch(text) or int(text) > _ORDER_MAX:
        raise errors.Misuse("an order is a number from 1 to 2^63-1")
    return text


def _without_renewals(id: str, token: str, resources: tuple[str, ...], owner: str, is_numbered: bool) -> Grant:
    now = clock.now_ms()
    lease = Lease(now, now, None, None, Terms(is_renewed=False), 0.5)
    return Grant(id, token, resources, owner, lease, is_ours=False, is_numbered=is_numbered)


@dataclass(frozen=True, slots=True)
class AsyncShard:
    """One shard of a name, and its lock."""

    index: int
    """Which one, from 0."""
    lock: AsyncLock


async def shards(caller: AsyncCaller, name: str, count: int) -> AsyncIterator[AsyncShard]:
    """The shards of a name that can be had without waiting, in random order."""
    checked_number("the number of shards", count, 1, SHARDS_MAX)
    names.resource_path(shard_name(name, 0, count))
    order = list(range(count))
    random.shuffle(order)
    for index in order:
        try:
            lock = await acquire(caller, shard_name(name, index, count), {})
        except errors.LockHeld:
            continue
        yield AsyncShard(index, lock)


async def ready(caller: AsyncCaller) -> Readiness:
    """Whether requests should be sent to a gateway. Not ready is an answer, too."""
    reply = await caller.transport.attempt_any(
        Request("GET", "/readyz"),
        RequestIds().next(),
        lambda headers: headers.get("content-type") == "application/json",
    )
    if not isinstance(reply, AsyncAnswer):
        raise error_of(reply, 1)
    try:
        return decoded(Readiness, await reply.json())
    except AnswerBroken as broken:
        raise error_of(broken.failure, 1) from None
