"""Real gateways, for asyncio."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import wraps
from typing import Any

import pytest

from fencegate import (
    AsyncFencegate,
    AsyncLock,
    Body,
    Fencegate,
    LockHeld,
    LockLost,
    LockStatus,
    LossReason,
    Misuse,
    WouldDeadlock,
    WriteEvent,
)
from fencegate.testing import Gateway

from .waiting import HANGS_S, Renewals, until_so


def on_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs a test in a task of its own."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 2 * HANGS_S))

    return run


async def forever() -> None:
    """Work that only a cancellation ends."""
    await asyncio.Event().wait()


@on_a_loop
async def test_a_scope_takes_the_lock_and_gives_it_back(fencegate_url: str, fencegate_resource: str) -> None:
    async with AsyncFencegate(fencegate_url) as client:
        async with client.lock(fencegate_resource, wait="1m") as lock:
            await lock.put("total.txt", "total: 110")
            with pytest.raises(WouldDeadlock):
                await client.acquire(fencegate_resource)
            with pytest.raises(LockHeld):
                await asyncio.create_task(client.acquire(fencegate_resource))
            assert await asyncio.create_task(client.try_lock(fencegate_resource)) is None
        assert lock.status is LockStatus.RELEASED
        found = await client.get(fencegate_resource, "total.txt")
        assert found is not None and found.text == "total: 110"


@on_a_loop
async def test_the_task_is_cancelled_when_the_lock_is_lost(
    fencegate_gateway: Gateway, fencegate_url: str, fencegate_resource: str
) -> None:
    async with AsyncFencegate(fencegate_url) as client:
        with pytest.raises(LockLost) as lost:
            async with client.lock(fencegate_resource, ttl="9s"):
                await asyncio.to_thread(fencegate_gateway.take_over, fencegate_resource)
                await forever()
        assert lost.value.reason in (LossReason.SUPERSEDED, LossReason.BROKEN)
        assert isinstance(lost.value.__cause__, asyncio.CancelledError)
        task = asyncio.current_task()
        assert task is not None and task.cancelling() == 0
        await asyncio.sleep(0)


@on_a_loop
async def test_a_cancellation_from_outside_stays_one(fencegate_url: str, fencegate_resource: str) -> None:
    async with AsyncFencegate(fencegate_url) as client:
        entered = asyncio.Event()

        async def work() -> None:
            async with client.lock(fencegate_resource, ttl="10m"):
                entered.set()
                await forever()

        task = asyncio.create_task(work())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with client.lock(fencegate_resource, wait=HANGS_S):
            pass


@on_a_loop
async def test_a_timeout_around_the_scope_is_a_timeout(fencegate_url: str, fencegate_resource: str) -> None:
    async with AsyncFencegate(fencegate_url) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(None) as limit:
                async with client.lock(fencegate_resource, ttl="10m"):
                    limit.reschedule(asyncio.get_running_loop().time())
                    await forever()
        async with client.lock(fencegate_resource, wait=HANGS_S):
            pass


@on_a_loop
async def test_nested_scopes_tell_which_lock_was_lost(
    fencegate_gateway: Gateway, fencegate_url: str, fencegate_resource: str
) -> None:
    inner = f"{fencegate_resource}:inner"
    async with AsyncFencegate(fencegate_url) as client, client.lock(fencegate_resource, ttl="10m") as outer_lock:
        with pytest.raises(LockLost):
            async with client.lock(inner, ttl="1s"):
                await asyncio.to_thread(fencegate_gateway.take_over, inner)
                await forever()
        await outer_lock.put("a", "the outer one is good yet")
        with pytest.raises(ExceptionGroup):
            async with client.lock(f"{inner}2"), asyncio.TaskGroup() as group:
                group.create_task(forever())
                raise ZeroDivisionError
        await outer_lock.put("a", "and still is")


@on_a_loop
async def test_a_cancelled_acquire_leaves_no_place_in_line(fencegate_url: str, fencegate_resource: str) -> None:
    async with AsyncFencegate(fencegate_url) as client, client.lock(fencegate_resource):
        waiting = asyncio.create_task(client.acquire(fencegate_resource, wait="forever"))
        while not await client.waiters(fencegate_resource).all():
            await asyncio.sleep(0.02)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await client.waiters(fencegate_resource).all() == []


@on_a_loop
async def test_a_commit_is_awaited(fencegate_url: str, fencegate_resource: str) -> None:
    orders, stock = f"{fencegate_resource}:orders", f"{fencegate_resource}:stock"

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(4):
            yield b"x" * 50_000

    async with AsyncFencegate(fencegate_url) as client, client.lock([orders, stock]) as lock:
        done = await (
            lock.commit()
            .put(orders, "17.json", json={"boxes": 1}, if_absent=True)
            .put(stock, "boxes", b"97")
            .put(stock, "streamed", Body.stream(pieces))
            .delete(orders, "draft.json")
        )
        assert len(done.resources) == 2
        head = await client.head(stock, "streamed")
        assert head is not None and head.size == 200_000


@on_a_loop
async def test_many_writes_at_once_on_one_guard(fencegate_url: str, fencegate_resource: str) -> None:
    async with AsyncFencegate(fencegate_url) as client:
        async with client.lock(fencegate_resource) as lock, asyncio.TaskGroup() as group:
            for number in range(60):
                group.create_task(lock.put(str(number), "x"))
        assert len([entry async for entry in client.list(fencegate_resource, page_size=25)]) == 60


@on_a_loop
async def test_updates_await_what_they_are_given(fencegate_url: str, fencegate_resource: str) -> None:
    async def add(old: Any) -> int:
        await asyncio.sleep(0)
        return (old or 0) + 10

    async with AsyncFencegate(fencegate_url) as client:
        assert await client.update_json(fencegate_resource, "total", add) == 10
        assert await client.update_json(fencegate_resource, "total", lambda old: old + 1) == 11


@on_a_loop
async def test_the_feed_tells_each_write_once(fencegate_url: str, fencegate_resource: str) -> None:
    async with AsyncFencegate(fencegate_url) as client, client.events(after="now") as events:
        seen: list[int] = []

        async def follow() -> None:
            async for event in events:
                assert isinstance(event, WriteEvent)
                if event.resource == fencegate_resource:
                    seen.append(event.version)
                    if event.key == "last":
                        return

        following = asyncio.create_task(follow())
        async with client.lock(fencegate_resource) as lock:
            # The place is known once the stream is open: writes go on until then.
            while not seen:
                await lock.put("first", "x")
                await asyncio.sleep(0.02)
            for number in range(20):
                await lock.put(str(number), "x")
            last = (await lock.put("last", "x")).version
        await asyncio.wait_for(following, HANGS_S)
        assert seen == list(range(seen[0], last + 1)) and len(seen) > 20
        cursor = events.cursor
    async with AsyncFencegate(fencegate_url) as client, client.lock(fencegate_resource) as lock:
        await lock.put("more", "x")
        async with client.events(after=cursor) as again:
            assert (await anext(again)).version == last + 1  # type: ignore[union-attr]


@on_a_loop
async def test_whoever_loses_an_election_ends_before_it_stands_again(
    fencegate_gateway: Gateway, fencegate_url: str, fencegate_resource: str
) -> None:
    ended: list[str] = []

    async def lead(lock: AsyncLock) -> str:
        if ended:
            return "led again"
        try:
            await asyncio.to_thread(fencegate_gateway.take_over, fencegate_resource)
            await forever()
        finally:
            await asyncio.sleep(0.1)
            ended.append(str(lock.reason))
            await asyncio.to_thread(fencegate_gateway.client.admin.break_lock, fencegate_resource, "enough")
        return "never"

    async with AsyncFencegate(fencegate_url) as client:
        assert await client.elect(fencegate_resource, lead, ttl="9s") == "led again"
        assert len(ended) == 1
        async for leader in client.observe(fencegate_resource):
            assert leader is not None and leader.owner == client.owner
            break

        async def fail(lock: AsyncLock) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await client.elect(fencegate_resource, fail)


@on_a_loop
async def test_a_blocked_loop_renews_nothing_and_is_told_first(fencegate_url: str, fencegate_resource: str) -> None:
    async with AsyncFencegate(fencegate_url) as client:
        lock = await client.acquire(fencegate_resource, ttl="1s")
        # The loop stands still for two ttls.
        time.sleep(2.1)
        with pytest.raises(LockLost) as lost:
            await lock.put("a", "late")
        assert lost.value.reason is LossReason.UNCONFIRMED and lost.value.attempts == 0
        with pytest.raises(LockLost):
            async with client.lock(fencegate_resource, ttl="1s"):
                time.sleep(2.1)
                await asyncio.sleep(0)
                await asyncio.sleep(0.1)


@on_a_loop
async def test_a_guard_that_is_collected_is_given_back(fencegate_url: str, fencegate_resource: str) -> None:
    async with AsyncFencegate(fencegate_url) as client:
        lock = await client.acquire(fencegate_resource, ttl="10m")
        assert lock.status is LockStatus.HELD
        del lock
        gc.collect()
        async with client.lock(fencegate_resource, wait=HANGS_S):
            pass


@on_a_loop
async def test_guards_of_one_ttl_are_renewed_together(fencegate_url: str, fencegate_resource: str) -> None:
    async with AsyncFencegate(fencegate_url) as client:
        locks = [await client.acquire(f"{fencegate_resource}:{number}", ttl="9s") for number in range(40)]
        renewals = [Renewals(lock) for lock in locks]
        await until_so(lambda: sum(each.are(4) for each in renewals) == len(renewals))
        await asyncio.gather(*(lock.release() for lock in locks))


@on_a_loop
async def test_a_decorated_coroutine_runs_under_its_lock(fencegate_url: str, fencegate_resource: str) -> None:
    async with AsyncFencegate(fencegate_url) as client:

        @client.locked(fencegate_resource, wait=HANGS_S)
        async def work(number: int) -> int:
            seen = await client.resource(fencegate_resource)
            assert seen is not None and seen.state == "leased"
            return number

        assert await asyncio.gather(*(work(number) for number in range(5))) == [0, 1, 2, 3, 4]


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_client_goes_on_in_another_loop(fencegate_url: str, fencegate_resource: str) -> None:
    client = AsyncFencegate(fencegate_url)

    async def once() -> str:
        async with client.lock(fencegate_resource, wait=HANGS_S) as lock:
            return lock.token

    assert int(asyncio.run(once())) < int(asyncio.run(once()))

    async def two() -> None:
        await client.status()
        with pytest.raises(Misuse):
            await asyncio.to_thread(lambda: asyncio.run(once()))
        await client.close()

    asyncio.run(two())
    # The connections of the first loop were left with it.
    gc.collect()


@on_a_loop
async def test_a_program_that_ends_without_closing_leaves_no_noise(fencegate_url: str, fencegate_resource: str) -> None:
    client = AsyncFencegate(fencegate_url)
    lock = await client.acquire(fencegate_resource)
    await lock.put("a", "1")
    await lock.release()
    await client.close()
    with pytest.raises(Exception, match="closed"):
        await client.acquire(fencegate_resource)
    with Fencegate(fencegate_url) as other:
        assert other.try_lock(fencegate_resource) is not None
