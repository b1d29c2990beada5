"""What the library gives to other people's tests: guards that are lost at will, gateways, fixtures."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from fencegate import LockLost, LockStatus, LossReason, Misuse, NoFence
from fencegate.testing import AsyncFakeLock, FakeLock, Gateway

PROJECT = """
pytest_plugins = ["fencegate.testing.plugin"]
"""
TESTS = """
import pytest
from fencegate import AsyncFencegate, Fencegate, LockLost


def test_a_client(fencegate, fencegate_resource):
    with fencegate.lock(fencegate_resource) as lock:
        lock.put("k", b"v")
    assert fencegate.get(fencegate_resource, "k").body == b"v"


def test_a_rival(fencegate, fencegate_gateway, fencegate_resource):
    lock = fencegate.acquire(fencegate_resource)
    fencegate_gateway.take_over(fencegate_resource)
    with pytest.raises(LockLost):
        lock.put("k", b"late")


def test_a_url(fencegate_url):
    assert fencegate_url.startswith("http://127.0.0.1:")
"""


def test_a_fake_lock_is_lost_at_will() -> None:
    with FakeLock("r") as lock:
        assert lock.resources == ("r",)
        lock.check()
        assert not lock.lost.is_set()
    lock = FakeLock("r")
    lock.lose(LossReason.BROKEN)
    assert lock.lost.is_set()
    assert lock.status is LockStatus.LOST
    with pytest.raises(LockLost) as loss:
        lock.check()
    assert loss.value.reason is LossReason.BROKEN


def test_a_fake_lock_writes_nothing() -> None:
    with FakeLock() as lock, pytest.raises(NoFence):
        lock.put("k", b"v")


def test_a_scope_of_a_fake_lock_fails_when_it_is_lost() -> None:
    done: list[int] = []
    with pytest.raises(LockLost), FakeLock() as lock:
        for number in lock.guarded(range(10)):
            done.append(number)
            if number == 3:
                lock.lose()
    assert done == [0, 1, 2, 3]


def test_on_lost_is_called_with_the_loss() -> None:
    told: list[LockLost] = []
    lock = FakeLock(on_lost=told.append)
    lock.lose()
    lock.lose()
    assert [loss.reason for loss in told] == [LossReason.SUPERSEDED]


def test_the_task_under_a_fake_lock_is_cancelled() -> None:
    reached: list[str] = []

    async def work() -> None:
        async with AsyncFakeLock("r") as lock:
            asyncio.get_running_loop().call_later(0.05, lock.lose)
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                reached.append("cleaning up")
                raise

    with pytest.raises(LockLost):
        asyncio.run(work())
    assert reached == ["cleaning up"]


def test_the_fixtures_work_in_other_projects(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(PROJECT)
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    assert "3 passed" in run.stdout


def test_a_program_that_is_no_gateway_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FENCE_TEST_GATEWAY", "/nowhere/fencegate")
    with pytest.raises(Misuse, match="/nowhere/fencegate dev"):
        Gateway()
    monkeypatch.setenv("FENCE_TEST_GATEWAY", "/bin/true")
    with pytest.raises(Misuse, match="did not say where it listens"):
        Gateway()
