"""Real gateways on other ways than plain HTTP: TLS, and upstreams behind them."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fencegate import Fencegate, LockLost, Misuse, OutcomeUnknown, Unavailable
from fencegate.testing import Gateway

from .serving import reserved_port


class Service(BaseHTTPRequestHandler):
    """A service behind the gateway: it keeps what it is sent."""

    kept: dict[str, bytes]

    def do_PUT(self) -> None:
        size = int(self.headers["Content-Length"])
        self.kept[self.path] = self.rfile.read(size)
        self.send_response(201)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"kept")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        # It goes away in the midst of its work.
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[ThreadingHTTPServer]:
    Service.kept = {}
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_what_a_guard_sends_to_an_upstream_arrives_once(service: ThreadingHTTPServer) -> None:
    place = f"http://127.0.0.1:{service.server_address[1]}"
    upstream = f"name=crm,url={place},resource=/customers/{{resource}},resource_form=digits,guarantee=drained"
    with Gateway("--upstream", upstream) as gateway, Fencegate(gateway.url) as fg:
        with fg.lock("crm:17") as lock:
            answer = lock.upstream("crm", "PUT", "customers/17", body=b"name=Smith")
            assert (answer.status, answer.body) == (201, b"kept")
            assert answer.operation is not None
            with pytest.raises(Misuse):
                lock.upstream("crm", "GET", "customers/17")
            with pytest.raises(Misuse):
                lock.upstream("crm", "PUT", "../17", body=b"")
        assert Service.kept == {"/customers/17": b"name=Smith"}
        late = fg.acquire("crm:17")
        gateway.take_over("crm:17")
        with pytest.raises(LockLost):
            late.upstream("crm", "PUT", "customers/17", body=b"late")
        assert Service.kept == {"/customers/17": b"name=Smith"}


def test_what_an_upstream_did_is_unknown_if_it_went_away(service: ThreadingHTTPServer) -> None:
    place = f"http://127.0.0.1:{service.server_address[1]}"
    upstream = f"name=crm,url={place},resource=/customers/{{resource}},resource_form=digits,guarantee=drained"
    with Gateway("--upstream", upstream) as gateway, Fencegate(gateway.url) as fg, fg.lock("crm:17") as lock:
        with pytest.raises(OutcomeUnknown) as unknown:
            lock.upstream("crm", "POST", "customers/17", body=b"x")
        with pytest.raises(OutcomeUnknown):
            unknown.value.resolve("300ms")
        (intent,) = fg.admin.intents()
        fg.admin.resolve_intent(intent.operation, "the customer was looked at")


def test_certificates_are_checked(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    make += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    key.chmod(0o600)
    with Gateway("--tls-cert-file", str(certificate), "--tls-key-file", str(key)) as gateway:
        assert gateway.url.startswith("https://")
        with Fencegate(gateway.url, ca_file=certificate) as fg, fg.lock("safe") as lock:
            assert lock.put("k", b"v").created
            lock.renew()
        # What no wait can mend ends a call at once, however long it may go on.
        with Gateway() as plain:
            no_tls = plain.url.replace("http:", "https:")
            said = {
                gateway.url: f"the certificate of {gateway.url} is not trusted",
                no_tls: f"no TLS is spoken at {no_tls}",
            }
            for url, text in said.items():
                with Fencegate(url, call_timeout="1h") as fg, pytest.raises(Unavailable, match=text):
                    fg.get("safe", "k")
        nobody = f"http://127.0.0.1:{reserved_port()}"
        with Fencegate(nobody, call_timeout="300ms") as fg, pytest.raises(Unavailable, match=f"answers at {nobody}"):
            fg.get("safe", "k")
        with Fencegate(gateway.url, call_timeout="300ms") as fg, pytest.raises(Unavailable, match="certificate"):
            fg.get("safe", "k")
