"""What callers do to the gateways while Prometheus looks: whatever makes a metric say something."""

import base64
import contextlib
import hashlib
import hmac
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from servers import FENCE, GATEWAY, HANGS_S, Answer, Etcd, Failed, Postgres, Program, Small, call, eventually

JSON = {"content-type": "application/json"}
# Above `FENCEGATE_INLINE_BYTES_MAX` of the gateways here: it goes to the store of blobs.
LARGE = 4096


class Caller:
    """Calls to one gateway."""

    def __init__(self, address: tuple[str, int], tls: ssl.SSLContext | None = None, key: str = ""):
        self.address, self.tls = address, tls
        self.headers = {"authorization": f"Bearer {key}"} if key else {}
        # Where its connections come from.
        self.source: tuple[str, int] | None = None

    def call(self, method: str, target: str, body: object = None, **headers: str) -> Answer:
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is None or isinstance(body, bytes):
            return call(self.address, method, target, body, self.headers | more, self.tls, self.source)
        return call(
            self.address, method, target, json.dumps(body).encode(), self.headers | JSON | more, self.tls, self.source
        )

    def lock(self, resource: str, **more: str) -> dict:
        wish = {"resource": resource, "owner": "workload", "id": str(uuid.uuid4()), **more}
        return json.loads(self.call("POST", "/locks", wish).must(200, 201).body)

    def put(self, lock: dict, key: str, body: bytes) -> Answer:
        path = f"/resources/{lock['resources'][0]}/objects/{key}"
        return self.call("PUT", path, body, x_fence_token=str(lock["token"]))

    def get(self, resource: str, key: str) -> Answer:
        return self.call("GET", f"/resources/{resource}/objects/{key}")

    def release(self, lock: dict) -> None:
        self.call("DELETE", f"/locks/{lock['id']}").must(204)

    def renew(self, lock: dict) -> Answer:
        return self.call("POST", f"/locks/{lock['id']}/renew", {})

    def mark(self, resource: str, what: str) -> None:
        self.call("POST", f"/resources/{resource}/{what}", {"reason": "the workload"}).must(200)


def in_the_background(*work: object) -> threading.Thread:
    """Calls a function with arguments in a thread; that its connection breaks is no matter."""

    def run() -> None:
        with contextlib.suppress(OSError, Failed):
            work[0](*work[1:])  # type: ignore[operator]

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def locks_and_writes(one: Caller, seen: Callable[[str], object]) -> None:
    """Grants, contention, waiting, every way for a lock to end, renewals in time and late, and writes that come late."""
    lock = one.lock("table:orders", ttl="10m")
    for number in range(20):
        one.put(lock, "k", f"write {number}".encode()).must(200, 201)
    one.renew(lock).must(200)
    one.call("POST", "/locks", {"resource": "table:orders", "owner": "other"}).must(409)
    waiting = in_the_background(lambda: one.lock("table:orders", wait="50s", ttl="30s"))
    eventually("somebody is seen to wait", lambda: seen("fencegate_waiters"))
    one.release(lock)
    waiting.join()
    for _ in range(3):
        one.put(lock, "k", b"late").must(412)
    one.renew(lock).must(410, 409, 404)

    # It lapses, is renewed all the same, lapses again, and passes on.
    early = one.lock("superseded", ttl="1s")
    time.sleep(1.3)
    one.renew(early).must(200)
    time.sleep(1.3)
    one.put(one.lock("superseded"), "k", b"in time").must(201)
    for _ in range(5):
        one.put(early, "k", b"late").must(412)
    one.call("PUT", "/resources/superseded/objects/k", b"guessed", x_fence_token=str(2**62)).must(403)
    # As a holder does whose grant was lost when the ledger was put back. On another resource: of many unknown tokens of one
    # the first stands for all.
    lost = str(int(early["token"]) + 2**20)
    one.call("PUT", "/resources/table:orders/objects/k", b"lost", x_fence_token=lost).must(403)
    one.call("PUT", "/resources/superseded/objects/k", b"without").must(428)

    for resource, after in [("broken", "0s"), ("breaking", "1s")]:
        one.lock(resource)
        one.call("POST", f"/resources/{resource}/break", {"reason": "the workload", "after": after}).must(200)
    for what in ["freeze", "unfreeze", "protect", "unprotect", "freeze"]:
        one.mark("broken", what)
    one.call("POST", "/resources/elsewhere/fence", {"id": str(uuid.uuid4()), "order": 7}).must(200, 201)


