"""What came back from an attempt: a refusal of a gateway, an answer of somebody in between, or nothing; and the error
that each of them is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from .. import errors
from .._json import members
from .._words import ErrorClass, LossReason, Supersession
from .acquiring import Refusal, Stranger
from .classes import class_of, loss_of

YEAR_S = 31_536_000


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem document: a gateway refused, or could not."""

    code: str
    error_class: ErrorClass
    status: int
    title: str
    text: str
    retryable: bool
    request_id: str | None
    retry_after_ms: int | None
    members: dict[str, Any]
    """All that it says."""

    @property
    def refusal(self) -> Refusal:
        """For the machines."""
        return Refusal(self.code, self.error_class)

    @property
    def operation(self) -> str | None:
        """The operation that it is about, if it names one."""
        return _text(self.members, "operation")


@dataclass(frozen=True, slots=True)
class Foreign:
    """An answer that no gateway gave, or not as one should."""

    status: int
    detail: str
    retry_after_ms: int | None = None

    @property
    def stranger(self) -> Stranger:
        """For the machines."""
        return Stranger(self.status)

    @property
    def is_retried(self) -> bool:
        """Whether a call without effects is made again."""
        return self.status >= 500 or self.status == 429


@dataclass(frozen=True, slots=True)
class Nothing:
    """No answer."""

    was_sent: bool
    """Whether any of it may have reached a gateway."""
    timed_out: bool
    """Whether it was the time for an answer that ran out."""
    detail: str


@dataclass(frozen=True, slots=True)
class Unsendable:
    """Nothing was sent, and another attempt would fail in the same way."""

    error: errors.FenceError


Failure: TypeAlias = Problem | Foreign | Nothing | Unsendable


class AnswerBroken(Exception):
    """A good answer could not be read to its end, or is not what a gateway says."""

    def __init__(self, failure: Foreign | Nothing) -> None:
        super().__init__(failure.detail)
        self.failure = failure


def problem_of(status: int, body: bytes, retry_after_ms: int | None) -> Problem | None:
    """Reads the body of an answer as a problem document; None: it is none."""
    try:
        said = members(json.loads(body))
    except ValueError:
        return None
    code = _text(said, "code")
    if code is None:
        return None
    retryable = said.get("retryable") is True
    in_document_ms = _number(said, "retry_after_ms")
    return Problem(
        code=code,
        error_class=class_of(code, status, retryable, said.get("outcome") == "unknown"),
        status=status,
        title=_text(said, "title") or code,
        text=_text(said, "detail") or "",
        retryable=retryable,
        request_id=_text(said, "request_id"),
        retry_after_ms=retry_after_ms if in_document_ms is None else max(in_document_ms, 0),
        members=said,
    )


def retry_after_ms(header: str | None) -> int | None:
    """`Retry-After`, if it is a number of seconds. A year is as good as never."""
    if header is None or not (header.isascii() and header.isdigit()):
        return None
    return min(int(header), YEAR_S) * 1000 if len(header) < 10 else YEAR_S * 1000


def is_retried(failure: Failure) -> bool:
    """Whether a call without effects, or with the same effect each time, is made again (CC11)."""
    if isinstance(failure, Problem):
        return failure.error_class in (ErrorClass.UNAVAILABLE, ErrorClass.OUTCOME_UNKNOWN)
    if isinstance(failure, Foreign):
        return failure.is_retried
    return isinstance(failure, Nothing)


def is_elsewhere_better(failure: Failure) -> bool:
    """Whether the next gateway is asked instead (CC3)."""
    if isinstance(failure, Problem):
        return failure.code in ("shutting-down", "overloaded")
    if isinstance(failure, Foreign):
        return failure.status >= 500
    return isinstance(failure, Nothing)


def floor_ms(failure: Failure) -> int | None:
    """For how long the gateway asks to be left alone."""
    return failure.retry_after_ms if isinstance(failure, Problem | Foreign) else None


def summary(failure: Failure) -> str:
    """In a few words, for logs and hooks."""
    if isinstance(failure, Problem):
        return failure.code
    return failure.error.detail if isinstance(failure, Unsendable) else failure.detail


