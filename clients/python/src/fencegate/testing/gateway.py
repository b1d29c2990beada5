"""A real gateway for tests, with everything in memory: `fencegate dev`."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from .. import Fencegate, errors
from .._core.ids import uuid7
from .._request import json_request
from .._wire import LockRecord, decode

PROGRAM = "FENCE_TEST_GATEWAY"
"""Names the program that is started, if it is not `fencegate` on the path."""
_STARTS_WITHIN_S = 120.0
_STANDS_WITHIN_S = 1.0
_TAKE_OVERS = 5
"""How often a lock is broken for a rival, before somebody else is always faster."""


class Gateway:
    """A gateway of one's own, which ends when this is closed, and forgets everything. A context manager.

    It is the program `fencegate`, found on the path unless `FENCE_TEST_GATEWAY` names it.

        with Gateway() as gateway:
            lock = gateway.client.acquire("invoices:2026")
            gateway.take_over("invoices:2026")
            lock.put("total.txt", "999")            # raises LockLost
    """

    def __init__(self, *arguments: str) -> None:
        """Starts one, with these further arguments of `fencegate dev`, and waits until it listens. Raises `Misuse` if the
        program cannot be started, or ends without saying where it listens."""
        program = os.environ.get(PROGRAM) or "fencegate"

        def wrong(why: str) -> errors.Misuse:
            place = f"put `fencegate` on the path, or its path into {PROGRAM}"
            return errors.Misuse(f"no gateway for tests: `{program} dev` {why}; {place}")

        command = [program, "dev", "--listen", "127.0.0.1:0", *arguments]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise wrong(f"did not start: {error}") from error
        assert self._process.stdout is not None
        line = _first_line(self._process.stdout)
        try:
            said = json.loads(line)
            self.url: str = said["url"]
            """Where it listens."""
            self.pid: int = said["pid"]
        except (ValueError, KeyError, TypeError):
            self._process.kill()
            self._process.wait()
            self._close_pipes()
            raise wrong(f"did not say where it listens: {line!r}") from None
        self._client: Fencegate | None = None

    @property
    def client(self) -> Fencegate:
        """A client of it; always the same, and closed with it."""
        if self._client is None:
            self._client = Fencegate(self.url)
        return self._client

    def take_over(self, resource: str) -> LockRecord:
        """Takes the lock on a resource from whoever holds it: breaks it, and locks it for a rival, for 30 s without renewal.
        What the first holder writes then bounces. Raises `Unavailable` if others are always faster."""
        for _ in range(_TAKE_OVERS):
            if self.client.resource(resource) is not None:
                self.client.admin.break_lock(resource, "taken over in a test")
            document = {"resource": resource, "owner": "rival", "id": uuid7()}
            caller = self.client._caller()
            try:
                return decode(LockRecord, caller.json("acquire", json_request("POST", "/locks", document)))
            except errors.LockHeld:
                continue
        raise errors.Unavailable("somebody else always takes the lock first")

    def pause(self) -> None:
        """Stops it in its tracks, as a machine that hangs: it answers nothing, and closes nothing. Waits until it stands."""
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + _STANDS_WITHIN_S
        while not self._stands() and time.monotonic() < deadline:
            time.sleep(0.01)

    def resume(self) -> None:
        """Lets it go on."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends it at once, as `kill -9`, and waits until it is gone. What it knew is lost."""
        if self._process.poll() is None:
            self._signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Ends it, and its client."""
        if self._client is not None:
            self._client.close("100ms" if self._process.poll() is not None else "1s")
        self.kill()
        self._close_pipes()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _signal(self, number: int) -> None:
        # The process that was started may be a script, which waits for the gateway.
        try:
            os.kill(self.pid, number)
        except ProcessLookupError as error:
            raise errors.Misuse("the gateway is not running") from error

    def _stands(self) -> bool:
        """Whether all its threads are stopped. Without `/proc` nobody can tell, and it gets some time."""
        states = [stat.read_text().rpartition(") ")[2][:1] for stat in Path(f"/proc/{self.pid}/task").glob("*/stat")]
        return bool(states) and set(states) == {"T"}

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _first_line(stdout: IO[bytes]) -> bytes:
    with selectors.DefaultSelector() as selector:
        selector.register(stdout, selectors.EVENT_READ)
        return stdout.readline() if selector.select(_STARTS_WITHIN_S) else b""