def deaf(one: Caller) -> None:
    """A caller that asks for many locks, reads no answer, and hangs up: the last grant cannot be delivered."""
    wish = {"owner": "deaf", "ttl": "5s", "metadata": {f"m{n}": "x" * 1000 for n in range(3)}}
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(one.address)
        connection.settimeout(2)
        with contextlib.suppress(TimeoutError):
            for number in range(5000):
                body = json.dumps(wish | {"resource": f"deaf:{number}"})
                head = "POST /locks HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
                head += f"content-length: {len(body)}\r\n\r\n"
                connection.sendall((head + body).encode())
            raise Failed("there was room for all answers")
        # With SO_LINGER of 0 it goes with a reset.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def blobs(one: Caller, folder: Path) -> None:
    """Large objects: read, replaced, lost, damaged; garbage that cannot be deleted; an upload that breaks off."""

    def files() -> set[Path]:
        return {path for path in (folder / "blobs").rglob("*") if path.is_file()}

    lock = one.lock("store", ttl="60s")
    written: dict[str, Path] = {}
    for key in ["whole", "missing", "damaged", "replaced", "stuck"]:
        before = files()
        one.put(lock, key, os.urandom(LARGE)).must(201)
        written[key] = (files() - before).pop()
    one.get("store", "whole").must(200)
    for key in ["replaced", "stuck"]:
        if key == "stuck":
            # A folder with something in it cannot be deleted as a file is.
            written[key].unlink()
            (written[key] / "in-the-way").mkdir(parents=True)
        one.put(lock, key, os.urandom(LARGE)).must(200)
    written["missing"].unlink()
    written["damaged"].write_bytes(os.urandom(LARGE))
    one.get("store", "missing").must(404, 500, 502, 503)
    with contextlib.suppress(OSError, Exception):
        one.get("store", "damaged")

    head = f"PUT /resources/store/objects/cut HTTP/1.1\r\nhost: 127.0.0.1\r\nx-fence-token: {lock['token']}\r\n"
    head += "content-length: 9999999\r\n\r\n"
    with socket.create_connection(one.address) as upload:
        upload.sendall(head.encode() + os.urandom(100_000))
        time.sleep(0.5)


def upstreams(one: Caller, small: Small, scraped: Callable[[], None]) -> None:
    """Requests that are forwarded, one that the next lock has to wait for, and one of which nobody knows what became."""
    lock = one.lock("crm:7", ttl="10m")

    def forward(lock: dict, path: str) -> Answer:
        return one.call("PATCH", f"/upstreams/crm/customers/{path}", {"city": "Ulm"}, x_fence_token=str(lock["token"]))

    for _ in range(5):
        forward(lock, "7").must(200)
    one.release(lock)
    for _ in range(2):
        lock = one.lock("crm:7")
        small.answers.clear()
        small.waits.clear()
        sending = in_the_background(forward, lock, "7")
        if not small.waits.wait(HANGS_S):
            raise Failed("nothing was forwarded")
        one.release(lock)
        waiting = in_the_background(lambda: one.release(one.lock("crm:7", wait="50s")))
        # A rate needs a scrape between two of them.
        scraped()
        small.answers.set()
        for thread in [sending, waiting]:
            thread.join()
    lock = one.lock("crm:8", ttl="10m")
    for _ in range(2):
        forward(lock, "8/lost").must(502)


def signed(lock: dict, method: str, path: str, body: bytes = b"") -> tuple[tuple[str, int], dict[str, str]]:
    """Where the S3 listener is, and the headers of a request that is signed with version 4."""
    s3 = lock["s3"]
    host = s3["endpoint"].removeprefix("http://")
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": now}
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"{method}\n{quote(path)}\n\n{lines}\n{names}\n{digest}"
    scope = f"{now[:8]}/{s3['region']}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = b"AWS4" + s3["secret_access_key"].encode()
    for part in [*scope.split("/"), text]:
        key = hmac.digest(key, part.encode(), "sha256")
    credential = (
        f"AWS4-HMAC-SHA256 Credential={s3['access_key_id']}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
    )
    name, _, port = host.partition(":")
    return (name, int(port)), headers | {"authorization": credential}


