"""Hands a lock over to another process, without a moment in which nobody holds it (CC50)."""

from __future__ import annotations

from typing import Any

from .. import errors
from .._core import names
from .._core.classes import loss_of
from .._core.ids import uuid7
from .._guard.held import Burial, Held
from .._handoff import Handoff
from .._request import json_request
from .._wire import LockRecord
from . import _runtime as runtime
from ._burying import AWAITED_MS
from ._caller import AsyncCaller
from ._operations import decoded


async def transfer(caller: AsyncCaller, held: Held, owner: str, principal: str | None) -> Handoff:
    """Hands a guard's lock over."""
    successor = uuid7()
    document: dict[str, Any] = {
        "owner": names.checked_owner(owner),
        "id": successor,
        "principal": None if principal is None else names.checked_principal(principal),
    }
    held.begin_call()
    # 1. No renewal beside it, which would hear of the successor; no news of it either.
    await runtime.take(held.renewing)
    held.begin_transfer(True)
    may_be_there = False
    try:
        # 2. What is under way under the old token ends first, or it bounces.
        if not held.numbers.is_idle:
            await runtime.called_back(held.numbers.when_idle, AWAITED_MS)
        # 3. The call, always with the same id: until it is answered, the successor's lock may exist.
        may_be_there = True
        request = json_request("POST", f"/locks/{held.id}/transfer", document)
        try:
            lock = decoded(LockRecord, await caller.json("transfer", request))
        except errors.FenceError as error:
            may_be_there = not _is_definite(error)
            raise
        may_be_there = False
        held.transferred()
        return Handoff(lock.id, lock.token or "", lock.resources, lock.owner, lock.principal)
    except errors.FenceError as error:
        held.begin_transfer(False)
        reason = None if error.code is None else loss_of(error.code)
        if reason is not None:
            held.lose(reason)
        raise
    finally:
        held.begin_transfer(False)
        held.renewing.give_back()
        if may_be_there:
            # Nobody knows of a successor that may be there: it is given back, and the next renewal tells whether this
            # guard is still good.
            caller.shared.engine.bury(Burial(successor, held.resources, held.lease.ttl_ms))
            caller.shared.engine.poke(held)


def _is_definite(error: errors.FenceError) -> bool:
    """Whether a gateway refused the only attempt: there is no successor, and the guard is as it was."""
    is_vague = isinstance(error, errors.Unavailable | errors.GatewayFault)
    return error.attempts <= 1 and error.code is not None and not is_vague
