"""What the drivers let happen to their process, against a real gateway."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from fencegate import Fencegate


class Driver:
    """A driver of its own process, which answers one command after another."""

    def __init__(self, kind: str) -> None:
        command = [sys.executable, "-m", "fencegate.testing.driver", kind]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.features = self._line()["features"]
        self._count = 0

    def do(self, word: str, **fields: Any) -> Any:
        """Gives the result of a command."""
        assert self.process.stdin is not None
        self._count += 1
        self.process.stdin.write(json.dumps({"id": self._count, "do": word, **fields}) + "\n")
        self.process.stdin.flush()
        while (said := self._line()).get("id") != self._count:
            pass
        return said

    def _line(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


@pytest.fixture(params=["--real-time", "--sync"])
def driver(request: pytest.FixtureRequest, fencegate_url: str) -> Iterator[Driver]:
    """A driver with a client, of each kind."""
    driver = Driver(request.param)
    with driver.process:
        driver.do("client", urls=[fencegate_url], owner="driven")
        yield driver
        driver.do("close")


def test_a_guard_that_is_dropped_is_given_back(driver: Driver, fencegate: Fencegate, fencegate_resource: str) -> None:
    assert "drop" in driver.features
    for _ in range(2):
        assert "error" not in driver.do("acquire", lock="A", resources=[fencegate_resource], ttl="1m")
        driver.do("put", lock="A", object="a", text="1")
        assert fencegate.try_lock(fencegate_resource) is None
        assert "error" not in driver.do("drop", lock="A")
        fencegate.acquire(fencegate_resource, wait="5s").release()


def test_a_copy_of_the_process_is_refused(driver: Driver, fencegate: Fencegate, fencegate_resource: str) -> None:
    assert "fork" in driver.features
    driver.do("acquire", lock="A", resources=[fencegate_resource], ttl="1m")
    assert driver.do("fork", lock="A", resource=fencegate_resource)["ok"] == {"refused": True}
    assert fencegate.get(fencegate_resource, "copy") is None
    assert "error" not in driver.do("put", lock="A", object="a", text="1")
