"""Names that callers give (CC4), checked by the gateway's rules before anything is sent; never repaired."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from urllib.parse import quote

from ..errors import Misuse

_RESOURCE = re.compile(r"[A-Za-z0-9._~\-:@#+=,]+")
_PRINCIPAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9._~-]+")
_IDEMPOTENCY_KEY = re.compile(r"[!-~]{1,255}")
_CONTENT_TYPE = re.compile(r"[ -~]{1,255}")
_TAGS = re.compile(r'\*|"[ -~]+"')
# Control, format, surrogate, unassigned, and what separates lines and paragraphs.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"})

RESOURCE_BYTES_MAX = 256
KEY_BYTES_MAX = 1_024
OWNER_BYTES_MAX = 256
REASON_BYTES_MAX = 1_024
RESOURCES_MAX = 32
WRITERS_MAX = 16


class NameProblem(StrEnum):
    """Why a name is none."""

    LENGTH = "length"
    ALPHABET = "alphabet"
    DOTS = "dots"
    EMPTY_SEGMENT = "empty-segment"
    CONTROL = "control"
    NOT_NFC = "not-nfc"


_WHY = {
    NameProblem.LENGTH: "it is empty or too long",
    NameProblem.ALPHABET: "a resource name holds only A-Z a-z 0-9 . _ ~ - : @ # + = , and no slash",
    NameProblem.DOTS: "'.' and '..' are not names",
    NameProblem.EMPTY_SEGMENT: "a key has no empty segment: no slash at its ends and no two in a row",
    NameProblem.CONTROL: "a key has no control or format characters",
    NameProblem.NOT_NFC: "a key must be in Unicode normalisation form C (NFC)",
}


def resource_problem(name: str) -> NameProblem | None:
    """What is wrong with the name of a resource."""
    if not name or len(name.encode("utf-8", "surrogatepass")) > RESOURCE_BYTES_MAX:
        return NameProblem.LENGTH
    if not _RESOURCE.fullmatch(name):
        return NameProblem.ALPHABET
    return NameProblem.DOTS if name in (".", "..") else None


def key_problem(key: str) -> NameProblem | None:
    """What is wrong with the key of an object."""
    if not key or len(key.encode("utf-8", "surrogatepass")) > KEY_BYTES_MAX:
        return NameProblem.LENGTH
    if any(unicodedata.category(character) in _HIDDEN for character in key):
        return NameProblem.CONTROL
    for segment in key.split("/"):
        if not segment:
            return NameProblem.EMPTY_SEGMENT
        if segment in (".", ".."):
            return NameProblem.DOTS
    return None if unicodedata.is_normalized("NFC", key) else NameProblem.NOT_NFC


@lru_cache(maxsize=4_096)
def resource_path(name: str) -> str:
    """The path of a resource, encoded. Raises `Misuse` for a name that is none."""
    _must_be_text(name, "the name of a resource")
    problem = resource_problem(name)
    if problem is not None:
        raise Misuse(f"The resource name is not allowed: {name!r}: {_WHY[problem]}")
    return "/resources/" + quote(name, safe="")


@lru_cache(maxsize=4_096)
def key_path(key: str) -> str:
    """The key of an object as the end of a path, encoded. Raises `Misuse` for a key that is none."""
    _must_be_text(key, "the key of an object")
    if _PLAIN_KEY.fullmatch(key) and len(key) <= KEY_BYTES_MAX and key not in (".", ".."):
        return key
    problem = key_problem(key)
    if problem is not None:
        raise Misuse(f"The object key is not allowed: {key!r}: {_WHY[problem]}")
    return quote(key, safe="/")


def object_path(resource: str, key: str) -> str:
    """The path of an object, encoded."""
    return f"{resource_path(resource)}/objects/{key_path(key)}"


def query(parameters: Iterable[tuple[str, str | None]]) -> str:
    """A query: `?a=b&c=d`, or nothing. Parameters without a value are left out."""
    pairs = [f"{name}={quote(value, safe='')}" for name, value in parameters if value is not None]
    return "?" + "&".join(pairs) if pairs else ""


def segment(text: str) -> str:
    """Text as one segment of a path."""
    return quote(text, safe="")


def checked_resources(names: str | Iterable[str]) -> tuple[str, ...]:
    """The resources of a lock, checked, in byte order."""
    chosen = (names,) if isinstance(names, str) else tuple(names)
    if not 1 <= len(chosen) <= RESOURCES_MAX:
        raise Misuse(f"a lock is on 1 to {RESOURCES_MAX} resources")
    for name in chosen:
        resource_path(name)
    if len(set(chosen)) != len(chosen):
        raise Misuse("each resource may be named only once")
    return tuple(sorted(chosen))


def checked_owner(owner: str) -> str:
    """What a holder calls itself: at most 256 bytes, without control characters."""
    _must_be_text(owner, "an owner")
    if len(_encoded(owner, "an owner")) > OWNER_BYTES_MAX:
        raise Misuse(f"an owner has at most {OWNER_BYTES_MAX} bytes")
    if _has_controls(owner):
        raise Misuse("an owner has no control characters")
    return owner


def checked_reason(reason: str) -> str:
    """An operator's words: 1 to 1,024 bytes, without control characters."""
    _must_be_text(reason, "a reason")
    if not reason or len(_encoded(reason, "a reason")) > REASON_BYTES_MAX or _has_controls(reason):
        raise Misuse(f"a reason has 1 to {REASON_BYTES_MAX} bytes and no control characters")
    return reason


