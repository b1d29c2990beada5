# Made by scripts/unasync.py out of ../_async/_job.py: change that, and run it again.
"""Runs of a job, each slot of which is done once (CC62, CC63)."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from functools import update_wrapper
from typing import Any, Generic, TypeVar, cast

from .. import errors
from .._core import clock, names, slots
from .._core.backoff import portion
from .._core.ids import uuid7
from .._jobs import (
    JobEnd,
    JobState,
    Kept,
    RunRecord,
    Terms,
    about_here,
    after_end,
    after_start,
    leftover,
    now_text,
    reason_of,
    run_key,
)
from .._json import members
from .._request import Request
from .._results import Committed, NotApplied
from .._wire import ObjectEntry
from .._words import LockState, LockStatus
from . import _runtime as runtime
from ._admin import Admin
from ._caller import Caller
from ._commit import Commit
from ._lock import Lock
from ._object import read_whole
from ._operations import decoded
from ._pages import Listing
from ._scope import acquire

T = TypeVar("T")

_SIZE_MAX = 16 << 20
_RESOLVED_WITHIN = "60s"
_CANCELLED_WITHIN = "5s"
"""How long the end of a run that was cancelled may take."""
_REPLACED_WITHIN = "30s"
"""How long the lock is waited for that was broken, unless the caller says otherwise."""
_LOOKS_AGAIN_MS = 1_000
"""The pause before shards are tried again that somebody else had."""
_STATE = "state.json"


class Checkpoint:
    """What a run keeps for the next one of its slot, if it does not get to its end."""

    __slots__ = ("_key", "_lock")

    def __init__(self, lock: Lock, key: str) -> None:
        self._lock = lock
        self._key = key

    def save(self, value: Any) -> None:
        """Stores it, under the lock of the run: bytes as they are, anything else as JSON. Raises `LockLost`."""
        if isinstance(value, bytes | bytearray):
            self._lock.put(self._key, bytes(value))
        else:
            self._lock.put(self._key, json=value)

    def load(self) -> Any:
        """What was saved last: bytes, or a value out of JSON. None: nothing was."""
        found = read_whole(self._lock._caller, self._lock.resources[0], self._key, _SIZE_MAX)
        if found is None:
            return None
        return found.json() if found.content_type == "application/json" else found.body


class Run:
    """A run, as its body sees it."""

    __slots__ = ("attempt", "checkpoint", "id", "is_resumed", "job", "lock", "shard", "shards", "slot")

    def __init__(self, lock: Lock, record: dict[str, Any], is_resumed: bool) -> None:
        self.lock: Lock = lock
        """The lock of the job, under which the run writes: `run.lock.put(...)`."""
        self.id: str = record["run"]
        """Its id, for others who are to tell runs apart."""
        self.job: str = record["job"]
        self.slot: str = record["slot"]
        """Its slot, as `20261122T020000Z`; with a dash and eight characters behind it for a slot of its own."""
        self.attempt: int = record["attempt"]
        """Which run of its slot it is, from 1."""
        self.shard: int | None = record.get("shard")
        self.shards: int | None = record.get("shards")
        self.is_resumed: bool = is_resumed
        """Whether there is a checkpoint of an earlier run of this slot."""
        self.checkpoint: Checkpoint = Checkpoint(lock, f"checkpoints/{self.slot}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.job!r}, {self.slot}, attempt {self.attempt}>"


class Job:
    """A job: a decorator, or to `run` a function."""

    def __init__(self, caller: Callable[[], Caller], terms: Terms) -> None:
        self._caller = caller
        self._terms = terms

    def __call__(self, work: Callable[[Run], T] | Callable[[], T]) -> Callable[[], JobEnd[T]]:
        """Makes a function that runs the job with this body, which takes the run, or nothing."""

        def run() -> JobEnd[T]:
            return self.run(work)

        update_wrapper(run, cast("Callable[[], Any]", work))
        # It takes nothing, whatever the body takes.
        vars(run).pop("__wrapped__", None)
        return run

    def run(self, work: Callable[[Run], T] | Callable[[], T]) -> JobEnd[T]:
        """Runs the job, unless its slot is done.

        Raises what the body raises, after that was recorded; `LockLost`: nothing of the end was recorded;
        `OutcomeUnknown`: nobody knows whether it was; `TimeoutError`: it took longer than `max_runtime`; `Misuse`: nobody
        knows any more whether this slot was done. What `acquire` raises, but that somebody else has the lock.
        """
        caller, terms, body = self._caller(), self._terms, _taking_run(work)
        slot = terms.slot
        if terms.every_ms is not None:
            slot = slots.slot_at(terms.every_ms, _gateway_second(caller))
        if terms.shards is None:
            return _Part(caller, terms, terms.shard, slot, body).run()
        return self._shards(terms.shards, slot, body)

    def _shards(self, count: int, slot: int | None, body: Callable[[Run], T]) -> JobEnd[T]:
        """Runs all shards that nobody else runs, again and again until the slot of all of them is done."""
        caller = self._caller()
        ends: list[JobEnd[T]] = []
        failures: list[Exception] = []
        left, held = random.sample(range(count), count), list[int]()

        def work() -> None:
            while True:
                try:
                    index = left.pop()
                except IndexError:
                    return
                try:
                    end = _Part(caller, self._terms, (index, count), slot, body).run()
                except Exception as error:
                    # The others are done all the same.
                    failures.append(error)
                    continue
                if end.status == "held":
                    held.append(index)
                else:
                    ends.append(end)

        while left:
            runtime.side_by_side(min(self._terms.concurrency, len(left)), work)
            left, held = held, []
            if left:
                runtime.sleep_until_ms(clock.now_ms() + portion(_LOOKS_AGAIN_MS, 0.5 + clock.draw() / 2))
        if failures:
            raise failures[0]
        came = {end.status for end in ends}
        status = "succeeded" if "succeeded" in came else "skipped" if "skipped" in came else "done before"
        return JobEnd(status, parts=tuple(ends))

    def state(self) -> JobState | None:
        """How the job stands, or the shard that `shard` names; None: it never ran."""
        caller, terms = self._caller(), self._terms
        if terms.shards is not None:
            raise errors.Misuse("each shard has a state of its own: name it with shard=")
        resource = slots.job_resource(terms.name, terms.shard)
        found = read_whole(caller, resource, _STATE, _SIZE_MAX)
        if found is None:
            return None
        now, lock = _gateway_second(caller), _lock_of(caller, resource)
        state = members(found.json())
        expect, running = members(state.get("expect")), members(state.get("running"))
        is_held = lock.get("state") in (LockState.LEASED, LockState.BREAKING, LockState.DRAINING)
        is_running = is_held and bool(running) and running.get("acquired_at") == lock.get("acquired_at")
        success, most_ms = members(state.get("last_success")).get("slot"), expect.get("max_runtime_ms")
        return JobState(
            document=state,
            is_running=is_running,
            is_lost=bool(running) and not is_running,
            is_overdue=slots.is_overdue(success, now, expect.get("every_ms"), expect.get("overdue_after_ms")),
            is_stuck=is_running and slots.is_stuck(lock["age_ms"], most_ms, state.get("recent", [])),
        )


class _Part(Generic[T]):
    """A job without shards, or one shard of it, in one call."""

    def __init__(
        self,
        caller: Caller,
        terms: Terms,
        shard: tuple[int, int] | None,
        slot: int | None,
        body: Callable[[Run], T],
    ) -> None:
        self._caller = caller
        self._terms = terms
        self._shard = shard
        self._newest = slot
        self._left: list[int] = []
        self._again: str | None = None
        self._body = body
        self._resource = slots.job_resource(terms.name, shard)

    def run(self) -> JobEnd[T]:
        terms = self._terms
        newest = self._newest
        if newest is None or terms.every_ms is None or terms.catch_up != "all":
            return self._slot(newest, "manual" if newest is None else "schedule")
        ends: list[JobEnd[T]] = []
        found = self._read(_STATE)
        self._left = self._missed({} if found is None else members(found.json()), terms.every_ms, newest)
        while self._left and len(ends) < slots.CAUGHT_UP_MAX:
            slot = self._left.pop(0)
            ends.append(self._slot(slot, self._trigger(slot)))
            if ends[-1].status == "held":
                break
        end = ends[-1]
        return JobEnd(end.status, end.run, end.value, tuple(ends))

    def _missed(self, state: dict[str, Any], every_ms: int, newest: int) -> list[int]:
        last = state.get("last_slot")
        if last is None:
            return [newest]
        return slots.caught_up(every_ms, newest, slots.begins(last), self._is_done(state, last))

    def _trigger(self, slot: int) -> str:
        """The reason for which a slot is run that is due."""
        return "schedule" if slot == self._newest else "catch_up"

    def _is_done(self, state: dict[str, Any], last: str) -> bool:
        """Says whether the last slot is done. Its object is read only if the state does not tell."""
        run = members(state.get("last"))
        is_told = run.get("slot") == last and run.get("status") in ("succeeded", "skipped")
        # A forgotten slot counts as done: nobody can tell, so it is not begun again.
        is_told = is_told or last <= state.get("forgotten_through", "")
        return is_told or self._read(f"slots/{last}.json") is not None

    def _instead(self, state: dict[str, Any], slot: int) -> int | None:
        """The slot that comes first, if another does: others may have begun slots while the lock was waited for."""
        every_ms, last = self._terms.every_ms, state.get("last_slot")
        if every_ms is None or last is None or last == slots.slot_text(slot):
            return None
        if slots.is_next(every_ms, slot, slots.begins(last), self._is_done(state, last)):
            return None
        newest = slots.slot_at(every_ms, _gateway_second(self._caller))
        first, *others = self._missed(state, every_ms, newest)
        if first == slot:
            return None
        self._newest, self._left = newest, others
        return first

    def _slot(self, slot: int | None, trigger: str) -> JobEnd[T]:
        """Runs one slot, again if its body raised and the caller wants that."""
        failed: Exception | None = None
        for number in range(self._terms.retries + 1):
            end, error = self._once(slot, trigger if number == 0 else "retry")
            if failed is not None and end.status == "held":
                # Somebody else goes on with it, and what this body raised was its end here.
                raise failed
            if error is None:
                return end
            failed = error
            if number == self._terms.retries:
                raise error
            # A retry is of the slot that failed, also if that was not the one asked for.
            if slot is None and end.run is not None:
                self._again = end.run.slot
            elif end.run is not None:
                slot = slots.begins(end.run.slot)
            runtime.sleep_until_ms(clock.now_ms() + (self._terms.backoff_ms << min(number, 16)))
        raise AssertionError

    def _once(self, slot: int | None, trigger: str) -> tuple[JobEnd[T], Exception | None]:
        """One attempt: what came of it, and what its body raised."""
        done = None if slot is None else self._done(slots.slot_text(slot))
        if done is not None:
            return done, None
        lock, reason = self._take(slot)
        if lock is None:
            return JobEnd("held"), None
        end: tuple[JobEnd[T], Exception | None] | None = None
        try:
            with lock:
                end = self._under(lock, slot, trigger, reason)
        except errors.LockLost:
            # What becomes of the lock once the end is recorded is no matter.
            if end is None:
                raise
        return end

    def _take(self, slot: int | None) -> tuple[Lock | None, str | None]:
        """Takes the lock, and gives the reason for which its holder was replaced, if so. None: somebody else has it."""
        terms = self._terms
        options = terms.lock.copy()
        if terms.overlap == "wait":
            options["wait"] = terms.wait or "forever"
        try:
            return acquire(self._caller, self._resource, options), None
        except (errors.LockHeld, errors.WaitElapsed):
            if terms.overlap != "replace":
                return None, None
        # What is too late to begin ends nobody's run.
        if slot is not None and terms.is_late(slot, _gateway_second(self._caller)):
            return None, None
        Admin(self._caller).break_lock(self._resource, terms.reason or "")
        options["wait"] = terms.wait or _REPLACED_WITHIN
        try:
            return acquire(self._caller, self._resource, options), terms.reason
        except errors.WaitElapsed:
            return None, None

    def _under(
        self, lock: Lock, slot: int | None, trigger: str, reason: str | None
    ) -> tuple[JobEnd[T], Exception | None]:
        """Runs a slot under the lock."""
        terms, id = self._terms, uuid7()
        found = read_whole(self._caller, self._resource, _STATE, _SIZE_MAX)
        state = {} if found is None else members(found.json())
        if state.get("v", 1) != 1:
            raise errors.Misuse(f"the state of {self._resource} is that of a newer client")
        named = slots.slot_text(slot) if slot is not None else self._unfinished(state)
        if named is not None:
            done = self._done(named)
            if done is not None:
                return done, None
            if slot is not None and terms.catch_up == "all" and trigger != "retry":
                first = self._instead(state, slot)
                if first is not None:
                    return self._under(lock, first, self._trigger(first), reason)
            if "-" not in named and named <= state.get("forgotten_through", ""):
                raise errors.Misuse(f"nobody knows any more whether {named} was done: its runs are not kept")
        now = _gateway_second(self._caller) if named is None or terms.catch_up == "none" else 0
        named = named or f"{slots.slot_text(now)}-{id[-8:]}"
        path = f"{names.resource_path(self._resource)}/objects"
        entries = Listing(self._caller, "list", ObjectEntry, path, [("prefix", "runs/")], 1_000)
        kept = Kept([entry.key for entry in entries])
        left = leftover(state, reason)
        attempt = max(kept.attempts(named), left["attempt"] if left is not None and left["slot"] == named else 0) + 1
        record: dict[str, Any] = {"v": 1, "run": id, "job": terms.name}
        if self._shard is not None:
            record["shard"], record["shards"] = self._shard
        record |= {"slot": named, "attempt": attempt, "status": "started", "owner": lock.owner, **about_here()}
        record |= {"trigger": trigger, "acquired_at": (_lock_of(self._caller, self._resource)).get("acquired_at")}
        commit, checkpoint, is_resumed = lock.commit(), f"checkpoints/{named}", False
        if left is not None:
            commit.put(self._resource, run_key(left), json=left)
        # What is tried again was begun in time.
        if slot is not None and trigger != "retry" and terms.is_late(slot, now):
            at = now_text()
            record |= {
                "status": "skipped",
                "started_at": at,
                "finished_at": at,
                "reason": "it was too late for this slot",
            }
            state = self._forget(commit, after_start(state, terms, left, record), kept, record, left)
        else:
            record["started_at"] = now_text()
            is_resumed = terms.resumes and self._read(checkpoint) is not None
            before = self._read(f"runs/{named}.{attempt - 1}.json") if is_resumed else None
            if before is not None:
                record["resumed_from"] = f"{named}.{attempt - 1}"
            state = after_start(state, terms, left, record)
        if attempt > 1 and not is_resumed:
            commit.delete(self._resource, checkpoint)
        commit.put(self._resource, run_key(record), json=record, if_absent=True)
        tag = None if found is None else found.etag
        commit.put(self._resource, _STATE, json=state, if_match=tag, if_absent=tag is None)
        if record["status"] == "skipped" or terms.is_claimed:
            self._settle(commit, record)
        committed = _sure(commit)
        if record["status"] == "skipped":
            return JobEnd("skipped", decoded(RunRecord, record)), None
        run = Run(lock, record, is_resumed)
        return self._work(run, record, state, kept, _tag_of(committed))

    def _unfinished(self, state: dict[str, Any]) -> str | None:
        """The slot that a run goes on with that names none."""
        if self._again is not None:
            return self._again
        last = members(state.get("running") or state.get("last"))
        is_over = last.get("status") in ("succeeded", "skipped", None)
        return None if is_over or not self._terms.resumes else last.get("slot")

    def _work(
        self, run: Run, record: dict[str, Any], state: dict[str, Any], kept: Kept, tag: str | None
    ) -> tuple[JobEnd[T], Exception | None]:
        """Runs the body, and records what came of it."""
        began_ms, most_ms = clock.now_ms(), self._terms.expect.get("max_runtime_ms")
        value: T | None = None
        error: Exception | None = None

        def end(status: str, reason: str | None, within: str | None = None) -> None:
            record.update(status=status, finished_at=now_text(), duration_ms=clock.now_ms() - began_ms)
            record.update({"fence": run.lock.token} if reason is None else {"fence": run.lock.token, "reason": reason})
            self._end(run.lock, record, state, kept, tag, within)

        try:
            value = runtime.limited(lambda: self._body(run), most_ms)
        except runtime.TooLong:
            error = TimeoutError(f"the run took longer than {most_ms} ms")
            end("timed_out", None)
        except Exception as raised:
            if isinstance(raised, errors.LockLost) and run.lock.status is LockStatus.LOST:
                raise
            error = raised
            end("failed", reason_of(raised))
        except BaseException as raised:
            # Of a run that was cancelled since its lock was lost, nothing can be stored.
            if run.lock.status not in (LockStatus.LOST, LockStatus.RELEASED):
                try:
                    end("cancelled", reason_of(raised), _CANCELLED_WITHIN)
                except errors.FenceError:
                    # The next run marks it.
                    pass
            raise
        else:
            end("succeeded", None)
        return JobEnd("succeeded", decoded(RunRecord, record), value), error

    def _end(
        self,
        lock: Lock,
        record: dict[str, Any],
        state: dict[str, Any],
        kept: Kept,
        tag: str | None,
        within: str | None,
    ) -> None:
        """The commit that ends a run."""
        if tag is None:
            found = read_whole(self._caller, self._resource, _STATE, _SIZE_MAX)
            tag = None if found is None else found.etag
        commit = lock.commit().put(self._resource, run_key(record), json=record)
        state = self._forget(commit, after_end(state, record), kept, record)
        commit.put(self._resource, _STATE, json=state, if_match=tag)
        if record["status"] == "succeeded":
            commit.delete(self._resource, f"checkpoints/{record['slot']}")
            if not self._terms.is_claimed:
                self._settle(commit, record)
        _sure(commit, within)

    def _settle(self, commit: Commit, record: dict[str, Any]) -> None:
        """The slot is done with that."""
        slot = {"v": 1, "run": record["run"], "object": run_key(record), "status": record["status"]}
        commit.put(self._resource, f"slots/{record['slot']}.json", json=slot, if_absent=True)

    def _forget(
        self,
        commit: Commit,
        state: dict[str, Any],
        kept: Kept,
        record: dict[str, Any],
        left: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Removes what is beyond what is kept, but not what the same commit stores."""
        objects, forgotten = kept.beyond(self._terms.keep, record, left)
        for key in objects:
            commit.delete(self._resource, key)
        if forgotten is None:
            return state
        return {**state, "forgotten_through": max(forgotten, state.get("forgotten_through", ""))}

    def _done(self, slot: str) -> JobEnd[T] | None:
        """By which run the slot is done; None: it is not."""
        found = self._read(f"slots/{slot}.json")
        if found is None:
            return None
        run = self._read(str(members(found.json()).get("object")))
        return JobEnd("done before", None if run is None else decoded(RunRecord, run.json()))

    def _read(self, key: str) -> Any:
        return read_whole(self._caller, self._resource, key, _SIZE_MAX)