def error_of(failure: Failure, attempts: int) -> errors.FenceError:
    """The error, for calls that may simply be made again: what is not known of them is not available."""
    if isinstance(failure, Problem):
        return error_of_problem(failure, attempts)
    if isinstance(failure, Foreign):
        return _error_of_foreign(failure, attempts)
    if isinstance(failure, Nothing):
        return errors.Unavailable(failure.detail, attempts=attempts, retryable=True)
    return failure.error


def known_of(failure: Failure, attempts: int) -> dict[str, Any]:
    """What an error tells of a failure, whatever its class is."""
    if not isinstance(failure, Problem):
        wait_ms = floor_ms(failure)
        retry_after = None if wait_ms is None else timedelta(milliseconds=wait_ms)
        return {"attempts": attempts, "retryable": True, "retry_after": retry_after}
    wait_ms = failure.retry_after_ms
    return {
        "code": failure.code,
        "status": failure.status,
        "resource": _text(failure.members, "resource"),
        "request_id": failure.request_id,
        "retryable": failure.retryable,
        "attempts": attempts,
        "retry_after": None if wait_ms is None else timedelta(milliseconds=wait_ms),
        "operator_reason": _text(failure.members, "reason"),
    }


def detail_of(failure: Failure) -> str:
    """What happened, for people."""
    return f"{failure.title}: {failure.text}" if isinstance(failure, Problem) else summary(failure)


def error_of_problem(problem: Problem, attempts: int) -> errors.FenceError:
    """The error of a problem document. Not for writes, whose unknown outcomes can be resolved."""
    known, detail, said = known_of(problem, attempts), detail_of(problem), problem.members
    match problem.error_class:
        case ErrorClass.LOCK_LOST:
            return errors.LockLost(detail, **loss_known(problem), **known)
        case ErrorClass.BUSY:
            age_ms = _number(said, "holder_age_ms")
            return errors.BUSY_OF_CODE.get(problem.code, errors.Busy)(
                detail,
                holder=_text(said, "holder"),
                holder_age=None if age_ms is None else timedelta(milliseconds=max(age_ms, 0)),
                position=_number(said, "position"),
                **known,
            )
        case ErrorClass.CHANGED:
            return errors.Changed(
                detail,
                index=_number(said, "index"),
                version=_number(said, "version"),
                etag=_text(said, "etag"),
                **known,
            )
        case ErrorClass.CURSOR_VOID:
            return errors.CursorVoid(detail, begin_after=_text(said, "begin_after"), **known)
        case ErrorClass.NOT_FOUND:
            return errors.NotFound(detail, **known)
        case ErrorClass.MISUSE:
            return errors.Misuse(detail, **known)
        case ErrorClass.GATEWAY_FAULT:
            return errors.GatewayFault(detail, **known)
        case ErrorClass.DENIED:
            return errors.Denied(detail, **known)
        case ErrorClass.UNAVAILABLE | ErrorClass.OUTCOME_UNKNOWN:
            return errors.Unavailable(detail, **known)


def loss_known(problem: Problem) -> dict[str, Any]:
    """What a problem document says about the loss of a lock."""
    by = _text(problem.members, "superseded_by")
    return {
        "reason": loss_of(problem.code) or LossReason.BROKEN,
        "superseded_by": None if by is None else Supersession(by),
        "superseded_at": _moment(problem.members, "superseded_at"),
    }


def _error_of_foreign(foreign: Foreign, attempts: int) -> errors.FenceError:
    known: dict[str, Any] = {"attempts": attempts, "status": foreign.status, "retryable": foreign.is_retried}
    if foreign.status in (401, 403, 407):
        return errors.Denied(foreign.detail, **known)
    if foreign.is_retried:
        return errors.Unavailable(foreign.detail, **known)
    return errors.GatewayFault(foreign.detail, **known)


def _text(said: dict[str, Any], name: str) -> str | None:
    value = said.get(name)
    return value if isinstance(value, str) else None


def _number(said: dict[str, Any], name: str) -> int | None:
    value = said.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _moment(said: dict[str, Any], name: str) -> datetime | None:
    text = _text(said, name)
    try:
        moment = None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment is None or moment.tzinfo is not None else None
