"""The settings of a client (CC1, CC2): checked when it is made, so that nothing wrong is ever sent."""

from __future__ import annotations

import os
import re
import secrets
import socket
import ssl
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypedDict

from . import errors
from ._core import names
from ._core.durations import Duration, setting_ms, ttl_ms
from ._core.urls import Urls
from ._credential import Ask, Credential
from ._hooks import Hook, Hooks
from ._options import checked_function, checked_options
from ._version import VERSION

# Headers that the client sets itself.
_OURS = frozenset(
    """authorization connection content-digest content-length content-type expect host idempotency-key if-match
    if-none-match if-range last-event-id range repr-digest te traceparent transfer-encoding upgrade user-agent
    x-fence-key-kept x-fence-seq x-fence-token x-lock-id x-request-id""".split()
)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t -~]*")
_TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


class Options(TypedDict, total=False):
    """What a client can be told beside its URLs."""

    owner: str | None
    ttl: Duration | Literal["infinite"]
    auth: str | Ask | None
    auth_file: str | os.PathLike[str] | None
    headers: Mapping[str, str] | None
    connect_timeout: Duration
    answer_timeout: Duration
    idle_timeout: Duration
    call_timeout: Duration
    write_timeout: Duration
    retries: bool
    ca_file: str | os.PathLike[str] | None
    cert_file: str | os.PathLike[str] | None
    key_file: str | os.PathLike[str] | None
    on_event: Hook | None
    traceparent: Callable[[], str | None] | None


@dataclass(slots=True)
class Settings:
    """The settings, checked. Times are in milliseconds."""

    urls: Urls
    owner: str | None
    """What the caller calls itself; None: as `default_owner` does."""
    ttl_ms: int | None
    credential: Credential | None
    headers: list[tuple[bytes, bytes]]
    connect_ms: int
    head_ms: int
    idle_ms: int
    call_ms: int
    write_ms: int
    retries: bool
    hooks: Hooks
    traceparent: Callable[[], str | None] | None
    ca_file: str | None
    certificate: tuple[str, str] | None

    def tls(self) -> ssl.SSLContext:
        """How TLS is spoken with the gateways."""
        if not any(base.is_tls for base in self.urls.all):
            # Nothing is encrypted, so that nobody needs the certificates of the machine.
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context = ssl.create_default_context()
            if self.ca_file is not None:
                context.load_verify_locations(self.ca_file)
            if self.certificate is not None:
                context.load_cert_chain(*self.certificate)
        except (OSError, ssl.SSLError) as error:
            raise errors.Denied(f"no certificates: {error}") from error
        return context


def settings_of(url: str | Sequence[str], options: Options) -> Settings:
    """Checks what a caller wants of a client."""
    checked_options("a client", options, Options)
    for name in ("on_event", "traceparent"):
        if options.get(name) is not None:
            checked_function(name, options.get(name))
    urls = [part for part in url.split(",") if part.strip()] if isinstance(url, str) else list(url)
    owner = options.get("owner")
    auth, auth_file = options.get("auth"), options.get("auth_file")
    if auth is not None and auth_file is not None:
        raise errors.Misuse("auth and auth_file: one of them")
    credential = None
    if isinstance(auth, str):
        credential = Credential(auth, None, None)
    elif auth is not None:
        checked_function("auth, which is no text,", auth)
        credential = Credential(None, None, auth)
    elif auth_file is not None:
        credential = Credential(None, Path(auth_file), None)
    cert_file, key_file = options.get("cert_file"), options.get("key_file")
    if (cert_file is None) != (key_file is None):
        raise errors.Misuse("cert_file and key_file: both or none")
    ca_file = options.get("ca_file")
    for path in (ca_file, cert_file, key_file):
        if path is not None:
            _must_be_readable(path)
    return Settings(
        urls=Urls(urls),
        owner=None if owner is None else names.checked_owner(owner),
        ttl_ms=ttl_ms(options.get("ttl", "30s")),
        credential=credential,
        headers=_headers(options.get("headers") or {}),
        connect_ms=setting_ms(options.get("connect_timeout", "3s"), "connect_timeout"),
        head_ms=setting_ms(options.get("answer_timeout", "15s"), "answer_timeout"),
        idle_ms=setting_ms(options.get("idle_timeout", "30s"), "idle_timeout"),
        call_ms=setting_ms(options.get("call_timeout", "30s"), "call_timeout"),
        write_ms=setting_ms(options.get("write_timeout", "60s"), "write_timeout"),
        retries=options.get("retries", True),
        hooks=Hooks(options.get("on_event")),
        traceparent=options.get("traceparent"),
        ca_file=None if ca_file is None else os.fspath(ca_file),
        certificate=None if cert_file is None or key_file is None else (os.fspath(cert_file), os.fspath(key_file)),
    )