def _taking_run(work: Callable[..., T]) -> Callable[[Run], T]:
    """The body of a run; one that takes nothing is told nothing."""
    wanted = inspect.signature(work).parameters.values()
    if any(one.name == "run" or one.default is one.empty for one in wanted):
        return work
    return lambda run: work()


def _sure(commit: Commit, within: str | None = None) -> Committed | None:
    """Sends a commit, and finds out what became of it. None: it took effect, and nobody knows more."""
    try:
        return commit.send(timeout=within)
    except errors.OutcomeUnknown as unknown:
        settled = unknown.resolve(within or _RESOLVED_WITHIN)
        if isinstance(settled, NotApplied):
            raise settled.error from None
        return None


def _tag_of(committed: Committed | None) -> str | None:
    """The tag of the state that a commit stored, if its answer said so."""
    results = () if committed is None else committed.results
    return next((result.etag for result in results if result.key == _STATE), None)


def _lock_of(caller: Caller, resource: str) -> dict[str, Any]:
    """What the gateway says of the lock, as it says it."""
    return members(caller.json("resource", Request("GET", names.resource_path(resource))))


def _gateway_second(caller: Caller) -> int:
    """What time it is, by the one clock that all hosts ask."""
    answer = caller.call("status", Request("GET", "/status"))
    answer.bytes()
    try:
        return int(parsedate_to_datetime(answer.headers.get("date", "")).timestamp())
    except ValueError:
        raise errors.GatewayFault("the answer has no Date: something on the way took it out") from None
