"""SQLAlchemy: tables of one's own, fenced by the same token.

With the ledger in Postgres, `fencegate.guard` in a transaction of the same database refuses a token that is not the one
granted last (docs/tables.md of the project). Take the lock before the transaction begins, and guard first in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from fencegate import Lock, LockLost, LossReason, Misuse, ResourceDraining, ResourceFrozen, Unavailable, errors

GUARD = text("SELECT fencegate.guard_all(CAST(:resources AS text[]), CAST(:tokens AS bigint[]), CAST(:ids AS uuid[]))")
_LOST = {
    "FG401": LossReason.VOID,
    "FG403": LossReason.SUPERSEDED,
    "FG404": LossReason.RELEASED_ELSEWHERE,
    "FG405": LossReason.BROKEN,
}


@contextmanager
def guarded(session: Session, lock: Lock) -> Iterator[Session]:
    """A transaction under a lock: nothing of it is committed if the lock was lost."""
    lock.check()
    count = len(lock.resources)
    ids = [lock.id] * count
    try:
        with session.begin():
            session.execute(GUARD, {"resources": list(lock.resources), "tokens": [int(lock.token)] * count, "ids": ids})
            yield session
    except DBAPIError as error:
        raise fence_error(error) or error from error


def fence_error(error: DBAPIError) -> errors.FenceError | None:
    """What a refusal of `fencegate.guard` is in the classes of this library; None: it is another error."""
    code = getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    said = str(error.orig)
    if code in _LOST:
        return LockLost(said, reason=_LOST[code])
    if code == "FG406":
        return ResourceFrozen(said)
    if code == "FG410":
        return ResourceDraining(said)
    if code in ("FG407", "40001", "55P03", "40P01"):
        return Unavailable(said)
    return Misuse(said) if isinstance(code, str) and code.startswith("FG") else None
