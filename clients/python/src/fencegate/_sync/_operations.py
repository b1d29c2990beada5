# Made by scripts/unasync.py out of ../_async/_operations.py: change that, and run it again.
"""What became of a write, as the ledger has it: by the id of its operation, or by its key (CC24)."""

from __future__ import annotations

from typing import Any, TypeVar

from .. import errors
from .._core import names
from .._json import items, members
from .._request import Request
from .._wire import NotOfThisForm, Operation, decode
from ._caller import Caller

T = TypeVar("T")


def decoded(kind: type[T], value: Any) -> T:
    """An answer as an object. Raises `GatewayFault` if it is not of that form."""
    try:
        return decode(kind, value)
    except NotOfThisForm as error:
        raise errors.GatewayFault(f"an answer that is not the gateway's: {error}") from None


def operation_of_id(caller: Caller, id: str, until_ms: int | None = None) -> Operation | None:
    """The operation with this id; None if the ledger has no record of it, which decides nothing."""
    try:
        found = caller.json("operation", Request("GET", f"/operations/{names.segment(id)}"), until_ms)
    except errors.NotFound as error:
        if error.code == "operation-not-found":
            return None
        raise
    return decoded(Operation, found)


def operation_of_key(caller: Caller, resource: str, key: str, until_ms: int | None = None) -> Operation | None:
    """The operation on the resource that used this key; None if none did, which decides nothing as long as one may be
    under way."""
    query = names.query([("idempotency_key", names.checked_key(key))])
    found = caller.json("operations", Request("GET", f"{names.resource_path(resource)}/operations{query}"), until_ms)
    records = items(members(found).get("items"))
    if records is None:
        raise errors.GatewayFault("an answer that is not the gateway's: no items are in it")
    return decoded(Operation, records[0]) if records else None