def s3(one: Caller, root: bytes, scraped: Callable[[], None]) -> None:
    """S3 tools under a lock, one that comes late, and one whose lock was lost."""
    one.call("PUT", "/buckets/lake", {"depth": 1}).must(200, 201)
    lock = one.lock("lake:orders")

    def send(method: str, body: bytes = b"") -> Answer:
        address, headers = signed(lock, method, "/lake/orders/total.txt", body)
        return call(address, method, "/lake/orders/total.txt", body, headers)

    for _ in range(4):
        send("PUT", b"total: 110").must(200)
        send("GET").must(200)
        # A rate needs a scrape between two of them.
        scraped()
    one.release(lock)
    send("PUT", b"late").must(403)
    # As the newest holder does whose grant was lost when the ledger was put back.
    lock = {"s3": lock["s3"] | s3_key_of(root, int(lock["token"]) + 2**20)}
    send("GET").must(403)


def s3_key_of(root: bytes, token: int) -> dict[str, str]:
    """The S3 key of a lock that was lost, under this token."""

    def mac(key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, "sha256")

    def derived(purpose: str) -> bytes:
        return mac(root, f"fencegate s3 {purpose}".encode())

    named = token.to_bytes(8, "big") + uuid.uuid4().bytes
    tag = mac(derived("lock tag"), named)[:8]
    stream = mac(derived("lock stream"), tag)
    ciphered = bytes(one ^ other for one, other in zip(named, stream, strict=False))
    key = "FG1" + base64.b32encode(tag + ciphered).decode().rstrip("=")
    secret = base64.urlsafe_b64encode(mac(derived("secret"), key.encode())).decode().rstrip("=")
    return {"access_key_id": key, "secret_access_key": secret}


def jobs(address: tuple[str, int], home: Path) -> Callable[[], None]:
    """A job that succeeds, one that fails over and over, one that is under way, and one whose runner is killed. Returns what
    ends the one that is under way."""

    def run(name: str, *args: str) -> Program:
        url = f"--url=http://{address[0]}:{address[1]}"
        return Program(f"job-{name}", [FENCE, url, "job", "run", name, *args], home)

    def ends(program: Program, *codes: int) -> None:
        program.start()
        if program.process and program.process.wait(HANGS_S) not in codes:
            raise Failed(f"{program.name} ended otherwise: {program.tail()}")

    ends(run("nightly", "--every=1h", "--", "true"), 0)
    for _ in range(3):
        ends(run("import", "--", "false"), 1)
    lost, long = run("lost", "--ttl=2s", "--", "sleep", "60"), run("long", "--", "sleep", "600")
    for program in [lost, long]:
        program.start()
    # Its lock is held before its record is written.
    one = Caller(address)
    eventually("both jobs run", lambda: [one.get(f"job:{name}", "state.json").must(200) for name in ["lost", "long"]])
    lost.stop(signal.SIGKILL)
    return long.stop


def connection_without_a_request(one: Caller) -> socket.socket:
    """A connection that the gateway closes after a while."""
    return socket.create_connection(one.address)


RULES = """
[[roles]]
name = "worker"
allow = ["lock", "write", "read", "list"]
resources = ["*"]

[[roles]]
name = "slow"
allow = ["lock"]
resources = ["*"]
rate = 1
burst = 1

[[roles]]
name = "prometheus"
allow = ["observe"]
resources = ["*"]

[[roles]]
name = "admin"
allow = ["admin"]
resources = ["*"]
"""


def key_of(name: str) -> tuple[str, str]:
    """A key, and the principal of it for the rules; each has the role of its own name."""
    made = subprocess.run([GATEWAY, "keys", "new", "--expires", "1h"], capture_output=True, text=True, check=True)
    key, line = made.stdout.splitlines()[:2]
    return key, f'[[principals]]\nname = "{name}-1"\nroles = ["{name}"]\nkeys = [{line}]\n\n'


