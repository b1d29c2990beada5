"""Work that is done once for each message, however often the message comes (CC42)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from .._core import names
from .._guard.held import Held
from .._wire import Operation
from .._words import OperationOutcome
from ._caller import AsyncCaller
from ._operations import operation_of_key

T = TypeVar("T")


async def once(caller: AsyncCaller, held: Held, key: str, work: Callable[[], Awaitable[T]]) -> T | Operation:
    """Runs the work, unless a write under the key took effect before."""
    names.checked_key(key)
    held.begin_call()
    for resource in held.resources:
        found = await operation_of_key(caller, resource, key)
        if found is not None and found.outcome == OperationOutcome.APPLIED:
            return found
    return await work()
