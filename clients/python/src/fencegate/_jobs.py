"""What is kept of a job and its runs (docs/jobs.md), and what a caller asks for: without clocks, and without a gateway."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypedDict, TypeVar

from . import errors
from ._core import names, slots
from ._core.durations import Duration, whole_ms
from ._options import checked_number, checked_options
from ._wish import LockOptions
from ._words import Word

T = TypeVar("T")

RECENT_MAX = 50
"""How many runs the state of a job tells of."""
REASON_MAX = 500
"""How many characters a reason has."""
_PRUNED_MAX = 900
_SUMMARY = ("run", "slot", "attempt", "status", "started_at", "finished_at", "duration_ms", "reason")
_STEM = re.compile(r"runs/([0-9TZ]{16}(?:-[0-9a-f]{8})?)\.([1-9][0-9]{0,8})\.(?:json|log)")

EndStatus: TypeAlias = Literal["succeeded", "done before", "skipped", "held"]
"""What came of a call. `held`: somebody else has the lock, and nothing was done."""


class RunStatus(Word):
    """How a run stands."""

    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    """It was told to end."""
    TIMED_OUT = "timed_out"
    ABANDONED = "abandoned"
    """Its lock ended before it did."""
    SKIPPED = "skipped"
    """It was too late for its slot."""


class JobOptions(TypedDict, total=False):
    """How a job is run.

    - `every`: the interval of the schedule; the slot is the last whole multiple of it since 1970, by the gateway's clock.
      `slot`: names the slot instead, as `20261122T020000Z` or `2026-11-22T02:00:00Z`. Without either, each call is a
      slot of its own.
    - `overdue_after`: how late a slot may be; by default as long as the interval.
    - `once`: `done` (the default): a slot is run until it has succeeded. `claimed`: at most once, whatever becomes of it.
    - `overlap`: what to do if somebody else has the lock. `skip` (the default): nothing. `wait`: to wait, for ever or for
      `wait`. `replace`: to break that lock, for this `reason`.
    - `catch_up`: what to do about slots that were missed. `last` (the default): only the newest is run. `all`: each, oldest
      first, at most 100 in one call. `none`: the newest is skipped, too, if it is too late.
    - `ttl`, `owner`: of the lock.
    - `keep`: how many runs are kept; by default 200.
    - `resume`: a slot that was begun and not finished goes on with its checkpoint. Without `every` and `slot` it is that of
      the last run.
    - `retries`, `backoff`: how often a body that raised is run again at once, each time after a pause twice as long (1 s).
    - `shard`: one part of the job: its number from 0, and how many there are. `shards`: all parts that nobody else does,
      `concurrency` at a time (1), until all parts of the slot are done.
    - `max_runtime`: how long a run may take. A task is cancelled then; a thread is not, and is only shown as stuck.
    """

    every: Duration | None
    slot: str | None
    overdue_after: Duration | None
    once: Literal["done", "claimed"]
    overlap: Literal["skip", "wait", "replace"]
    reason: str | None
    catch_up: Literal["none", "last", "all"]
    ttl: Duration | Literal["infinite"] | None
    wait: Duration | Literal["forever"] | None
    owner: str | None
    keep: int
    resume: bool
    retries: int
    backoff: Duration
    shard: tuple[int, int] | None
    shards: int | None
    concurrency: int
    max_runtime: Duration | None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What is kept of a run. What is not known is None."""

    run: str
    """Its id, a UUID."""
    job: str
    slot: str
    attempt: int
    """Which run of its slot it is, from 1."""
    status: RunStatus
    shard: int | None = None
    shards: int | None = None
    owner: str | None = None
    host: str | None = None
    pid: int | None = None
    program: str | None = None
    trigger: str | None = None
    acquired_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    duration_ms: int | None = None
    exit: int | None = None
    signal: int | None = None
    reason: str | None = None
    resumed_from: str | None = None
    """The run whose checkpoint it found."""
    request: str | None = None
    fence: str | None = None
    """The token of its lock."""


@dataclass(frozen=True, slots=True)
class JobEnd(Generic[T]):
    """What came of a call."""

    status: EndStatus
    run: RunRecord | None = None
    """The run: of this call, or the one by which the slot was done before. None: there is none, or it is kept no more."""
    value: T | None = None
    """What the body gave, if it was run."""
    parts: tuple[JobEnd[T], ...] = ()
    """With `catch_up` what came of each slot, with `shards` of each part that this call looked after."""


