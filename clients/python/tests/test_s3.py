"""What S3 tools write with under a lock: for whom it is there, and where it does not show."""

from __future__ import annotations

import dataclasses
import json
import traceback
from typing import Any

import httpx2
import pytest

from fencegate import FenceError, Fencegate, GatewayFault, LockLost, Misuse, S3Access, Unavailable

ID = "0190a1b2-0000-7000-8000-000000000000"
ACCESS = {
    "endpoint": "http://127.0.0.1:9000",
    "region": "eu-1",
    "access_key_id": "FG1A",
    "secret_access_key": "the secret",
}


class Scripted(httpx2.BaseTransport):
    """Grants the lock that is asked for with this `s3`, and answers so when it is asked for a key."""

    def __init__(self, s3: object = None, key: object = ACCESS, status: int = 200) -> None:
        self.asked: list[str] = []
        self._s3, self._key, self._status = s3, key, status

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        self.asked.append(f"{request.method} {path}")
        headers = {"X-Request-Id": request.headers["X-Request-Id"]}
        if path.endswith("/s3"):
            return httpx2.Response(self._status, json=self._key, headers=headers)
        if request.method == "DELETE":
            return httpx2.Response(204, headers=headers)
        if path != "/locks":
            return httpx2.Response(500, json={}, headers=headers)
        asked: dict[str, Any] = json.loads(request.read())
        lock = {
            "id": asked["id"],
            "resources": [asked["resource"]],
            "owner": "o",
            "state": "leased",
            "token": "7",
            "versions": [0],
            "ttl_ms": 30_000,
            "expires_in_ms": 30_000,
            "acquired_at": "2026-11-26T12:00:00Z",
            "s3": self._s3,
        }
        return httpx2.Response(201, json=lock, headers=headers)


def client(transport: Scripted) -> Fencegate:
    return Fencegate("http://localhost:1", transport=transport, retries=False)


def test_a_lock_in_a_bucket_tells_its_key_and_shows_no_secret() -> None:
    with client(Scripted(ACCESS)) as fg, fg.lock("lake:orders") as lock:
        s3 = lock.s3
        assert s3 == S3Access(**ACCESS)
        assert s3.boto3() == {
            "endpoint_url": "http://127.0.0.1:9000",
            "region_name": "eu-1",
            "aws_access_key_id": "FG1A",
            "aws_secret_access_key": "the secret",
        }
        assert "the secret" not in repr(s3) + str(s3) + repr(lock) + f"{s3}"
        with pytest.raises(dataclasses.FrozenInstanceError):
            s3.region = "other"  # type: ignore[misc]
        # As long as the guard is there, whatever becomes of its lock.
        lock.release()
        assert lock.s3 is s3


def test_a_lock_outside_of_buckets_has_no_key() -> None:
    with client(Scripted()) as fg, fg.lock("r") as lock:
        assert lock.s3 is None


def _shown(error: FenceError) -> str:
    return "".join(traceback.format_exception(error, chain=True)) + repr(vars(error))


def test_a_key_that_is_none_is_no_grant() -> None:
    with client(Scripted({**ACCESS, "region": 7})) as fg, pytest.raises(Unavailable) as raised:
        fg.acquire("lake:orders")
    assert "the secret" not in _shown(raised.value)


def test_a_key_is_asked_for_by_the_id_of_a_lock() -> None:
    transport = Scripted()
    with client(transport) as fg:
        assert fg.s3_access(ID) == S3Access(**ACCESS)
        assert transport.asked == [f"GET /locks/{ID}/s3"]
        with pytest.raises(Misuse):
            fg.s3_access("lake:orders")
    with client(Scripted(key={**ACCESS, "region": 7})) as fg, pytest.raises(GatewayFault) as raised:
        fg.s3_access(ID)
    assert "the secret" not in _shown(raised.value)
    ended = {"code": "lock-superseded", "status": 409, "title": "It ended", "detail": "it ended"}
    with client(Scripted(key=ended, status=409)) as fg, pytest.raises(LockLost):
        fg.s3_access(ID)
