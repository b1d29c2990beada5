"""What a client can be told: settings, credentials, transports, and what it never tells."""

from __future__ import annotations

import copy
import pickle
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from fencegate import (
    Busy,
    Denied,
    FenceError,
    Fencegate,
    LockHeld,
    LockLost,
    LossReason,
    Misuse,
    OutcomeUnknown,
    Unavailable,
    errors,
)
from fencegate._sync._unknown import OutcomeUnknown as OfAWrite


class Recorded(httpx2.BaseTransport):
    """Passes requests on, and keeps them; or answers them itself."""

    def __init__(self, answer: Callable[[httpx2.Request], httpx2.Response] | None = None) -> None:
        self.requests: list[httpx2.Request] = []
        self._answer = answer
        self._real = httpx2.HTTPTransport()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        return self._real.handle_request(request) if self._answer is None else self._answer(request)

    def close(self) -> None:
        self._real.close()


def refused(request: httpx2.Request) -> httpx2.Response:
    """What a gateway says to somebody whom it does not know."""
    problem = {"code": "unauthenticated", "title": "Who are you?", "status": 401}
    return httpx2.Response(401, json=problem, headers={"X-Request-Id": request.headers["X-Request-Id"]})


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"url": ""}, "base URL"),
    ({"url": "ftp://localhost"}, "http://"),
    ({"url": "http://me:secret@localhost"}, "credentials"),
    ({"url": "http://localhost?a=b"}, "no query"),
    ({"owner": "a\nb"}, "control"),
    ({"owner": "a" * 257}, "256 bytes"),
    ({"ttl": "0s"}, "ttl"),
    ({"ttl": "25h"}, "ttl"),
    ({"call_timeout": 0}, "call_timeout"),
    ({"auth": "two words"}, "credential"),
    ({"auth": "a", "auth_file": "b"}, "one of them"),
    ({"headers": {"X-Fence-Token": "1"}}, "X-Fence-Token"),
    ({"headers": {"a b": "1"}}, "a b"),
    ({"headers": {"a": "1\r\nb: 2"}}, "'a'"),
    ({"cert_file": "only.pem"}, "both or none"),
]


@pytest.mark.parametrize(("options", "word"), WRONG, ids=[str(options) for options, _ in WRONG])
def test_a_wrong_setting_is_refused_at_once(options: dict[str, Any], word: str) -> None:
    with pytest.raises(Misuse, match=word) as refusal:
        Fencegate(**{"url": "http://localhost", **options})
    assert "secret" not in str(refusal.value)


