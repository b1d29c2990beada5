"""The body of a commit (CC29): a first part with the list of operations, then the bodies in its order."""

from __future__ import annotations

import json
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a commit, as the list has it."""

    op: str
    resource: str
    key: str
    body: str | None = None
    content_type: str | None = None
    if_match: str | None = None
    if_none_match: str | None = None


def listed(operations: list[Operation], versions: dict[str, int]) -> bytes:
    """The list, as the bytes of the first part: JSON without spaces, members in a fixed order."""
    members = ("op", "resource", "key", "body", "content_type", "if_match", "if_none_match")
    items = [
        {member: value for member in members if (value := getattr(operation, member)) is not None}
        for operation in operations
    ]
    document: dict[str, object] = {"operations": items}
    if versions:
        document["versions"] = dict(sorted(versions.items()))
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def head(boundary: str, is_first: bool, name: str, content_type: str, digest: str | None) -> bytes:
    """The head of a part, with the boundary before it."""
    begin = "" if is_first else "\r\n"
    shown = "" if digest is None else f"\r\nRepr-Digest: {digest}"
    return (
        f'{begin}--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n'
        f"Content-Type: {content_type}{shown}\r\n\r\n"
    ).encode()


def tail(boundary: str) -> bytes:
    """What follows the last part."""
    return f"\r\n--{boundary}--\r\n".encode()


def content_type(boundary: str) -> str:
    """The content type of the whole."""
    return f"multipart/form-data; boundary={boundary}"