@dataclass(frozen=True, slots=True)
class JobState:
    """How a job stands."""

    document: dict[str, Any]
    """Its `state.json`."""
    is_running: bool
    is_lost: bool
    """A run has begun, and its lock has ended without a record of its end."""
    is_overdue: bool
    is_stuck: bool


@dataclass(frozen=True, slots=True)
class Terms:
    """What a caller asks for, checked."""

    name: str
    every_ms: int | None
    slot: int | None
    expect: dict[str, int]
    is_claimed: bool
    overlap: str
    reason: str | None
    catch_up: str
    lock: LockOptions
    wait: Duration | Literal["forever"] | None
    keep: int
    resumes: bool
    retries: int
    backoff_ms: int
    shard: tuple[int, int] | None
    shards: int | None
    concurrency: int

    def is_late(self, slot: int, now: int) -> bool:
        """Whether a slot is recorded as skipped instead of run."""
        return self.catch_up == "none" and slots.is_late(slot, now, self.every_ms, self.expect.get("overdue_after_ms"))


def terms_of(name: str, options: JobOptions) -> Terms:
    """Checks what a caller wants. Raises `Misuse`, and `TypeError` for an option that is none."""
    checked_options("job()", options, JobOptions)
    every, slot, shards = options.get("every"), options.get("slot"), options.get("shards")
    shard, overlap = options.get("shard"), _word(options, "overlap", "skip", "wait", "replace")
    catch_up, once = _word(options, "catch_up", "last", "all", "none"), _word(options, "once", "done", "claimed")
    every_ms = None if every is None else whole_ms(every, "every")
    if every_ms is not None:
        slots.interval_s(every_ms)
    if shards is not None:
        checked_number("shards", shards, 1)
    slots.job_resource(name, shard if shards is None else (0, shards))
    retries = checked_number("retries", options.get("retries", 0), 0)
    waits = overlap != "skip"
    wrong = {
        "every or slot, one of them": every is not None and slot is not None,
        "shard or shards, one of them": shard is not None and shards is not None,
        "shards are of a slot: they want every or slot": shards is not None and every is None and slot is None,
        "of shards, whatever somebody else does is skipped": shards is not None and waits,
        "to catch up with all wants every": catch_up == "all" and every is None,
        "what is claimed has one try: no retries": once == "claimed" and retries > 0,
        "to replace wants a reason, and nothing else does": (overlap == "replace") != bool(options.get("reason")),
        "wait is for overlap=wait and overlap=replace": options.get("wait") is not None and not waits,
    }
    for why, is_wrong in wrong.items():
        if is_wrong:
            raise errors.Misuse(f"a job: {why}")
    reason = options.get("reason")
    lasting = {"every_ms": every, "overdue_after_ms": options.get("overdue_after")}
    lasting["max_runtime_ms"] = options.get("max_runtime")
    return Terms(
        name=name,
        every_ms=every_ms,
        slot=None if slot is None else slots.slot_second(slot),
        expect={key: whole_ms(given, key[:-3]) for key, given in lasting.items() if given is not None},
        is_claimed=once == "claimed",
        overlap=overlap,
        reason=None if reason is None else names.checked_reason(reason),
        catch_up=catch_up,
        lock={"ttl": options.get("ttl"), "owner": options.get("owner")},
        wait=options.get("wait"),
        keep=checked_number("keep", options.get("keep", 200), 1),
        resumes=options.get("resume", False),
        retries=retries,
        backoff_ms=whole_ms(options.get("backoff", "1s"), "backoff"),
        shard=shard,
        shards=shards,
        concurrency=checked_number("concurrency", options.get("concurrency", 1), 1),
    )


def _word(options: JobOptions, name: str, *words: str) -> str:
    word = options.get(name, words[0])
    if word not in words:
        raise errors.Misuse(f"{name} is {', '.join(words[:-1])} or {words[-1]}")
    return str(word)


def now_text() -> str:
    """A time for people."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def reason_of(error: BaseException) -> str:
    """Why a body failed."""
    # What is no text, such as a part of a file's name, cannot be stored.
    return f"{type(error).__name__}: {error}"[:REASON_MAX].encode(errors="replace").decode()


def about_here() -> dict[str, Any]:
    """Where a run is, without arguments of the program, which may be secrets."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "program": Path(sys.argv[0] or "python").name}


