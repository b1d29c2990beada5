"""The library and the gateway's description of its API say the same: schemas, words, codes, and calls."""

from __future__ import annotations

import dataclasses
import types
import typing
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import yaml

from fencegate import (
    AsyncFencegate,
    AsyncLock,
    Written,
)
from fencegate import _wire as wire
from fencegate import _words as words
from fencegate._async import _admin, _client, _lock, _writer
from fencegate._core.classes import CLASS_OF
from fencegate._handoff import Handoff

ROOT = Path(__file__).resolve().parents[1]
API: dict[str, Any] = yaml.load((ROOT.parents[1] / "openapi.yaml").read_text(), yaml.CSafeLoader)
SCHEMAS: dict[str, Any] = API["components"]["schemas"]

RECORDS: dict[str, type] = {
    name: value
    for name, value in vars(wire).items()
    if isinstance(value, type) and dataclasses.is_dataclass(value) and value.__module__ == wire.__name__
} | {"Lock": wire.LockRecord, "Written": Written, "Committed": wire.CommittedResource}
# What the library tells beside what the answer says, or instead of it.
OURS = {
    "Written": {"etag", "created", "replayed", "receipt"},
    "RejectionEntry": set(),
    "Committed": {"resource", "version"},
}
# Members that no caller needs, or that never leave the library.
LEFT_OUT = {
    "RejectionEntry": {"presented_token"},
    # Only the answer that grants a lock has it, and that becomes a guard.
    "Lock": {"s3"},
    "Committed": {"operation", "resources", "results"},
}
WORDS = {
    name: value
    for name, value in vars(words).items()
    if isinstance(value, type) and issubclass(value, words.Word) and value is not words.Word
}
# Which calls of the library make which calls of the API.
CALLS: dict[str, object] = {
    "acquireLock": AsyncFencegate.acquire,
    "breakLock": _admin.AsyncAdmin.break_lock,
    "commit": _writer.AsyncWriter.commit,
    "deleteObject": _writer.AsyncWriter.delete,
    "deleteResource": _writer.AsyncWriter.delete_all,
    "deleteUpstream": _writer.AsyncWriter.upstream,
    "findOperations": AsyncFencegate.operation_by_key,
    "freezeResource": _admin.AsyncAdmin.freeze,
    "getLock": AsyncFencegate.lock_record,
    "getLockS3Key": AsyncFencegate.s3_access,
    "getObject": AsyncFencegate.open,
    "getOperation": AsyncFencegate.operation,
    "getResource": AsyncFencegate.resource,
    "headObject": AsyncFencegate.head,
    "listAudit": _admin.AsyncAdmin.audit,
    "listEvents": AsyncFencegate.events,
    "listIntents": _admin.AsyncAdmin.intents,
    "listLocks": AsyncFencegate.locks,
    "listObjects": AsyncFencegate.list,
    "listRejections": _admin.AsyncAdmin.rejections,
    "listResources": AsyncFencegate.resources,
    "listVersions": AsyncFencegate.versions,
    "listWaiters": AsyncFencegate.waiters,
    "patchUpstream": _writer.AsyncWriter.upstream,
    "postUpstream": _writer.AsyncWriter.upstream,
    "protectResource": _admin.AsyncAdmin.protect,
    "putObject": _writer.AsyncWriter.put,
    "putUpstream": _writer.AsyncWriter.upstream,
    "readiness": AsyncFencegate.ready,
    "releaseLock": AsyncLock.release,
    "renewLock": AsyncLock.renew,
    "renewLocks": _lock.AsyncLock,
    "resolveDoubts": _admin.AsyncAdmin.resolve_doubts,
    "resolveIntent": _admin.AsyncAdmin.resolve_intent,
    "setFence": AsyncFencegate.fence,
    "status": AsyncFencegate.status,
    "transferLock": AsyncLock.transfer,
    "unfreezeResource": _admin.AsyncAdmin.unfreeze,
    "unprotectResource": _admin.AsyncAdmin.unprotect,
    "watchLock": _client.LockOptions,
}


