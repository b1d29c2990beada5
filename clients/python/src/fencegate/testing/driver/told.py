"""What the library tells, as JSON."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ... import errors
from ..._results import Applied, Committed, Deleted, Settled, Written

Told = dict[str, Any]


class DriverError(Exception):
    """A mistake in a scenario, or in this driver."""


class Out:
    """Standard output, a line for each thing said."""

    def __init__(self, at_ms: Callable[[], int] | None) -> None:
        self._at_ms = at_ms
        self._lock = threading.Lock()

    def say(self, line: Told) -> None:
        """Says a line, stamped with the virtual time if there is one."""
        if self._at_ms is not None and "driver" not in line:
            line = {**line, "at": self._at_ms()}
        with self._lock:
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()

    def answer(self, id: int, ok: Any) -> None:
        """Says what came of a command."""
        self.say({"id": id, "ok": ok})

    def failed(self, id: int, error: Told) -> None:
        """Says how a command failed."""
        self.say({"id": id, "error": error})

    def event(self, name: str, fields: Told) -> None:
        """Says what happened without being asked for."""
        self.say({"event": name, **fields})


def _ms(span: timedelta | None) -> int | None:
    return None if span is None else round(span.total_seconds() * 1000)


def error_told(error: BaseException, keep: Callable[[errors.OutcomeUnknown], str]) -> Told:
    """An error of the library."""
    if isinstance(error, DriverError):
        return {"class": "Driver", "detail": str(error)}
    if not isinstance(error, errors.FenceError):
        return {"class": "Driver", "detail": repr(error)}
    told: Told = {"class": str(error.error_class), "detail": error.detail, "attempts": error.attempts}
    told["text"] = str(error)
    known = ("code", "status", "resource", "request_id", "number", "index", "version", "etag", "operation")
    known += ("holder", "position", "begin_after")
    for name in known:
        value = getattr(error, name, None)
        if value is not None:
            told[name] = value
    if error.idempotency_key is not None:
        told["key"] = error.idempotency_key
    if isinstance(error, errors.Busy):
        told["kind"] = error.kind
        told["holder_age_ms"] = _ms(error.holder_age)
    if isinstance(error, errors.LockLost):
        told["reason"] = str(error.reason)
        told["superseded_by"] = None if error.superseded_by is None else str(error.superseded_by)
    if isinstance(error, errors.OutcomeUnknown):
        told["resend"] = error.can_resend
        told["handle"] = keep(error)
    return told


def written_told(written: Written | Deleted | Committed) -> Told:
    """What a write became."""
    receipt = written.receipt
    told: Told = {
        "operation": written.operation,
        "replayed": written.replayed,
        "key": receipt.key,
        "number": receipt.number,
        "attempts": receipt.attempts,
        "created": written.created if isinstance(written, Written) else None,
    }
    if isinstance(written, Committed):
        resources = [{"resource": one.resource, "version": one.version} for one in written.resources]
        told["resources"] = resources
        told["results"] = [
            {
                "op": str(one.op),
                "resource": one.resource,
                "key": one.key,
                "version": one.version,
                "etag": one.etag,
                "created": one.created,
            }
            for one in written.results
        ]
        told["version"] = resources[0]["version"] if resources else None
        return told
    told |= {"resource": written.resource, "object": written.key, "version": written.version}
    if isinstance(written, Written):
        told |= {"etag": written.etag, "size": written.size, "sha256": written.sha256}
    else:
        told["created"] = False
    return told


def without_frames(error: errors.OutcomeUnknown) -> errors.OutcomeUnknown:
    """The same, without the frames that it came through: as long as it is kept, they would keep the guard."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def settled_told(settled: Settled) -> Told:
    """What an unknown outcome turned out to be."""
    if isinstance(settled, Applied):
        return {"outcome": "applied", "operation": settled.operation, "version": settled.version}
    return {"outcome": "not_applied"}
