"""Gateways that are killed and started again meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from fencegate import AsyncFencegate, Body, Fencegate, LockStatus, WriteEvent

from .serving import Serving
from .waiting import HANGS_S, Renewals, until


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    gateway = Serving(tmp_path)
    yield gateway
    gateway.kill()


def test_who_waits_in_line_goes_on_waiting(serving: Serving) -> None:
    taken: list[str] = []

    def wait() -> None:
        with Fencegate(serving.url) as other, other.lock("r", wait="forever") as lock:
            taken.append(lock.token)

    with Fencegate(serving.url) as client:
        lock = client.acquire("r", ttl="10m")
        waiting = threading.Thread(target=wait)
        waiting.start()
        until(lambda: client.waiters("r").all())
        serving.restart(0.3)
        assert lock.status is LockStatus.HELD
        lock.put("a", "the lock is still good")
        assert lock.release()
    waiting.join(HANGS_S)
    assert len(taken) == 1


def test_an_upload_is_sent_again(serving: Serving) -> None:
    sent, broken = threading.Event(), threading.Event()
    begun: list[int] = []

    def pieces() -> Iterator[bytes]:
        begun.append(len(begun))
        for number in range(64):
            if number == 20 and len(begun) == 1:
                sent.set()
                broken.wait(HANGS_S)
            yield b"x" * 65_536

    def break_it() -> None:
        sent.wait(HANGS_S)
        serving.kill()
        broken.set()
        serving.start()

    breaking = threading.Thread(target=break_it)
    breaking.start()
    with Fencegate(serving.url) as client, client.lock("r", ttl="10m") as lock:
        written = lock.put("large.bin", Body.stream(pieces, 64 * 65_536))
        assert written.receipt.attempts > 1 and written.size == 64 * 65_536
        # An attempt that finds nobody does not begin the body.
        assert 1 < len(begun) <= written.receipt.attempts
        assert [entry.version for entry in client.versions("r")] == [written.version]
    breaking.join()


def test_a_lock_is_held_across_a_restart(serving: Serving) -> None:
    with Fencegate(serving.url) as client, client.lock("r", ttl="20s") as lock:
        serving.restart(0.3)
        # The first renewal comes after a third of the ttl, from the gateway that is there now.
        renewals = Renewals(lock)
        until(lambda: renewals.are(1))
        lock.put("a", "mine")


def test_every_write_takes_effect_once_while_the_gateway_is_killed(serving: Serving) -> None:
    over = threading.Event()

    def break_it() -> None:
        for _ in range(3):
            time.sleep(0.7)
            serving.restart(0.1)
        over.set()

    breaking = threading.Thread(target=break_it)
    breaking.start()
    written = 0
    with Fencegate(serving.url) as client, client.lock("r", ttl="10m") as lock:
        while not over.is_set() or written < 50:
            written += 1
            assert lock.put("count", str(written)).version == written
    breaking.join()
    with Fencegate(serving.url) as client:
        found = client.get("r", "count")
        assert found is not None and found.text == str(written) and found.version == written


def test_the_feed_goes_on_across_a_restart(serving: Serving) -> None:
    async def follow(events: AsyncIterator[object], until: int) -> list[int]:
        seen: list[int] = []
        async for event in events:
            assert isinstance(event, WriteEvent)
            seen.append(event.version)
            if event.version == until:
                break
        return seen

    async def run() -> None:
        async with (
            AsyncFencegate(serving.url) as client,
            client.events() as events,
            client.lock("r", ttl="10m") as lock,
        ):
            following = asyncio.create_task(follow(events, 10))
            for number in range(5):
                await lock.put(str(number), "x")
            await asyncio.to_thread(serving.restart, 0.2)
            for number in range(5):
                await lock.put(str(number), "y")
            assert await asyncio.wait_for(following, HANGS_S) == list(range(1, 11))

    asyncio.run(run())
