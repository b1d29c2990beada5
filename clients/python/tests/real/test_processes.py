"""Processes that are copied, stopped, and left: what becomes of their locks."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from fencegate import AsyncFencegate, Fencegate, LockLost, LockStatus, LossReason

from .waiting import HANGS_S, Renewals, until, until_so


def _in_a_copy(work: Callable[[], None]) -> None:
    """Does something in a copy of this process, which must go well there."""
    copy = os.fork()
    if copy == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:
            os.write(2, f"in the copy: {error!r}\n".encode())
        finally:
            os._exit(code)
    _, status = os.waitpid(copy, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_copy_of_the_process_has_no_lock_and_leaves_that_of_the_first_alone(
    fencegate_url: str, fencegate_resource: str
) -> None:
    with Fencegate(fencegate_url) as client, client.lock(fencegate_resource, ttl="9s") as lock:
        lock.put("a", "before")
        owner, signal_given = client.owner, lock.lost

        def in_copy() -> None:
            assert lock.status is LockStatus.LOST and lock.reason is LossReason.FORKED
            assert signal_given.is_set() and lock.lost.is_set()
            with pytest.raises(LockLost):
                lock.put("a", "never sent")
            assert lock.release()
            assert client.owner != owner
            # The copy may go on with the client, over connections of its own.
            assert client.try_lock(fencegate_resource) is None
            with client.lock(f"{fencegate_resource}:copy") as mine:
                mine.put("b", "of the copy")

        _in_a_copy(in_copy)
        lock.put("a", "after")
        renewals = Renewals(lock)
        until(lambda: renewals.are(4))
        lock.put("a", "long after")
        assert client.owner == owner
        found = client.get(f"{fencegate_resource}:copy", "b")
        assert found is not None and found.text == "of the copy"


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_the_same_in_the_midst_of_a_loop(fencegate_url: str, fencegate_resource: str) -> None:
    async def run() -> None:
        async with AsyncFencegate(fencegate_url) as client, client.lock(fencegate_resource, ttl="9s") as lock:
            await lock.put("a", "before")

            def in_copy() -> None:
                assert lock.status is LockStatus.LOST and lock.reason is LossReason.FORKED

                async def go_on() -> None:
                    assert await client.try_lock(fencegate_resource) is None
                    async with client.lock(f"{fencegate_resource}:copy") as mine:
                        await mine.put("b", "of the copy")

                asyncio.run(go_on())

            # In a thread without a loop: this one's cannot be run in while it runs.
            await asyncio.to_thread(_in_a_copy, in_copy)
            await lock.put("a", "after")
            renewals = Renewals(lock)
            await until_so(lambda: renewals.are(4))
            await lock.put("a", "long after")

    asyncio.run(run())


_HOLDER = """
import sys, time
from fencegate import Fencegate, LockLost
client = Fencegate(sys.argv[1])
lock = client.acquire(sys.argv[2], ttl="1s")
print("held", flush=True)
sys.stdin.readline()
try:
    lock.put("a", "late")
    print("written", flush=True)
except LockLost as lost:
    print("lost", lost.reason, lost.attempts, flush=True)
sys.stdin.readline()
"""


def _holder(url: str, resource: str) -> subprocess.Popen[str]:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, url, resource], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    return holder


def test_a_holder_that_was_stopped_is_told_before_it_writes(fencegate: Fencegate, fencegate_resource: str) -> None:
    holder = _holder(_url(fencegate), fencegate_resource)
    with holder:
        assert holder.stdin is not None and holder.stdout is not None
        holder.send_signal(signal.SIGSTOP)
        # For two ttls.
        time.sleep(2.1)
        with fencegate.lock(fencegate_resource, wait=HANGS_S) as lock:
            lock.put("a", "mine")
            holder.stdin.write("\n")
            holder.stdin.flush()
            holder.send_signal(signal.SIGCONT)
            # Nothing was sent: the clock alone says so.
            assert holder.stdout.readline() == "lost unconfirmed 0\n"
        found = fencegate.get(fencegate_resource, "a")
        assert found is not None and found.text == "mine"
        holder.stdin.write("\n")
        holder.stdin.flush()


def test_a_holder_that_was_killed_holds_no_longer(fencegate: Fencegate, fencegate_resource: str) -> None:
    with _holder(_url(fencegate), fencegate_resource) as holder:
        holder.kill()
    with fencegate.lock(fencegate_resource, wait=HANGS_S):
        pass


def _url(client: Fencegate) -> str:
    return client._shared.settings.urls.all[0].text


_ENDING = """
import sys
from fencegate import Fencegate
client = Fencegate(sys.argv[1])
with client.lock(sys.argv[2]) as lock:
    lock.put("a", "1")
kept = client.acquire(sys.argv[2] + ":kept")
"""


def test_a_program_that_ends_is_quiet(fencegate: Fencegate, fencegate_resource: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "dev", "-c", _ENDING, _url(fencegate), fencegate_resource],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_S,
    )
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "Traceback" not in ended.stderr and "Fatal" not in ended.stderr, ended.stderr


def test_importing_begins_nothing() -> None:
    program = "import threading, fencegate; print([t.name for t in threading.enumerate()])"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "['MainThread']\n"