def run_key(run: dict[str, Any]) -> str:
    """The object of a run."""
    return f"runs/{run['slot']}.{run['attempt']}.json"


def leftover(state: dict[str, Any], reason: str | None) -> dict[str, Any] | None:
    """The run that began and whose end nobody recorded, as the next run marks it; `reason`: why it was replaced."""
    running = state.get("running")
    if not isinstance(running, dict):
        return None
    if reason is None:
        return {**running, "status": "abandoned"}
    return {**running, "status": "cancelled", "reason": f"replaced: {reason}"}


def after_start(
    state: dict[str, Any], terms: Terms, left: dict[str, Any] | None, run: dict[str, Any]
) -> dict[str, Any]:
    """The state of a job once this run has begun; or at once, if it is skipped."""
    state = {**state, "v": 1, "job": run["job"]}
    state.update({key: run[key] for key in ("shard", "shards") if key in run})
    # A run that somebody calls for by hand does not end what is expected of the schedule.
    expect, most = state.get("expect", {}), "max_runtime_ms"
    by_hand = {**expect, **{key: given for key, given in terms.expect.items() if key == most}}
    state["expect"] = by_hand if terms.every_ms is None else terms.expect
    if left is not None:
        state = after_end(state, left)
    if "-" not in run["slot"]:
        state["last_slot"] = max(run["slot"], state.get("last_slot", ""))
    state.setdefault("failures_in_row", 0)
    state.setdefault("recent", [])
    return {**state, "running": run} if run["status"] == "started" else after_end(state, run)


def after_end(state: dict[str, Any], run: dict[str, Any]) -> dict[str, Any]:
    """The state of a job once this run has ended."""
    state = {key: value for key, value in state.items() if key != "running"}
    summary = {key: run[key] for key in _SUMMARY if key in run}
    state.update(last=summary, recent=[summary, *state.get("recent", [])][:RECENT_MAX])
    if run["status"] == "succeeded":
        state["failures_in_row"] = 0
        # An old slot that is made up for later is not news of the schedule.
        if run["slot"] >= state.get("last_success", {}).get("slot", ""):
            state["last_success"] = summary
    elif run["status"] in (RunStatus.FAILED, RunStatus.TIMED_OUT, RunStatus.ABANDONED):
        state["failures_in_row"] = state.get("failures_in_row", 0) + 1
    return state


class Kept:
    """The runs that are kept, by the keys of their objects."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._runs: dict[tuple[str, int], list[str]] = {}
        for key in keys:
            found = _STEM.fullmatch(key)
            if found is not None:
                self._runs.setdefault((found[1], int(found[2])), []).append(key)

    def attempts(self, slot: str) -> int:
        """The number of the last run of a slot; 0: there is none."""
        return max((attempt for of, attempt in self._runs if of == slot), default=0)

    def beyond(
        self, keep: int, run: dict[str, Any], left: dict[str, Any] | None = None
    ) -> tuple[list[str], str | None]:
        """What is removed as this run ends, beside which so many are kept: the objects, and the highest slot that goes.

        These stay: the run itself and the one that it found `left`; the newest slot of the schedule, which may be called for
        still; and what is younger in the schedule than the run, since the slot of now would count as forgotten otherwise.
        """
        own = str(run["slot"])
        staying = {(str(one["slot"]), int(one["attempt"])) for one in (run, left) if one is not None}
        stems = sorted(self._runs.keys() | staying)
        newest = max((slot for slot, _ in stems if "-" not in slot), default=None)
        may_go = [
            (slot, attempt)
            for slot, attempt in stems
            if (slot, attempt) not in staying and slot != newest and ("-" in slot or slot <= own)
        ]
        going = may_go[: max(len(stems) - keep, 0)]
        of_slot = Counter(slot for slot, _ in stems)
        objects: list[str] = []
        forgotten: str | None = None
        for slot, attempt in going:
            found = list(self._runs[slot, attempt])
            of_slot[slot] -= 1
            # The slot goes with the last of its runs.
            if of_slot[slot] == 0:
                found += [f"slots/{slot}.json", f"checkpoints/{slot}"]
            if len(objects) + len(found) > _PRUNED_MAX:
                break
            objects += found
            # Slots of one run alone are never called for again.
            forgotten = slot if of_slot[slot] == 0 and "-" not in slot else forgotten
        return objects, forgotten