def test_the_environment_describes_a_client(
    fencegate_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("of-the-file\n")
    monkeypatch.setenv("FENCE_URL", fencegate_url)
    monkeypatch.setenv("FENCE_OWNER", "from the environment")
    monkeypatch.setenv("FENCE_AUTH_TOKEN_FILE", str(token))
    with Recorded() as recorded, Fencegate.from_env(transport=recorded) as fg:
        assert fg.owner == "from the environment"
        assert fg.ready().ready
        token.write_text("of-the-next-file")
        fg.ready()
    shown = [request.headers["Authorization"] for request in recorded.requests]
    assert shown == ["Bearer of-the-file", "Bearer of-the-next-file"]
    monkeypatch.setenv("FENCE_AUTH_TOKEN", "another")
    with pytest.raises(Misuse, match="one of them"):
        Fencegate.from_env()
    monkeypatch.delenv("FENCE_URL")
    with pytest.raises(Misuse, match="FENCE_URL"):
        Fencegate.from_env()


def test_an_empty_credential_denies_everything(fencegate_url: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch()
    with Recorded() as recorded, Fencegate(fencegate_url, auth_file=token, transport=recorded) as fg:
        with pytest.raises(Denied, match="is empty"):
            fg.acquire("nobody")
    assert not recorded.requests
    with pytest.raises(Denied, match="is empty"):
        Fencegate(fencegate_url, ca_file=token)


def test_a_credential_is_asked_for_again_after_a_refusal() -> None:
    asked: list[str] = []

    def ask() -> str:
        asked.append("x")
        return f"token-{len(asked)}"

    with Recorded(refused) as recorded, Fencegate("http://gateway.example", auth=ask, transport=recorded) as fg:
        with pytest.raises(Denied) as denial:
            fg.get("r", "k")
    assert [request.headers["Authorization"] for request in recorded.requests] == ["Bearer token-1", "Bearer token-2"]
    assert denial.value.code == "unauthenticated"


def test_a_trace_goes_along(fencegate_url: str) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    options: dict[str, Any] = {"traceparent": lambda: trace, "headers": {"X-Team": "blue"}}
    with Recorded() as recorded, Fencegate(fencegate_url, transport=recorded, **options) as fg:
        fg.ready()
    (request,) = recorded.requests
    assert request.headers["traceparent"] == trace
    assert request.headers["X-Team"] == "blue"
    assert request.headers["User-Agent"].startswith("fencegate-python/")


def test_the_trace_of_the_environment_goes_along(fencegate_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    monkeypatch.setenv("FENCE_URL", fencegate_url)
    # What names no span is none; and a tracer of the program's own comes first.
    for named, tracer, sent in [
        (trace, None, trace),
        ("00-nonsense", None, None),
        (trace.upper(), None, None),
        (f"{trace}\n", None, None),
        (trace, trace.replace("-01", "-00"), trace.replace("-01", "-00")),
    ]:
        monkeypatch.setenv("TRACEPARENT", named)
        options: dict[str, Any] = {} if tracer is None else {"traceparent": lambda tracer=tracer: tracer}
        with Recorded() as recorded, Fencegate.from_env(transport=recorded, **options) as fg:
            fg.ready()
        (request,) = recorded.requests
        assert request.headers.get("traceparent") == sent


def test_another_gateway_is_asked_if_the_first_is_away(fencegate_url: str, fencegate_resource: str) -> None:
    with socket.socket() as bound:
        # Nobody listens there, and nobody else can.
        bound.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with Fencegate(f"{nobody},{fencegate_url}") as fg, fg.lock(fencegate_resource) as lock:
            assert lock.put("k", b"v").created


def test_nobody_there_is_unavailable() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with Fencegate(nobody, call_timeout="2s") as fg, pytest.raises(Unavailable) as failure:
            fg.acquire("r")
    assert failure.value.attempts > 1


@pytest.mark.parametrize(
    "error",
    [
        LockLost("gone", reason=LossReason.SUPERSEDED, code="fence-token-stale", status=412, resource="r"),
        LockHeld("held", holder="somebody", code="lock-held"),
        OutcomeUnknown("unknown", operation="op", can_resend=True),
        Misuse("wrong"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_travel_between_processes(error: FenceError) -> None:
    for travelled in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(travelled) is type(error)
        assert str(travelled) == str(error)
        assert travelled.__dict__ == error.__dict__


def test_an_unknown_outcome_is_resolved_at_home() -> None:
    write: Any = object()
    travelled = pickle.loads(pickle.dumps(OfAWrite("unknown", write=write, operation="op")))
    assert type(travelled) is OutcomeUnknown
    assert travelled.operation == "op"
    with pytest.raises(Misuse, match="process"):
        travelled.resolve()


def test_errors_are_caught_by_what_is_to_be_done() -> None:
    assert issubclass(LockHeld, Busy)
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, FenceError)]
    assert len({kind.__name__ for kind in kinds}) == len(kinds)
    for kind in kinds:
        assert kind.__doc__


def test_no_secret_is_shown(fencegate: Fencegate, fencegate_resource: str) -> None:
    with fencegate.lock(fencegate_resource) as lock:
        for shown in (repr(lock), repr(lock._held), str(lock), repr(fencegate)):
            assert lock.id not in shown
            assert f"'{lock.token}'" not in shown
        handoff = lock.transfer("successor")
        assert handoff.id not in repr(handoff)
    fencegate.adopt(handoff).release()
