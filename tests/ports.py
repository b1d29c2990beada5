"""Ports for servers that come back at the same address. No other test takes one, in whatever process and language: each
has a file in a folder, which is locked for as long as the process lives that took it."""

import fcntl
import random
import socket
from pathlib import Path
from typing import IO

FOLDER = Path("/tmp/fence-ports")
# Below those that the system gives to connections and to whoever asks for any port.
PORTS = range(10_000, 30_000)

_locks: list[IO[str]] = []


def reserved_port() -> int:
    """Takes a port for as long as this process lives."""
    if not FOLDER.exists():
        FOLDER.mkdir(exist_ok=True)
        # Other users reserve ports there, too.
        FOLDER.chmod(0o777)
    for port in random.sample(PORTS, len(PORTS)):
        lock = (FOLDER / str(port)).open("a")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                # As servers do: connections of one that was stopped are not in the way.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            lock.close()
            continue
        _locks.append(lock)
        return port
    raise OSError(f"no port is left from {PORTS.start} to {PORTS.stop}")
