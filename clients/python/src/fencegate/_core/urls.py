"""Which of the gateways is asked (CC3): the first that has not failed in the last half minute."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from ..errors import Misuse

_AVOIDED_MS = 30_000
"""How long a gateway that failed is left alone, if there are others."""
_MOST = 64


@dataclass(frozen=True, slots=True)
class Base:
    """A base URL, without a slash at its end."""

    place: int
    text: str
    host: str
    is_tls: bool
    is_loopback: bool
    host_header: bytes


class Urls:
    """All base URLs of a client, and which of them failed."""

    __slots__ = ("_avoided_until_ms", "all")

    def __init__(self, urls: Sequence[str]) -> None:
        if not 1 <= len(urls) <= _MOST:
            raise Misuse(f"a client needs 1 to {_MOST} base URLs")
        self.all: list[Base] = [_parsed(place, url) for place, url in enumerate(urls)]
        self._avoided_until_ms = [0] * len(self.all)

    def current(self, now_ms: int) -> Base:
        """The gateway to ask now. If all have failed, it is the one that did so longest ago."""
        if len(self.all) == 1:
            return self.all[0]
        for base, until_ms in zip(self.all, self._avoided_until_ms, strict=True):
            if until_ms <= now_ms:
                return base
        return min(self.all, key=lambda base: self._avoided_until_ms[base.place])

    def avoid(self, base: Base, now_ms: int) -> None:
        """It failed: the next one is asked."""
        self._avoided_until_ms[base.place] = now_ms + _AVOIDED_MS


def _parsed(place: int, url: str) -> Base:
    # What holds an @ may hold a password.
    shown = "it" if "@" in str(url) else repr(url)

    def wrong(why: str) -> Misuse:
        return Misuse(f"{shown} is no base URL: {why}")

    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except (ValueError, AttributeError) as error:
        raise wrong(str(error)) from None
    if parts.scheme not in ("http", "https") or not host or not host.isascii():
        raise wrong("it begins with http:// or https:// and a host")
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise wrong("it has no query and no fragment")
    if parts.username is not None or parts.password is not None:
        raise wrong("credentials have a setting of their own")
    if any(character <= " " or character > "~" for character in parts.path):
        raise wrong("its path is visible ASCII")
    named = f"[{host}]" if ":" in host else host
    is_usual = port is None or port == (443 if parts.scheme == "https" else 80)
    authority = named if is_usual else f"{named}:{port}"
    text = f"{parts.scheme}://{authority}{parts.path}".rstrip("/")
    return Base(place, text, host, parts.scheme == "https", _is_loopback(host), authority.encode())


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
