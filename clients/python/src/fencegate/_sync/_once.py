# Made by scripts/unasync.py out of ../_async/_once.py: change that, and run it again.
"""Work that is done once for each message, however often the message comes (CC42)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from .._core import names
from .._guard.held import Held
from .._wire import Operation
from .._words import OperationOutcome
from ._caller import Caller
from ._operations import operation_of_key

T = TypeVar("T")


def once(caller: Caller, held: Held, key: str, work: Callable[[], T]) -> T | Operation:
    """Runs the work, unless a write under the key took effect before."""
    names.checked_key(key)
    held.begin_call()
    for resource in held.resources:
        found = operation_of_key(caller, resource, key)
        if found is not None and found.outcome == OperationOutcome.APPLIED:
            return found
    return work()
