"""The driver of the library for threads, in real time: the commands that real gateways are asked with."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, cast

from ... import Fencegate, Lock, errors
from ..._wish import LockOptions
from .mishaps import collect, is_refused_in_copy
from .settings import settings_of
from .told import DriverError, Out, Told, error_told, settled_told, without_frames, written_told

_PUT = {"key": "idempotency_key"}


class State:
    """What the driver remembers between commands."""

    def __init__(self, out: Out) -> None:
        self.out = out
        self.over: threading.Event = threading.Event()
        self._lock = threading.Lock()
        self._client: Fencegate | None = None
        self._locks: dict[str, Lock] = {}
        self._unknown: dict[str, errors.OutcomeUnknown] = {}

    @property
    def client(self) -> Fencegate:
        """The client."""
        if self._client is None:
            raise DriverError("there is no client yet")
        return self._client

    @client.setter
    def client(self, client: Fencegate) -> None:
        self._client = client

    def lock(self, name: str) -> Lock:
        """A guard by the scenario's name for it."""
        if name not in self._locks:
            raise DriverError(f"there is no guard {name}")
        return self._locks[name]

    def keep(self, name: str, lock: Lock) -> Told:
        """Remembers a guard, and describes it."""
        with self._lock:
            self._locks[name] = lock
        resources, versions = list(lock.resources), list(lock.versions)
        return {"lock": name, "id": lock.id, "token": lock.token, "resources": resources, "versions": versions}

    def forget(self, name: str) -> None:
        """Forgets a guard."""
        with self._lock:
            del self._locks[name]

    def keep_unknown(self, error: errors.OutcomeUnknown) -> str:
        """Remembers an unknown outcome, and gives a handle to it."""
        with self._lock:
            handle = f"U{len(self._unknown) + 1}"
            self._unknown[handle] = without_frames(error)
        return handle

    def unknown(self, handle: str) -> errors.OutcomeUnknown:
        """An unknown outcome."""
        if handle not in self._unknown:
            raise DriverError(f"there is no handle {handle}")
        return self._unknown[handle]


def drive() -> None:
    """Does what the commands on the standard input say, until they end. Each has a thread of its own."""
    state = State(Out(None))
    state.out.say({"driver": "python-sync", "virtual_time": False, "features": ["fork", "drop"]})
    for line in sys.stdin:
        command = json.loads(line)
        id, word = command.pop("id"), command.pop("do")
        if word == "close":
            state.client.close("1s")
            state.out.answer(id, {})
            break
        threading.Thread(target=_carry_out, args=(state, id, word, command), daemon=True).start()
    sys.stdout.flush()
    # What is under way is left: nobody asks for it any more.
    os._exit(0)


def _carry_out(state: State, id: int, word: str, command: dict[str, Any]) -> None:
    try:
        carry_out = _ALL.get(word)
        if carry_out is None:
            raise DriverError(f"there is no command {word}")
        state.out.answer(id, carry_out(state, command))
    except Exception as error:
        state.out.failed(id, error_told(error, state.keep_unknown))
        return
    if word == "acquire":
        # A guard is renewed as long as there is the thread that took it.
        state.over.wait()


def _client(state: State, command: dict[str, Any]) -> Told:
    settings = settings_of(command.get("options"))
    state.client = Fencegate(command["urls"], owner=command["owner"], **settings)
    return {}


def _acquire(state: State, command: dict[str, Any]) -> Told:
    name, resources = command.pop("lock"), command.pop("resources")

    def told(loss: errors.LockLost) -> None:
        state.out.event("lost", {"lock": name, "reason": str(loss.reason)})

    options = cast("LockOptions", {"on_lost": told, **command})
    return state.keep(name, state.client.acquire(resources, **options))


def _release(state: State, command: dict[str, Any]) -> Told:
    return {"confirmed": state.lock(command["lock"]).release()}


def _put(state: State, command: dict[str, Any]) -> Told:
    lock, key = state.lock(command.pop("lock")), command.pop("object")
    body: Any = command.pop("text", "")
    if "size" in command:
        body = b"x" * command.pop("size")
    if command.pop("attempts", None) == 1:
        command["retries"] = False
    return written_told(lock.put(key, body, **{_PUT.get(name, name): value for name, value in command.items()}))


def _commit(state: State, command: dict[str, Any]) -> Told:
    commit = state.lock(command["lock"]).commit()
    for operation in command["operations"]:
        word, resource, key = operation.pop("op"), operation.pop("resource"), operation.pop("object")
        if word == "put":
            commit.put(resource, key, operation.pop("text", ""), **operation)
        else:
            commit.delete(resource, key, **operation)
    versions: dict[str, int] = command.get("versions") or {}
    for resource, version in versions.items():
        commit.expect_version(resource, version)
    return written_told(commit.send(idempotency_key=command.get("key")))


def _resolve(state: State, command: dict[str, Any]) -> Told:
    return settled_told(state.unknown(command["handle"]).resolve(command.get("within", "30s")))


def _abandon(state: State, command: dict[str, Any]) -> Told:
    return settled_told(state.unknown(command["handle"]).abandon("30s"))


def _state(state: State, command: dict[str, Any]) -> Told:
    lock = state.lock(command["lock"])
    reason = None if lock.reason is None else str(lock.reason)
    return {"state": str(lock.status), "reason": reason, "token": lock.token}


def _fork(state: State, command: dict[str, Any]) -> Told:
    lock, resource = state.lock(command["lock"]), command["resource"]
    return {"refused": is_refused_in_copy(lambda: lock.reason, lambda: _write_in_copy(lock, resource))}


def _write_in_copy(lock: Lock, resource: str) -> None:
    lock.put("copy", "by the copy", resource=resource)


def _drop(state: State, command: dict[str, Any]) -> Told:
    state.forget(command["lock"])
    collect()
    return {}


_ALL: dict[str, Callable[[State, dict[str, Any]], Told]] = {
    "client": _client,
    "acquire": _acquire,
    "release": _release,
    "put": _put,
    "commit": _commit,
    "resolve": _resolve,
    "abandon": _abandon,
    "state": _state,
    "fork": _fork,
    "drop": _drop,
}
