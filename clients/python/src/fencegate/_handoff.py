"""A lock on its way to its successor (CC50), as one line of text for a message."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass

from ._core import names
from ._json import items, members
from .errors import Misuse

_PREFIX = "fence1:"
_BYTES_MAX = 64 << 10


@dataclass(frozen=True, slots=True)
class Handoff:
    """A lock on its way to its successor. Whoever reads it can take the lock: treat it as a secret."""

    id: str
    """The id of the successor's lock."""
    token: str
    resources: tuple[str, ...]
    owner: str
    """What the successor is called."""
    principal: str | None = None
    """The principal whose it is, where rules of access are in force: nobody else can take it up."""

    def __repr__(self) -> str:
        return f"Handoff(resources={self.resources!r}, owner={self.owner!r})"

    def to_text(self) -> str:
        """One line of text, for a message."""
        document: dict[str, object] = {
            "id": self.id,
            "token": self.token,
            "resources": list(self.resources),
            "owner": self.owner,
        }
        if self.principal is not None:
            document["principal"] = self.principal
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        return _PREFIX + base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def from_text(cls, text: str) -> Handoff:
        """Reads that line. Raises `Misuse` if it is none."""
        line = text.strip()
        if not line.startswith(_PREFIX) or len(line) > _BYTES_MAX:
            raise _none()
        coded = line.removeprefix(_PREFIX)
        try:
            said = members(json.loads(base64.b64decode(coded + "=" * (-len(coded) % 4), altchars=b"-_", validate=True)))
        except (ValueError, binascii.Error):
            raise _none() from None
        texts = [said.get(name) for name in ("id", "token", "owner")]
        resources, principal = items(said.get("resources")), said.get("principal")
        if resources is None or not 1 <= len(resources) <= names.RESOURCES_MAX:
            raise _none()
        if not all(isinstance(text, str) for text in [*texts, *resources, principal or ""]):
            raise _none()
        return cls(said["id"], said["token"], tuple(resources), said["owner"], principal)


def _none() -> Misuse:
    return Misuse("a handoff is one line that begins with fence1:")