def checked_principal(name: str) -> str:
    """The name of a principal."""
    _must_be_text(name, "the name of a principal")
    if not _PRINCIPAL.fullmatch(name) or name.startswith("role:"):
        raise Misuse(f"{name!r} is no name of a principal: 1 to 128 of A-Z a-z 0-9 . _ : / @ -, not role:...")
    return name


def checked_writers(writers: Iterable[str]) -> tuple[str, ...]:
    """Who else may write under a lock: principals, and roles as `role:NAME`; at most 16."""
    chosen = (writers,) if isinstance(writers, str) else tuple(writers)
    if len(chosen) > WRITERS_MAX:
        raise Misuse(f"a lock has at most {WRITERS_MAX} writers")
    for writer in chosen:
        _must_be_text(writer, "a writer")
        checked_principal(writer.removeprefix("role:"))
    return chosen


def checked_metadata(metadata: dict[str, str]) -> dict[str, str]:
    """A few words on a lock, which are text."""
    for name, value in metadata.items():
        _must_be_text(name, "the name of metadata")
        _must_be_text(value, "a value of metadata")
    return dict(metadata)


def checked_key(key: str) -> str:
    """An idempotency key: 1 to 255 visible ASCII characters."""
    _must_be_text(key, "an idempotency key")
    if not _IDEMPOTENCY_KEY.fullmatch(key):
        raise Misuse("an idempotency key has 1 to 255 visible ASCII characters")
    return key


def checked_tags(tags: str) -> str:
    """The tags of a condition: `*`, or tags in quotes."""
    _must_be_text(tags, "an entity tag")
    if not _TAGS.fullmatch(tags):
        raise Misuse(f'{tags!r} is no entity tag such as "g0-v17"')
    return tags


def checked_content_type(content_type: str) -> str:
    """A content type: 1 to 255 visible ASCII characters and spaces."""
    _must_be_text(content_type, "a content type")
    if not _CONTENT_TYPE.fullmatch(content_type):
        raise Misuse("a content type has 1 to 255 visible ASCII characters and spaces")
    return content_type


def checked_version(version: int, least: int = 0) -> int:
    """The version of a resource."""
    if isinstance(version, bool) or not isinstance(version, int) or not least <= version < 2**63:
        raise Misuse(f"a version is a number, {least} or more")
    return version


def _must_be_text(value: object, what: str) -> None:
    if not isinstance(value, str):
        raise Misuse(f"{what} is text, not {type(value).__name__}")


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Misuse(f"{what} is no text in UTF-8") from None


def _has_controls(text: str) -> bool:
    return any(unicodedata.category(character) == "Cc" for character in text)