def access(
    workers: Caller, slow: Caller, stranger: Caller, files: Path, gateway: Program, seen: Callable[[str], object]
) -> None:
    """Callers that the rules let in, refuse and hold back; connections and files that TLS cannot use."""
    lock = workers.lock("shared", ttl="60s")
    for number in range(10):
        workers.put(lock, "k", f"write {number}".encode()).must(200, 201)
    workers.call("POST", "/resources/shared/freeze", {"reason": "it may not"}).must(403)
    # The audit counts strangers by their address, up to 256 of them within a minute.
    for number in range(300):
        stranger.source = (f"127.1.{number // 100}.{number % 100 + 1}", 0)
        stranger.call("GET", "/resources/shared").must(401)
    stranger.source = None
    if not any(slow.call("POST", "/locks", {"resource": f"s:{n}", "owner": "slow"}).status == 429 for n in range(20)):
        raise Failed("a principal beyond its rate was not held back")
    # What is no TLS.
    with socket.create_connection(workers.address) as plain:
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        plain.recv(1000)
    good = (files / "tls.key").read_bytes()
    (files / "tls.key").write_text("no key")
    if gateway.process:
        gateway.process.send_signal(signal.SIGHUP)
    eventually("the key is refused", lambda: seen("fencegate_tls_reload_failures_total"))
    (files / "tls.key").write_bytes(good)
    if gateway.process:
        gateway.process.send_signal(signal.SIGHUP)


def disasters(workers: Caller, stranger: Caller, postgres: Postgres, etcd: Etcd, seen: Callable[[str], object]) -> None:
    """Commits wait for a standby that is away; etcd is wiped; Postgres is put back to an older copy, and then comes back on
    a new timeline that has lost nothing.

    `seen(NAME)` says whether the gateway counts something. Meanwhile late writers and strangers go on calling: what is to be
    written down of them cannot be while Postgres is away."""
    early = workers.lock("late", ttl="1s")
    time.sleep(1.2)
    workers.lock("late")
    workers.put(early, "k", b"late").must(412)
    held = workers.lock("held", ttl="5m")
    calls = [
        lambda: workers.put(early, "k", b"late"),
        lambda: workers.put(held, "k", b"in time"),
        lambda: workers.renew(held),
        lambda: stranger.call("GET", "/resources/shared"),
    ]
    stop = threading.Event()

    def go_on() -> None:
        while not stop.is_set():
            for one in calls:
                with contextlib.suppress(OSError, Failed):
                    one()
            time.sleep(0.01)

    def granted(what: str) -> None:
        eventually(f"a lock is granted {what}", lambda: workers.lock(f"after:{uuid.uuid4()}"))

    def more_is_witnessed() -> None:
        """Waits until the witness in etcd has seen what was written just now, and not only what the copy has."""
        before = etcd.witnessed()
        # One of them may have been under way.
        eventually("the witness sees more", lambda: etcd.witnessed() > before)
        after = etcd.witnessed()
        eventually("and more", lambda: etcd.witnessed() > after)

    callers = [in_the_background(go_on) for _ in range(2)]
    try:
        postgres.wait_for_standby("nobody")
        for metric in [
            'fencegate_writes_total{outcome="unknown"}',
            'fencegate_renew_failures_total{reason!~"lock-.*"}',
        ]:
            eventually(f"{metric} counts", lambda metric=metric: seen(metric))
        postgres.wait_for_standby("")
        granted("once nothing is waited for")
        etcd.wipe()
        granted("by the new etcd")
        # Or nothing would tell that the server of the ledger, started anew, has lost nothing.
        more_is_witnessed()
        postgres.stop()
        postgres.back_up()
        postgres.start()
        granted("by the ledger again")
        more_is_witnessed()
        postgres.stop()
        postgres.restore()
        postgres.start()
        granted("after the re-fence")
        eventually("the gateway has re-fenced", lambda: seen("fencegate_refences_total"))
        more_is_witnessed()
        postgres.stop()
        postgres.promote()
        granted("after the new timeline")
        eventually("the gateway has adopted the new timeline", lambda: seen("fencegate_adoptions_total"))
    finally:
        stop.set()
        for thread in callers:
            thread.join()
