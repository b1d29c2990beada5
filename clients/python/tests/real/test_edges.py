"""What is rare: two threads at once, a collection in the midst of something, a loop that ended, a close that overtakes."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fencegate import (
    AsyncFencegate,
    Body,
    Fencegate,
    LockLost,
    LockStatus,
    LossReason,
    Unavailable,
)
from fencegate._background import thread
from fencegate._background.watching import Watching
from fencegate._core.ids import uuid7
from fencegate._core.numbers import Numbers
from fencegate._sync import _lock

from .waiting import HANGS_S, Renewals, until, until_so


class Cycle:
    """Keeps something until the garbage collection comes by."""

    def __init__(self, kept: object) -> None:
        self.kept = kept
        self.itself = self


def ends(work: Callable[[], object]) -> bool:
    """Does something in a thread, which is left if it hangs. Gives whether it was done."""
    doing = threading.Thread(target=work, daemon=True)
    doing.start()
    doing.join(HANGS_S)
    return not doing.is_alive()


def test_a_scope_that_is_entered_too_late_takes_back_its_cancellation(
    fencegate_url: str, fencegate_resource: str
) -> None:
    async def run() -> None:
        async with AsyncFencegate(fencegate_url) as client:
            lock = await client.acquire(fencegate_resource, ttl="1s")
            time.sleep(1.3)
            with pytest.raises(LockLost):
                async with lock:
                    await asyncio.Event().wait()
            task = asyncio.current_task()
            assert task is not None and task.cancelling() == 0

    asyncio.run(run())


@pytest.mark.parametrize("which", ["client", "engine"])
def test_a_guard_may_be_collected_in_the_midst_of_anything(
    fencegate_url: str, fencegate_resource: str, which: str
) -> None:
    client = Fencegate(fencegate_url)
    lock: Any = client._shared._lock if which == "client" else client._engine._lock

    def collect() -> None:
        Cycle(client.acquire(fencegate_resource, ttl="10m"))
        with lock:
            gc.collect()

    assert ends(collect), "the collection hangs"
    with Fencegate(fencegate_url) as other, other.lock(fencegate_resource, wait=HANGS_S):
        pass
    client.close()


def test_a_second_thread_ends_that_a_collection_has_begun(
    fencegate: Fencegate, fencegate_resource: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, made = set(threading.enumerate()), []

    def make(*arguments: Any) -> Any:
        made.append(running(*arguments))
        mine = made[-1]
        if len(made) == 1:
            # As a guard that is collected here: it has something to do.
            fencegate._engine._run(lambda engine: None)
        return mine

    running = thread._Running
    monkeypatch.setattr(thread, "_Running", make)
    with fencegate.lock(fencegate_resource, ttl="9s") as lock:
        assert len(made) == 2
        ours = [one for one in threading.enumerate() if one.name == "fencegate" and one not in before]
        until(lambda: sum(one.is_alive() for one in ours) == 1)
        renewals = Renewals(lock)
        until(lambda: renewals.are(4))
        lock.put("a", "still held")


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("kind", [Fencegate, AsyncFencegate])
def test_a_process_is_copied_while_another_thread_uses_the_client(
    kind: type[Fencegate | AsyncFencegate], fencegate_url: str
) -> None:
    client = kind(fencegate_url)
    has_it, may_go = threading.Event(), threading.Event()

    def use() -> None:
        with client._shared._lock:
            has_it.set()
            may_go.wait()

    using = threading.Thread(target=use)
    using.start()
    has_it.wait()
    copy = os.fork()
    if copy == 0:
        os._exit(0)
    try:
        until(lambda: os.waitid(os.P_PID, copy, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None)
    finally:
        may_go.set()
        using.join()
        os.kill(copy, signal.SIGKILL)
        os.waitpid(copy, 0)


def test_a_lock_that_is_granted_while_the_client_closes_is_given_back(
    fencegate_url: str, fencegate_resource: str
) -> None:
    client = Fencegate(fencegate_url)
    first = client.acquire(fencegate_resource, ttl="10m")
    refused: list[Unavailable] = []

    def wait() -> None:
        try:
            client.acquire(fencegate_resource, ttl="10m", wait="forever")
        except Unavailable as error:
            refused.append(error)

    waiting = threading.Thread(target=wait)
    with Fencegate(fencegate_url) as other:
        waiting.start()
        until(lambda: other.waiters(fencegate_resource).all())
        client.close()
        waiting.join(HANGS_S)
        assert first.status is LockStatus.LOST and len(refused) == 1
        other.acquire(fencegate_resource, wait=HANGS_S).release()


def test_a_grant_that_is_on_its_way_when_the_client_closes_is_given_back(
    fencegate: Fencegate, fencegate_url: str, fencegate_resource: str
) -> None:
    class Closing(httpx2.HTTPTransport):
        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            response = super().handle_request(request)
            if request.method == "POST":
                client.close()
            return response

    with Closing() as transport:
        client = Fencegate(fencegate_url, transport=transport)
        with pytest.raises(Unavailable, match="closed"):
            client.acquire(fencegate_resource, ttl="10m")
    fencegate.acquire(fencegate_resource, wait=HANGS_S).release()


def test_a_lock_that_is_granted_while_a_loop_closes_is_given_back(fencegate_url: str, fencegate_resource: str) -> None:
    async def run() -> None:
        client = AsyncFencegate(fencegate_url)
        first = await client.acquire(fencegate_resource, ttl="10m")
        async with AsyncFencegate(fencegate_url) as other:
            waiting = asyncio.create_task(client.acquire(fencegate_resource, ttl="10m", wait="forever"))
            while not await other.waiters(fencegate_resource).all():
                await asyncio.sleep(0.02)
            await client.close()
            with pytest.raises(Unavailable):
                await waiting
            assert first.status is LockStatus.LOST
            await (await other.acquire(fencegate_resource, wait=HANGS_S)).release()

    asyncio.run(run())


def test_a_lock_that_is_adopted_while_the_client_closes_is_given_back(
    fencegate: Fencegate, fencegate_url: str, fencegate_resource: str
) -> None:
    handoff = fencegate.acquire(fencegate_resource, ttl="10m").transfer("successor")
    client = Fencegate(fencegate_url)
    client._shared.is_closing = True
    with pytest.raises(Unavailable):
        client.adopt(handoff)
    gc.collect()
    fencegate.acquire(fencegate_resource, wait=HANGS_S).release()
    client.close()


def _lent(client: Fencegate) -> Any:
    return client.lent("r", token="1", id=uuid7())


def test_all_threads_get_the_same_event(fencegate: Fencegate, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(_lock.runtime.Signal):
        def __init__(self, is_set: bool) -> None:
            time.sleep(0.1)
            super().__init__(is_set)

    monkeypatch.setattr(_lock.runtime, "Signal", Slow)
    guard, events = _lent(fencegate), []
    threads = [threading.Thread(target=lambda: events.append(guard.lost)) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    guard._held.lose(LossReason.BROKEN)
    assert len(events) == 3 and all(event.is_set() for event in events)


def test_a_loss_while_the_event_is_made_sets_it(fencegate: Fencegate, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = _lent(fencegate)

    class Overtaken(_lock.runtime.Signal):
        def __init__(self, is_set: bool) -> None:
            super().__init__(is_set)
            guard._held.lose(LossReason.BROKEN)

    monkeypatch.setattr(_lock.runtime, "Signal", Overtaken)
    assert guard.lost.is_set()


def test_a_write_that_a_release_overtakes_is_not_sent(fencegate: Fencegate, fencegate_resource: str) -> None:
    lock = fencegate.acquire(fencegate_resource)

    class Overtaken(Numbers):
        def begin(self) -> Any:
            assert lock.release()
            return super().begin()

    lock._held.numbers = Overtaken()
    with pytest.raises(LockLost) as lost:
        lock.put("a", "late")
    assert lost.value.attempts == 0 and lost.value.reason is LossReason.RELEASED
    assert lock._held.numbers.is_idle


def test_a_second_release_waits_for_writes_too(fencegate_url: str, fencegate_resource: str) -> None:
    async def run() -> None:
        begun, may_go = asyncio.Event(), asyncio.Event()

        async def pieces() -> AsyncIterator[bytes]:
            yield b"x"
            begun.set()
            await may_go.wait()
            yield b"y"

        async with AsyncFencegate(fencegate_url) as client:
            lock = await client.acquire(fencegate_resource)
            write = asyncio.create_task(lock.put("a", Body.stream(pieces, 2)))
            await begun.wait()
            releases = [asyncio.create_task(lock.release()) for _ in range(2)]
            # A call of its own comes after all that they could have sent.
            await client.status()
            assert not any(release.done() for release in releases)
            may_go.set()
            assert await asyncio.gather(*releases) == [True, True]
            assert (await write).created

    asyncio.run(run())


def test_a_client_on_another_loop_gives_the_locks_of_the_first_back(
    fencegate_url: str, fencegate_resource: str
) -> None:
    client = AsyncFencegate(fencegate_url)
    loop = asyncio.new_event_loop()
    lock = loop.run_until_complete(client.acquire(fencegate_resource, ttl="10m"))

    async def event() -> asyncio.Event:
        return lock.lost

    lost = loop.run_until_complete(event())
    waiting: Any = loop.create_task(lost.wait())
    loop.run_until_complete(asyncio.sleep(0.05))
    caller: Any = client._caller_
    loop.run_until_complete(caller.transport.close())
    # It ends with somebody who waits.
    waiting._log_destroy_pending = False
    loop.close()

    async def go_on() -> None:
        async with client:
            await client.resource(fencegate_resource)
            assert lock.reason is LossReason.CLOSED and lost.is_set()
            await (await client.acquire(fencegate_resource, wait=HANGS_S)).release()

    asyncio.run(go_on())


def test_a_trace_that_fails_holds_up_no_release(fencegate_url: str, fencegate_resource: str) -> None:
    fails = False

    def trace() -> None:
        if fails:
            raise ZeroDivisionError

    async def run() -> None:
        nonlocal fails
        async with AsyncFencegate(fencegate_url, traceparent=trace) as client:
            lock = await client.acquire(fencegate_resource)
            fails = True
            assert await lock.release()

    asyncio.run(run())


def test_guards_that_are_over_wait_for_no_stream(fencegate_url: str) -> None:
    async def run() -> None:
        async with AsyncFencegate(fencegate_url) as client:
            while client._shared.take_stream():
                pass
            watching = Watching(client._engine)
            first = await client.lent("r", token="1", id=uuid7())
            watching.watch(first._held)
            for _ in range(1_000):
                guard = await client.lent("r", token="1", id=uuid7())
                watching.watch(guard._held)
                del guard
            assert len(watching._waiting) <= 65

    asyncio.run(run())


def test_a_client_may_be_closed_in_a_scope_of_its_own(fencegate_url: str, fencegate_resource: str) -> None:
    async def run() -> None:
        client = AsyncFencegate(fencegate_url)
        with pytest.raises(LockLost) as lost:
            async with client.lock(fencegate_resource, ttl="10m"):
                await client.close()
        assert lost.value.reason is LossReason.CLOSED
        async with AsyncFencegate(fencegate_url) as other:
            await (await other.acquire(fencegate_resource, wait=HANGS_S)).release()
        await until_so(lambda: client._shared.is_closed)
        # What began there goes on, and is waited for here.
        await client.close()

    asyncio.run(run())


def test_a_call_after_the_end_keeps_no_connection(fencegate_url: str, fencegate_resource: str) -> None:
    client = Fencegate(fencegate_url)
    client.close()
    client.resource(fencegate_resource)
    for transport in client._caller_.transport.forget():
        assert not transport._pool.connections  # type: ignore[attr-defined]


def test_a_file_that_is_never_sent_is_never_opened(tmp_path: Path) -> None:
    path = tmp_path / "body"
    path.write_bytes(b"x")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        Body.file(path).begin()
        gc.collect()
    assert not [one for one in told if str(path) in str(one.message)]
