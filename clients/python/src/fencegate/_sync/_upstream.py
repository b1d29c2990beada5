# Made by scripts/unasync.py out of ../_async/_upstream.py: change that, and run it again.
"""Requests to an upstream under a guard (CC20a). They are sent once: the gateway cannot know what a service of somebody
else does with a second one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .. import errors
from .._body import Body
from .._core import clock, names
from .._core.ids import RequestIds
from .._core.replies import (
    AnswerBroken,
    Failure,
    Foreign,
    Nothing,
    Problem,
    Unsendable,
    detail_of,
    error_of,
    known_of,
)
from .._guard.held import Held
from .._hooks import StaleWrite
from .._request import Request
from .._results import UpstreamAnswer
from .._words import ErrorClass
from ._answer import Answer
from ._caller import Caller
from ._unknown import OutcomeOfForward

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_METHOD = re.compile(r"[A-Z]{1,32}")
_PATH = re.compile(r"(?:(?![\\#])[!-~]){0,8192}")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t -~]*")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "CONNECT"})
# Headers that the guard sets itself.
_OURS = frozenset(
    """authorization connection content-length expect host idempotency-key te transfer-encoding upgrade x-fence-seq
    x-fence-token x-lock-id x-request-id""".split()
)


def forward(
    caller: Caller,
    held: Held,
    upstream: str,
    method: str,
    path: str,
    body: Body | None,
    headers: Mapping[str, str],
    key: str | None,
) -> UpstreamAnswer:
    """Sends a request to an upstream, once."""
    request = Request(method, _path(upstream, method, path), [*held.write_headers, *_headers(headers)], body)
    if key is not None:
        request.header(b"Idempotency-Key", names.checked_key(key))
    began_ms = clock.now_ms()
    held.begin_call()
    # Under way until it is answered: a release waits for it.
    under_way = held.numbers.begin()
    error: errors.FenceError | None = None
    try:
        held.check()
        reply = caller.transport.attempt_any(
            request, RequestIds().next(), lambda headers: "x-fence-guarantee" in headers
        )
        if isinstance(reply, Answer):
            return _whole(caller, held, reply)
        raise _failure(caller, held, reply)
    except errors.FenceError as failure:
        error = failure
        raise
    finally:
        under_way.end()
        held.shared.called("upstream", began_ms, 1, error)


def _path(upstream: str, method: str, path: str) -> str:
    if not _NAME.fullmatch(upstream) or upstream in (".", ".."):
        raise errors.Misuse("an upstream's name has 1 to 64 of A-Z a-z 0-9 _ - .")
    if not _METHOD.fullmatch(method):
        raise errors.Misuse("a method is a word in capital letters")
    if method in _SAFE_METHODS:
        raise errors.Misuse("a guard sends what changes something: no GET, HEAD, OPTIONS")
    if not _PATH.fullmatch(path):
        raise errors.Misuse("a path at an upstream is encoded: visible ASCII")
    # Such a path would leave the upstream before the gateway sees it.
    plain = path.partition("?")[0].lower().replace("%2e", ".")
    if any(segment in (".", "..") for segment in plain.split("/")):
        raise errors.Misuse("no segment of a path at an upstream is . or ..")
    return f"/upstreams/{upstream}/{path.lstrip('/')}"


def _headers(named: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    headers: list[tuple[bytes, bytes]] = []
    for name, value in named.items():
        if not _HEADER.fullmatch(name) or not _VALUE.fullmatch(value) or name.lower() in _OURS:
            raise errors.Misuse(f"the header {name!r} is none, or is set by the guard itself")
        headers.append((name.encode(), value.encode()))
    return headers


def _whole(caller: Caller, held: Held, answer: Answer) -> UpstreamAnswer:
    """An upstream's answer, whole. One that breaks off says nothing for sure."""
    operation = answer.headers.get("x-operation-id")
    try:
        body = answer.bytes()
    except AnswerBroken as broken:
        raise _unknown(caller, held, operation, broken.failure) from None
    return UpstreamAnswer(answer.status, answer.headers, body, operation)


def _failure(caller: Caller, held: Held, failure: Failure) -> errors.FenceError:
    """What became of a request that no upstream answered."""
    if isinstance(failure, Problem):
        if failure.error_class is ErrorClass.OUTCOME_UNKNOWN:
            return _unknown(caller, held, failure.operation, failure)
        error = error_of(failure, 1)
        if isinstance(error, errors.LockLost):
            held.refused(failure)
            held.shared.hooks.tell(StaleWrite(held.resources[0], error.reason))
        return error
    is_unsent = isinstance(failure, Unsendable) or (isinstance(failure, Nothing) and not failure.was_sent)
    if is_unsent or (isinstance(failure, Foreign) and failure.status in (401, 407)):
        return error_of(failure, 1)
    return _unknown(caller, held, None, failure)


def _unknown(caller: Caller, held: Held, operation: str | None, failure: Failure) -> errors.OutcomeUnknown:
    known: dict[str, Any] = known_of(failure, 1)
    known["resource"] = known.get("resource") or held.resources[0]
    detail = f"the outcome of the request to the upstream is unknown: {detail_of(failure)}"
    return OutcomeOfForward(detail, caller=caller, operation=operation, **known)