def of_environment(options: Options) -> tuple[str, Options]:
    """What the environment says, under what the caller says."""
    url = _variable("FENCE_URL")
    if url is None:
        raise errors.Misuse("FENCE_URL is not set: where is the gateway?")
    found: Options = {}
    if (owner := _variable("FENCE_OWNER")) is not None:
        found["owner"] = owner
    token, token_file = _variable("FENCE_AUTH_TOKEN"), _variable("FENCE_AUTH_TOKEN_FILE")
    if token is not None and token_file is not None:
        raise errors.Misuse("FENCE_AUTH_TOKEN and FENCE_AUTH_TOKEN_FILE: one of them")
    if "auth" not in options and "auth_file" not in options:
        if token is not None:
            found["auth"] = token
        if token_file is not None:
            found["auth_file"] = token_file
    if (ca_file := _variable("FENCE_CA_FILE")) is not None:
        found["ca_file"] = ca_file
    if (cert_file := _variable("FENCE_CERT_FILE")) is not None:
        found["cert_file"] = cert_file
    if (key_file := _variable("FENCE_KEY_FILE")) is not None:
        found["key_file"] = key_file
    if (trace := _variable("TRACEPARENT")) is not None and _TRACEPARENT.fullmatch(trace):
        found["traceparent"] = lambda: trace
    found.update(options)
    return url, found


def default_owner() -> str:
    """`<host name>:<process id>:<8 hexadecimal digits>`, at most 256 bytes, without control characters."""
    host = "".join(character for character in socket.gethostname() if unicodedata.category(character) != "Cc")
    tail = f":{os.getpid()}:{secrets.token_hex(4)}"
    room = names.OWNER_BYTES_MAX - len(tail)
    return host.encode("utf-8", "replace")[:room].decode("utf-8", "ignore") + tail


def user_agent() -> bytes:
    """What each request says of this library."""
    runtime = sys.implementation
    version = ".".join(str(part) for part in runtime.version[:2])
    return f"fencegate-python/{VERSION} ({runtime.name} {version})".encode()


def _variable(name: str) -> str | None:
    return os.environ.get(name) or None


def _must_be_readable(path: str | os.PathLike[str]) -> None:
    try:
        is_empty = not Path(path).read_bytes().strip()
    except OSError as error:
        raise errors.Denied(f"cannot read {os.fspath(path)}: {error}") from error
    if is_empty:
        raise errors.Denied(f"{os.fspath(path)} is empty")


def _headers(named: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    headers: list[tuple[bytes, bytes]] = []
    for name, value in named.items():
        if not _HEADER_NAME.fullmatch(name):
            raise errors.Misuse(f"the header {name!r} has a name that is none")
        if name.lower() in _OURS:
            raise errors.Misuse(f"the header {name!r} is set by the client itself")
        if not _HEADER_VALUE.fullmatch(value):
            raise errors.Misuse(f"the header {name!r} has a value that is none")
        headers.append((name.encode(), value.encode()))
    return headers
