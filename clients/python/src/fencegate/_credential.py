"""What a client shows in `Authorization` (CC1): a fixed text, a file that may be replaced, or what a function gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

from .errors import Denied, Misuse

Ask: TypeAlias = Callable[[], str] | Callable[[], Awaitable[str]]

ASKED_WITHIN_S = 15.0
"""How long a function may take that gives the credential."""
_FILE_BYTES_MAX = 64 << 10


class Credential:
    """A bearer token, asked for before each attempt, and once again after a 401."""

    __slots__ = ("_fixed", "_path", "ask")

    def __init__(self, token: str | None, path: Path | None, ask: Ask | None) -> None:
        self._fixed = None if token is None else bearer(token, Misuse)
        self._path = path
        self.ask: Ask | None = ask
        """The function to ask, if there is one."""

    def __repr__(self) -> str:
        return "Credential(...)"

    def header(self) -> bytes | None:
        """The header's value, if no function has to be asked for it. Raises `Denied` if the file is not good."""
        if self._fixed is not None or self._path is None:
            return self._fixed
        try:
            with self._path.open("rb") as file:
                text = file.read(_FILE_BYTES_MAX).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Denied(f"cannot read {self._path}: {error}") from error
        if not text:
            # As of a file that is being replaced piece by piece: it says nothing yet.
            raise Denied(f"{self._path} is empty")
        return bearer(text, Denied)


def bearer(token: object, wrong: type[Misuse] | type[Denied]) -> bytes:
    """The header's value for a token."""
    if not isinstance(token, str) or not token or any(not "!" <= character <= "~" for character in token):
        raise wrong("the credential holds what a header cannot")
    return b"Bearer " + token.encode()
