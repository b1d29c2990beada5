"""The commands of the driver of the library for asyncio. Their parameters are the fields of the commands."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from ... import DELETE, KEEP, AsyncFencegate, AsyncLock, Body, Void
from ..._wish import LockOptions
from .mishaps import collect, is_refused_in_copy
from .settings import settings_of
from .told import DriverError, Told, settled_told, written_told

if TYPE_CHECKING:
    from .asynchronous import State

Command = Callable[..., Awaitable[Any]]
ALL: dict[str, Command] = {}


def _command(function: Command) -> Command:
    ALL[function.__name__.strip("_")] = function
    return function


@_command
async def client(state: State, urls: list[str], owner: str, options: dict[str, Any] | None = None) -> Told:
    """Makes the client, and its like that tries everything once."""
    settings = settings_of(options)
    for once in (False, True):
        state.clients[once] = AsyncFencegate(urls, owner=owner, on_event=state.hear, retries=not once, **settings)
    return {}


def _options(wish: dict[str, Any]) -> LockOptions:
    """The options of a lock, from the fields of a command."""
    same = ("ttl", "wait", "max_hold", "metadata", "only_if_exists", "on_uncertain", "watch", "numbers", "ordered")
    known = {name: wish.pop(name) for name in (*same, "stall_after", "on_lost") if name in wish}
    if wish:
        raise DriverError(f"there are no such fields: {list(wish)}")
    return cast("LockOptions", known)


@_command
async def acquire(
    state: State, lock: str, resources: list[str], attempts: int | None = None, inside: str | None = None, **wish: Any
) -> Told:
    """Takes a lock."""
    options = _options(wish)
    client = state.client(attempts == 1)
    if inside is None:
        return state.keep(lock, await client.acquire(resources, **options))
    taken: asyncio.Future[AsyncLock] = asyncio.get_running_loop().create_future()

    async def take() -> None:
        try:
            taken.set_result(await client.acquire(resources, **options))
        except Exception as error:
            taken.set_exception(error)

    state.tell_body(inside, take)
    return state.keep(lock, await taken)


@_command
async def try_(state: State, lock: str, resources: list[str], **wish: Any) -> Told | None:
    """Takes a lock, or nothing."""
    taken = await state.client().try_lock(resources, **_options(wish))
    return None if taken is None else state.keep(lock, taken)


@_command
async def release(state: State, lock: str) -> Told:
    """Gives a lock back."""
    return {"confirmed": await state.lock(lock).release()}


@_command
async def run(state: State, lock: str, resources: list[str], **wish: Any) -> Told:
    """Runs a body that ends when it is told to."""
    from .asynchronous import BodyFailed

    async with state.client().lock(resources, **_options(wish)) as taken:
        state.bodies[lock] = asyncio.Queue()
        state.out.event("entered", state.keep(lock, taken))
        try:
            is_good = await state.live(lock)
        finally:
            state.bodies.pop(lock, None)
        if not is_good:
            raise BodyFailed
    return {"value": "the body's"}


@_command
async def leave(state: State, how: str, lock: str | None = None, election: str | None = None) -> Told:
    """Ends a body."""

    async def end() -> bool:
        return how != "raise"

    state.tell_body(lock or election or "", end)
    return {}


@_command
async def put(
    state: State,
    lock: str,
    object: str,
    resource: str | None = None,
    text: str | None = None,
    size: int | None = None,
    stream: str | None = None,
    content_type: str | None = None,
    if_match: str | None = None,
    if_absent: bool = False,
    expect_version: int | None = None,
    key: str | None = None,
    ride_out: bool = False,
    attempts: int | None = None,
) -> Told:
    """Puts."""
    body: Any = text or ""
    if size is not None:
        body = b"x" * size
    elif stream is not None:
        body = Body.once([stream.encode()])
    written = await state.guard(lock).put(
        object,
        body,
        resource=resource,
        content_type=content_type,
        if_match=if_match,
        if_absent=if_absent,
        expect_version=expect_version,
        idempotency_key=key,
        ride_out=ride_out,
        retries=False if attempts == 1 else None,
    )
    return written_told(written)


@_command
async def delete(
    state: State,
    lock: str,
    object: str,
    resource: str | None = None,
    if_match: str | None = None,
    expect_version: int | None = None,
    key: str | None = None,
) -> Told:
    """Deletes one object."""
    deleted = await state.guard(lock).delete(
        object, resource=resource, if_match=if_match, expect_version=expect_version, idempotency_key=key
    )
    return written_told(deleted)


@_command
async def delete_all(
    state: State,
    lock: str,
    object: str | None = None,
    resource: str | None = None,
    expect_version: int | None = None,
    key: str | None = None,
) -> Told:
    """Deletes all objects."""
    guard = state.guard(lock)
    deleted = await guard.delete_all(resource=resource, expect_version=expect_version, idempotency_key=key)
    return written_told(deleted)


@_command
async def commit(
    state: State,
    lock: str,
    operations: list[dict[str, Any]],
    versions: dict[str, int] | None = None,
    key: str | None = None,
) -> Told:
    """Commits."""
    committed = state.guard(lock).commit()
    for operation in operations:
        match operation.pop("op"):
            case "put":
                text = operation.pop("text", "")
                committed.put(operation.pop("resource"), operation.pop("object"), text, **operation)
            case "delete":
                committed.delete(operation.pop("resource"), operation.pop("object"), **operation)
            case other:
                raise DriverError(f"there is no operation {other}")
    for resource, version in (versions or {}).items():
        committed.expect_version(resource, version)
    return written_told(await committed.send(idempotency_key=key))


@_command
async def update(
    state: State,
    lock: str,
    object: str,
    resource: str | None = None,
    append: str | None = None,
    say: str | None = None,
) -> Told:
    """Reads, changes, writes."""
    rounds = 0

    def change(old: bytes | None) -> Any:
        nonlocal rounds
        rounds += 1
        if say is not None or append is None:
            return DELETE if say == "delete" else KEEP
        return (old or b"") + append.encode()

    written = await state.lock(lock).update(object, change, resource=resource)
    return {**({"kept": True} if written is None else written_told(written)), "rounds": rounds}


@_command
async def upstream(
    state: State,
    lock: str,
    upstream: str,
    method: str,
    path: str,
    resource: str | None = None,
    text: str | None = None,
    key: str | None = None,
) -> Told:
    """Sends a request to an upstream."""
    answer = await state.lock(lock).upstream(upstream, method, path, body=text, idempotency_key=key)
    return {"status": answer.status, "text": answer.body.decode(errors="replace"), "operation": answer.operation}


@_command
async def resolve(state: State, handle: str, within: str = "30s") -> Told:
    """Finds out what became of a write."""
    return settled_told(await state.unknown(handle).resolve(within))


@_command
async def abandon(state: State, lock: str, handle: str) -> Told:
    """The same, at the price of the lock."""
    state.guard(lock)
    return settled_told(await state.unknown(handle).abandon("30s"))


@_command
async def state_(state: State, lock: str) -> Told:
    """In what state a guard is."""
    guard = state.guard(lock)
    reason = None if guard.reason is None else str(guard.reason)
    s3 = guard.s3 if isinstance(guard, AsyncLock) else None
    told_s3 = None if s3 is None else dataclasses.asdict(s3)
    return {"state": str(guard.status), "reason": reason, "token": guard.token, "s3": told_s3}


@_command
async def beat(state: State, lock: str) -> Told:
    """A sign of life."""
    state.lock(lock).beat()
    return {}


@_command
async def fence(state: State, lock: str, resource: str, order: str | None = None, force: bool = False) -> Told:
    """Raises a fence."""
    return state.keep(lock, await state.client().fence(resource, order=order, force=force))


@_command
async def transfer(state: State, lock: str, owner: str) -> Told:
    """Hands a lock over."""
    return {"handoff": (await state.lock(lock).transfer(owner)).to_text()}


@_command
async def adopt(
    state: State,
    lock: str,
    handoff: str | None = None,
    lock_id: str | None = None,
    token: str | None = None,
    resources: list[str] | None = None,
) -> Told:
    """Takes up what was handed over, or writes under a token that another process holds."""
    if lock_id is not None and token is not None:
        return state.keep(lock, await state.client().lent(resources or [], token=token, id=lock_id))
    return state.keep(lock, await state.client().adopt(handoff or ""))


@_command
async def get(state: State, resource: str, object: str) -> Told:
    """Reads an object whole."""
    from ... import NotFound

    found = await state.client().get(resource, object)
    if found is None:
        raise NotFound("there is no such object", code="object-not-found", status=404)
    return {"text": found.text, "etag": found.etag, "version": found.version}


@_command
async def open_(state: State, resource: str, object: str) -> Told:
    """Reads an object as a stream."""
    size, digest = 0, hashlib.sha256()
    async with await state.client().open(resource, object) as reader:
        async for piece in reader:
            size += len(piece)
            digest.update(piece)
    return {"size": size, "sha256": digest.hexdigest()}


@_command
async def download(state: State, resource: str, object: str, to: str) -> Told:
    """Reads an object into a file."""
    return {"size": (await state.client().download(resource, object, to)).size}


@_command
async def list_(state: State, resource: str, prefix: str | None = None) -> Told:
    """Lists objects, all pages."""
    return {"objects": [entry.key async for entry in state.client().list(resource, prefix=prefix)]}


@_command
async def find(state: State, resource: str, key: str) -> Told | None:
    """Looks an operation up by its key."""
    found = await state.client().operation_by_key(resource, key)
    return None if found is None else {"operation": found.operation, "outcome": str(found.outcome)}


@_command
async def events(state: State, stream: str, after: str | None = None, on_void: str = "raise") -> Told:
    """Follows the feed."""
    on_void = "continue" if on_void == "continue" else "raise"
    async for event in state.client().events(after=after, on_void=on_void):
        told: Told = {"stream": stream, "cursor": event.cursor}
        if isinstance(event, Void):
            state.out.event("void", told)
        else:
            state.out.event("write", told | {"resource": event.resource, "version": event.version})
    return {}


@_command
async def observe(state: State, stream: str, name: str) -> Told:
    """Tells who leads."""
    async for leader in state.client().observe(name):
        state.out.event("leader", {"stream": stream, "owner": None if leader is None else leader.owner})
    return {}


@_command
async def elect(state: State, election: str, name: str, stop_grace: str = "10s") -> Told:
    """Stands for election, and leads until it is told to end."""
    from .asynchronous import BodyFailed

    async def lead(lock: AsyncLock) -> None:
        state.bodies[election] = asyncio.Queue()
        state.out.event("leading", {"election": election})
        try:
            is_good = await state.live(election)
        except asyncio.CancelledError:
            state.out.event("stopping", {"election": election})
            is_good = await state.live(election)
        finally:
            state.bodies.pop(election, None)
        if not is_good:
            raise BodyFailed

    await state.client().elect(name, lead, stop_grace=stop_grace)
    return {}


@_command
async def shards(state: State, stream: str, name: str, n: int) -> Told:
    """Takes the shards that it can get."""
    async for shard in state.client().shards(name, n):
        state.out.event("shard", {**state.keep(f"{stream}{shard.index}", shard.lock), "stream": stream})
    return {}


@_command
async def break_(state: State, resource: str, reason: str, after: str | None = None) -> Told:
    """Breaks a lock."""
    await state.client().admin.break_lock(resource, reason, after=after)
    return {}


@_command
async def block(state: State, ms: int) -> Told:
    """Blocks the loop, as work does that awaits nothing."""
    time.sleep(ms / 1000)  # noqa: ASYNC251
    return {}


@_command
async def fork(state: State, lock: str, resource: str) -> Told:
    """Copies the process, and lets the copy write under the guard."""
    guard = state.lock(lock)

    def write() -> None:
        # Up to where it would wait for the network.
        guard.put("copy", "by the copy", resource=resource).send(None)

    return {"refused": is_refused_in_copy(lambda: guard.reason, write)}


@_command
async def drop(state: State, lock: str) -> Told:
    """Forgets a guard without giving it back."""
    await state.forget(lock)
    collect()
    return {}
