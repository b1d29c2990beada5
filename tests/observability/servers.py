"""The servers that the test starts: gateways, Postgres, etcd, Prometheus, and a small HTTP server for the rest. All are on
loopback, and all end with the test, however it ends."""

import base64
import contextlib
import http.client
import http.server
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))
from ports import reserved_port

GATEWAY = os.environ.get("FENCE_TEST_GATEWAY", "")
FENCE = os.environ.get("FENCE_TEST_FENCE", "")


class Failed(Exception):
    """What the test is for did not hold."""


# What takes longer hangs: how soon something comes says nothing.
HANGS_S = 120


def eventually(what: str, probe: Callable[[], Any]) -> Any:
    """What the probe says once it says something; what it raises until then is passed over."""
    last: object = None
    deadline = time.monotonic() + HANGS_S
    while time.monotonic() < deadline:
        try:
            if found := probe():
                return found
        except (OSError, http.client.HTTPException, KeyError, Failed) as error:
            last = error
        time.sleep(0.1)
    raise Failed(f"{what}: it never is so; {last}")


class Program:
    """A program that runs until it is stopped. Its log is in a file beside its files."""

    def __init__(self, name: str, args: list[str], home: Path, env: dict[str, str] | None = None, *, user: str = ""):
        self.name, self.args, self.log = name, args, home / f"{name}.log"
        self.env = {key: value for key, value in os.environ.items() if not key.startswith(("FENCEGATE_", "FENCE_"))}
        self.env |= env or {}
        # The system ends it if the test is killed.
        become = [f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        self.prefix = ["setpriv", "--pdeathsig", "KILL", *become, "--"]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            command = [*self.prefix, *self.args]
            self.process = subprocess.Popen(command, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(HANGS_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""

    @contextlib.contextmanager
    def running(self) -> Iterator["Program"]:
        self.start()
        try:
            yield self
        finally:
            self.stop()


class Answer:
    """An answer over HTTP."""

    def __init__(self, status: int, headers: http.client.HTTPMessage, body: bytes):
        self.status, self.headers, self.body = status, headers, body

    def text(self) -> str:
        return self.body.decode()

    def must(self, *statuses: int) -> "Answer":
        if self.status not in statuses:
            raise Failed(f"answered {self.status}, not {statuses}: {self.body[:500]!r}")
        return self


def call(
    address: tuple[str, int],
    method: str,
    target: str,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
    source: tuple[str, int] | None = None,
) -> Answer:
    """One request on a connection of its own."""
    if tls:
        connection = http.client.HTTPSConnection(*address, timeout=60, source_address=source, context=tls)
    else:
        connection = http.client.HTTPConnection(*address, timeout=60, source_address=source)
    with contextlib.closing(connection):
        connection.request(method, target, body, headers or {})
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())


class Small:
    """A small HTTP server: what is upstream of the gateway, and what Prometheus scrapes beside it."""

    def __init__(self) -> None:
        self.pages: dict[str, Callable[[], str]] = {}
        # While it is clear, a request to an upstream waits, which sets the other.
        self.answers, self.waits = threading.Event(), threading.Event()
        self.answers.set()
        small = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def respond(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                page = small.pages.get(self.path)
                if page is None and self.path.startswith("/customers/"):
                    if self.path.endswith("/lost"):
                        # Nobody can tell from this what became of the request.
                        self.close_connection = True
                        self.connection.shutdown(socket.SHUT_RDWR)
                        return
                    small.waits.set()
                    small.answers.wait()
                text = page() if page else "done\n"
                self.send_response(200)
                self.send_header("content-type", "text/plain; version=0.0.4")
                self.send_header("content-length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = respond

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = ("127.0.0.1", self.server.server_address[1])
        self.url = f"http://127.0.0.1:{self.address[1]}"

    @contextlib.contextmanager
    def running(self) -> Iterator["Small"]:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            self.answers.set()
            self.server.shutdown()
            self.server.server_close()


class Etcd:
    """An etcd of one member."""

    def __init__(self, home: Path):
        self.data = home / "etcd"
        self.port, peer = reserved_port(), reserved_port()
        client, peers = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{peer}"
        args = ["etcd", "--name=m0", f"--data-dir={self.data}", "--log-level=error"]
        args += [f"--listen-client-urls={client}", f"--advertise-client-urls={client}"]
        args += [
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=m0={peers}",
        ]
        self.program = Program("etcd", args, home)

    def start(self) -> None:
        self.program.start()
        eventually("etcd answers", lambda: call(("127.0.0.1", self.port), "GET", "/health").must(200))

    def witnessed(self) -> int:
        """A number that rises each time the gateway notes there how far its ledger was flushed."""
        key = base64.b64encode(b"/fencegate/witness").decode()
        answer = call(("127.0.0.1", self.port), "POST", "/v3/kv/range", json.dumps({"key": key}).encode())
        return int(json.loads(answer.must(200).body)["kvs"][0]["mod_revision"])

    def wipe(self) -> None:
        """It comes back as a new, empty one."""
        self.program.stop()
        shutil.rmtree(self.data)
        self.start()


class Postgres:
    """A Postgres server; as root it runs as the user `postgres`, since it refuses root."""

    def __init__(self, home: Path):
        self.home = home / "postgres"
        self.home.mkdir()
        self.data, self.copy, self.port = self.home / "data", self.home / "copy", reserved_port()
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda it: int(it.parts[4]))
        self.bin = found[-1].parent if found else Path(shutil.which("initdb") or "").parent
        self.user = "postgres" if os.geteuid() == 0 else ""
        if self.user:
            shutil.chown(self.home, self.user, self.user)
        args = [f"{self.bin}/postgres", "-D", str(self.data), "-p", str(self.port), "-k", str(self.home)]
        self.program = Program("server", [*args, "-c", "listen_addresses=127.0.0.1"], self.home, user=self.user)
        self.run(
            "initdb", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale", "-D", str(self.data)
        )
        self.url = f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    def run(self, program: str, *args: str) -> None:
        command = [f"{self.bin}/{program}", *args]
        if self.user:
            command = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups", "--", *command]
        # A folder that the user may enter.
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.home)
        if done.returncode:
            raise Failed(f"{program} failed: {done.stderr}")

    def sql(self, *statements: str) -> None:
        commands = [arg for statement in statements for arg in ["-c", statement]]
        self.run("psql", "-qAt", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", *commands)

    def start(self) -> None:
        self.program.start()
        eventually("Postgres answers", lambda: self.sql("SELECT 1") or True)

    def wait_for_standby(self, name: str) -> None:
        """Commits wait for this standby, of which there is none, or for nobody if it has no name."""
        self.sql(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'", "SELECT pg_reload_conf()")

    def stop(self) -> None:
        """It ends sessions and writes a checkpoint."""
        self.program.stop(signal.SIGINT)

    def back_up(self) -> None:
        """A copy of its files, while it is stopped."""
        shutil.copytree(self.data, self.copy)
        if self.user:
            for path in [self.copy, *self.copy.rglob("*")]:
                shutil.chown(path, self.user, self.user)

    def restore(self) -> None:
        """It is as it was at the copy: what was committed since is lost."""
        shutil.rmtree(self.data)
        self.copy.rename(self.data)

    def promote(self) -> None:
        """It comes back on a new timeline, as after a failover that lost nothing."""
        signal_file = self.data / "standby.signal"
        signal_file.touch()
        if self.user:
            shutil.chown(signal_file, self.user, self.user)
        self.start()
        self.run("pg_ctl", "promote", "-D", str(self.data))