def _not_covered(kind: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in (ROOT / "tests" / "not-covered.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            what, name, reason = line.split(maxsplit=2)
            assert reason and f"{what} {name}" not in found, line
            if what == kind:
                found[name] = reason
    return found


def test_every_schema_is_covered_or_has_a_reason() -> None:
    covered = set(RECORDS) - {"LockRecord"} | set(WORDS) | {"ErrorCode"}
    left = _not_covered("schema")
    assert not covered & left.keys()
    assert covered | left.keys() == SCHEMAS.keys()


@pytest.mark.parametrize("name", sorted(RECORDS.keys() - {"LockRecord"}))
def test_records_have_the_members_of_their_schemas(name: str) -> None:
    schema, kind = SCHEMAS[name], RECORDS[name]
    if name == "Committed":
        schema, name = SCHEMAS["CommittedResource"], "CommittedResource"
    hints = typing.get_type_hints(kind)
    members = {one.name: one for one in dataclasses.fields(kind)}
    expected = schema["properties"].keys() - LEFT_OUT.get(name, set())
    assert members.keys() - OURS.get(name, set()) == expected
    for member in expected:
        described = schema["properties"][member]
        assert _fits(hints[member], described), f"{name}.{member}: {hints[member]} is not {described}"
        is_required = members[member].default is dataclasses.MISSING
        assert not is_required or member in schema["required"], f"{name}.{member} may be absent"


def _fits(hint: Any, described: dict[str, Any]) -> bool:
    """Whether a value of this schema is one of this type."""
    alternatives = described.get("oneOf") or described.get("anyOf") or [described]
    kinds = set(typing.get_args(hint)) if typing.get_origin(hint) is types.UnionType else {hint}
    return all(_one_fits(kinds, one) for one in alternatives)


def _one_fits(kinds: set[Any], described: dict[str, Any]) -> bool:
    if "$ref" in described:
        name = described["$ref"].rpartition("/")[2]
        if name in WORDS:
            return WORDS[name] in kinds
        if name in RECORDS:
            return RECORDS[name] in kinds
        return _fits(_union(kinds), SCHEMAS[name])
    stated = described.get("type")
    named = stated if isinstance(stated, list) else [stated]
    return all(_is_of(kinds, one, described) for one in named)


def _union(kinds: set[Any]) -> Any:
    union, *others = kinds
    for one in others:
        union = union | one
    return union


def _is_of(kinds: set[Any], stated: str, described: dict[str, Any]) -> bool:
    if stated == "null":
        return types.NoneType in kinds
    if stated == "string":
        return (datetime if described.get("format") == "date-time" else str) in kinds
    if stated in ("integer", "boolean"):
        return {"integer": int, "boolean": bool}[stated] in kinds
    if stated == "array":
        inner = next(typing.get_args(kind)[0] for kind in kinds if typing.get_origin(kind) is tuple)
        return _fits(inner, described["items"])
    if stated == "object":
        return any(typing.get_origin(kind) is dict for kind in kinds)
    raise AssertionError(described)


@pytest.mark.parametrize("name", sorted(WORDS))
def test_words_are_those_of_their_schemas(name: str) -> None:
    kind = WORDS[name]
    assert issubclass(kind, Enum)
    assert [word.value for word in kind] == SCHEMAS[name]["enum"]
    new = kind("a-new-word")
    assert isinstance(new, kind) and new == "a-new-word" and str(new) == "a-new-word"


def test_every_code_has_a_class() -> None:
    assert CLASS_OF.keys() == set(SCHEMAS["ErrorCode"]["enum"])


def test_every_call_is_made_or_has_a_reason() -> None:
    described = {
        operation["operationId"]
        for path in API["paths"].values()
        for method, operation in path.items()
        if method != "parameters"
    }
    left = _not_covered("call")
    assert not CALLS.keys() & left.keys()
    assert CALLS.keys() | left.keys() == described


# What the library says in requests, and where: none may have a member that the gateway refuses.
SAID = {
    "AcquireRequest": {
        "id", "max_hold", "metadata", "only_if_exists", "owner", "resource", "resources", "ttl", "wait", "writers"
    },
    "BreakRequest": {"after", "reason"},
    "CommitOperation": {"op", "resource", "key", "body", "content_type", "if_match", "if_none_match"},
    "CommitRequest": {"operations", "versions"},
    "FenceRequest": {"force", "id", "order", "owner"},
    "MarkRequest": {"reason"},
    "RenewManyRequest": {"ids", "ttl"},
    "RenewRequest": {"ttl"},
    "ResolveDoubtsRequest": {"reason", "upstream"},
    "TransferRequest": {"id", "owner", "principal"},
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(SAID))
def test_requests_have_the_members_of_their_schemas(name: str) -> None:
    assert SCHEMAS[name]["properties"].keys() == SAID[name]
    assert SCHEMAS[name]["additionalProperties"] is False


def test_a_handoff_is_part_of_a_lock() -> None:
    assert {one.name for one in dataclasses.fields(Handoff)} <= SCHEMAS["Lock"]["properties"].keys()
