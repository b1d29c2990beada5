"""A gateway that keeps what it knows, so that it can be killed and started again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from fencegate.testing.gateway import PROGRAM

from .waiting import HANGS_S

# What all tests of the project share.
sys.path.append(str(Path(__file__).parents[4] / "tests"))
from ports import reserved_port


class Serving:
    """`fencegate serve` with its data in a folder, always at the same place."""

    def __init__(self, folder: Path) -> None:
        self._address = f"127.0.0.1:{reserved_port()}"
        self._folder = folder
        self.url = f"http://{self._address}"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Starts it, and waits until it is ready."""
        program = os.environ.get(PROGRAM) or "fencegate"
        command = [
            program,
            "serve",
            "--listen",
            self._address,
            "--data-dir",
            str(self._folder / "data"),
            "--log",
            "warn",
        ]
        self._process = subprocess.Popen(command, cwd=self._folder)
        deadline = time.monotonic() + HANGS_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", timeout=1):
                    return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                assert time.monotonic() < deadline and self._process.poll() is None, "the gateway did not start"
                time.sleep(0.05)

    def kill(self) -> None:
        """Ends it at once, as `kill -9`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self, after_s: float = 0.0) -> None:
        """Ends it at once, and starts it again a while later."""
        self.kill()
        time.sleep(after_s)
        self.start()
