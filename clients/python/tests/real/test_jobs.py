"""Runs of jobs against a real gateway: what is done once, what is recorded, and what bounces."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any

import httpx2
import pytest

from fencegate import (
    AsyncFencegate,
    AsyncRun,
    Changed,
    Fencegate,
    JobEnd,
    LockLost,
    LossReason,
    Misuse,
    Run,
    RunStatus,
)
from fencegate._core.ids import uuid7
from fencegate._core.slots import begins, slot_at, slot_text
from fencegate.testing import Gateway

from .waiting import HANGS_S


@pytest.fixture
def job(fencegate_resource: str) -> str:
    """The name of a job that no other test has."""
    return f"job-{uuid7()}"


def kept(client: Fencegate, job: str) -> dict[str, Any]:
    """All objects of a job."""
    resource = job if job.startswith("job:") else f"job:{job}"
    found = {entry.key: client.get(resource, entry.key) for entry in client.list(resource)}
    return {key: None if one is None else one.json() for key, one in found.items() if key.endswith(".json")} | {
        key: None if one is None else one.body for key, one in found.items() if not key.endswith(".json")
    }


def fail() -> None:
    """A body."""
    raise OSError("it failed")


def store(client: Fencegate, job: str, **objects: Any) -> None:
    """Stores records of earlier runs."""
    with client.lock(f"job:{job}", wait=HANGS_S) as lock:
        commit = lock.commit()
        for key, value in objects.items():
            commit.put(f"job:{job}", key, json=value)
        commit.send()


SLOT = "20261122T020000Z"
NEXT = "20261122T030000Z"


def test_a_run_is_recorded_from_its_beginning_to_its_end(fencegate: Fencegate, job: str) -> None:
    began: dict[str, Any] = {}

    @fencegate.job(job, every="1d", overdue_after="2h", max_runtime="3h")
    def close_books(run: Run) -> int:
        """Closes the books."""
        began.update(kept(fencegate, job))
        assert began["state.json"]["running"] == began[f"runs/{run.slot}.1.json"]
        assert (run.job, run.attempt, run.is_resumed, run.shard) == (job, 1, False, None)
        run.lock.put("books.txt", "closed")
        return 7

    before = time.time()
    end = close_books()
    assert (end.status, end.value, close_books.__doc__) == ("succeeded", 7, "Closes the books.")
    assert end.run is not None and end.run.status is RunStatus.SUCCEEDED
    assert begins(end.run.slot) in {int(at // 86_400 * 86_400) for at in (before, time.time())}
    started = began[f"runs/{end.run.slot}.1.json"]
    assert started["status"] == "started" and not {"finished_at", "fence", "duration_ms", "shard"} & started.keys()
    objects = kept(fencegate, job)
    assert objects.keys() == {"state.json", "books.txt", f"runs/{end.run.slot}.1.json", f"slots/{end.run.slot}.json"}
    record = objects[f"runs/{end.run.slot}.1.json"]
    assert record.items() >= {"v": 1, "run": end.run.run, "job": job, "slot": end.run.slot, "attempt": 1}.items()
    assert (record["status"], record["trigger"], record["owner"]) == ("succeeded", "schedule", fencegate.owner)
    assert record["program"] and "/" not in record["program"] and record["pid"] and record["host"]
    found = fencegate.resource(f"job:{job}")
    assert found is not None and datetime.fromisoformat(record["acquired_at"]) == found.acquired_at
    assert int(record["fence"]) > 0 and record["duration_ms"] >= 0
    slot = {"v": 1, "run": end.run.run, "object": f"runs/{end.run.slot}.1.json", "status": "succeeded"}
    assert objects[f"slots/{end.run.slot}.json"] == slot
    state = objects["state.json"]
    assert state["expect"] == {"every_ms": 86_400_000, "overdue_after_ms": 7_200_000, "max_runtime_ms": 10_800_000}
    assert state["last"] == state["last_success"] == state["recent"][0] and "running" not in state
    assert (state["last_slot"], state["failures_in_row"], state["last"]["run"]) == (end.run.slot, 0, end.run.run)
    again = close_books()
    assert (again.status, again.value, again.run) == ("done before", None, end.run)
    assert kept(fencegate, job) == objects


def test_of_many_callers_at_once_one_runs_the_slot(fencegate_url: str, job: str) -> None:
    ran: list[str] = []
    barrier = threading.Barrier(6)

    def call() -> JobEnd[None]:
        with Fencegate(fencegate_url) as client:
            barrier.wait()
            return client.job(job, slot=SLOT, overlap="wait").run(lambda run: ran.append(run.id))

    with ThreadPoolExecutor(6) as pool:
        ends = [one.result() for one in [pool.submit(call) for _ in range(6)]]
    assert sorted(end.status for end in ends) == ["done before"] * 5 + ["succeeded"]
    assert len(ran) == 1 and {end.run.run for end in ends if end.run} == set(ran)


def test_whoever_does_not_wait_is_told_that_somebody_else_has_it(fencegate: Fencegate, job: str) -> None:
    with fencegate.lock(f"job:{job}"), ThreadPoolExecutor(1) as pool:
        end = pool.submit(fencegate.job(job).run, lambda: 1).result()
        assert (end.status, end.run, end.value) == ("held", None, None)
        waiting = fencegate.job(job, overlap="wait", wait="100ms")
        assert pool.submit(waiting.run, lambda: 1).result().status == "held"
    assert kept(fencegate, job) == {}


def test_a_body_that_raises_is_recorded_and_the_next_run_is_the_second(fencegate: Fencegate, job: str) -> None:
    close_books = fencegate.job(job, slot=SLOT)

    def fail() -> None:
        raise ValueError("x" * 1_000)

    for number in (1, 2):
        with pytest.raises(ValueError, match="xxx"):
            close_books.run(fail)
        assert kept(fencegate, job)["state.json"]["failures_in_row"] == number
    objects = kept(fencegate, job)
    assert f"slots/{SLOT}.json" not in objects
    record = objects[f"runs/{SLOT}.2.json"]
    assert (record["status"], record["attempt"], record["reason"]) == ("failed", 2, "ValueError: " + "x" * 488)
    assert objects["state.json"]["last"]["reason"] == record["reason"]
    end = close_books.run(lambda run: run.attempt)
    assert (end.status, end.value) == ("succeeded", 3)
    state = kept(fencegate, job)["state.json"]
    assert state["failures_in_row"] == 0
    assert [run["status"] for run in state["recent"]] == ["succeeded", "failed", "failed"]


def test_a_reason_that_is_no_text_is_stored_as_far_as_it_is(fencegate: Fencegate, job: str) -> None:
    def body() -> None:
        raise OSError("no file \udcff")

    with pytest.raises(OSError):
        fencegate.job(job, slot=SLOT).run(body)
    assert kept(fencegate, job)[f"runs/{SLOT}.1.json"]["reason"] == "OSError: no file ?"


def test_retries_are_runs_of_their_own(fencegate: Fencegate, job: str) -> None:
    tokens: list[str] = []

    def second_time(run: Run) -> int:
        tokens.append(run.lock.token)
        if run.attempt == 1:
            raise OSError("not yet")
        return run.attempt

    for options in ({"slot": SLOT}, {}):
        end = fencegate.job(job, retries=1, backoff="10ms", **options).run(second_time)
        assert (end.status, end.value) == ("succeeded", 2)
        assert end.run is not None and end.run.trigger == "retry"
    assert len(set(tokens)) == 4
    began = time.monotonic()
    with pytest.raises(OSError, match="it failed"):
        fencegate.job(job, slot=NEXT, retries=2, backoff="100ms").run(fail)
    assert time.monotonic() - began >= 0.3
    state = kept(fencegate, job)["state.json"]
    assert [run["attempt"] for run in state["recent"][:3]] == [3, 2, 1]


def test_a_run_whose_lock_ran_out_is_abandoned_by_the_next(fencegate_url: str, fencegate: Fencegate, job: str) -> None:
    close_books = fencegate.job(job, slot=SLOT, ttl="9s", overlap="wait", max_runtime="1h")
    crashed, bodies = threading.Event(), []

    def hang(run: Run) -> None:
        bodies.append(run)
        # As if its process had ended: nobody renews the lock, and nobody gives it back.
        run.lock._held.stop_renewing()
        crashed.wait()

    with ThreadPoolExecutor(1) as pool, Fencegate(fencegate_url) as other:
        hanging = pool.submit(close_books.run, hang)
        while not bodies:
            time.sleep(0.01)
        running = other.job(job).state()
        assert running is not None and running.is_running and not running.is_lost and not running.is_stuck
        end = other.job(job, slot=SLOT, overlap="wait").run(lambda run: run.attempt)
        crashed.set()
        with pytest.raises(LockLost):
            hanging.result()
    assert (end.status, end.value) == ("succeeded", 2)
    objects = kept(fencegate, job)
    left = objects[f"runs/{SLOT}.1.json"]
    assert left["status"] == "abandoned" and not {"finished_at", "reason", "fence"} & left.keys()
    assert [run["status"] for run in objects["state.json"]["recent"]] == ["succeeded", "abandoned"]


def test_a_run_without_an_end_is_lost_until_the_next_one(
    fencegate: Fencegate, fencegate_gateway: Gateway, job: str
) -> None:
    assert fencegate.job(job).state() is None

    def lose() -> None:
        fencegate_gateway.take_over(f"job:{job}")
        fencegate.admin.break_lock(f"job:{job}", "the rival is done")

    with pytest.raises(LockLost):
        fencegate.job(job, slot=SLOT).run(lose)
    state = fencegate.job(job).state()
    assert state is not None and state.is_lost and not state.is_running and not state.is_overdue
    assert state.document["failures_in_row"] == 0
    fencegate.job(job, slot=NEXT).run(lambda: None)
    state = fencegate.job(job).state()
    assert state is not None and not state.is_lost
    assert [run["status"] for run in state.document["recent"]] == ["succeeded", "abandoned"]


def test_nothing_of_a_run_that_was_fenced_off_is_stored(
    fencegate: Fencegate, fencegate_gateway: Gateway, job: str
) -> None:
    before: dict[str, Any] = {}

    def late(run: Run) -> None:
        run.checkpoint.save({"page": 1})
        before.update(kept(fencegate, job))
        fencegate_gateway.take_over(f"job:{job}")
        with pytest.raises(LockLost):
            run.checkpoint.save({"page": 2})

    def fails(run: Run) -> None:
        fencegate_gateway.take_over(f"job:{job}")
        # It does not know, and its end bounces.
        raise ValueError("late")

    with pytest.raises(LockLost):
        fencegate.job(job, slot=SLOT).run(late)
    assert kept(fencegate, job) == before
    assert before[f"runs/{SLOT}.1.json"]["status"] == "started"
    assert before[f"checkpoints/{SLOT}"] == b'{"page":1}'
    fencegate.admin.break_lock(f"job:{job}", "the rival is done")
    with pytest.raises(LockLost) as lost:
        fencegate.job(job, slot=NEXT).run(fails)
    assert isinstance(lost.value.__context__, ValueError)
    objects = kept(fencegate, job)
    assert objects[f"runs/{NEXT}.1.json"]["status"] == "started" and f"slots/{NEXT}.json" not in objects


@pytest.mark.parametrize("value", [{"page": 7}, b"\x00bytes", "text", None])
def test_a_run_goes_on_with_the_checkpoint_of_the_one_before(fencegate: Fencegate, job: str, value: Any) -> None:
    def begin(run: Run) -> None:
        assert run.checkpoint.load() is None and not run.is_resumed
        run.checkpoint.save(value)
        raise OSError("the machine ended")

    with pytest.raises(OSError):
        fencegate.job(job, slot=SLOT, resume=True).run(begin)

    def go_on(run: Run) -> Any:
        assert run.is_resumed
        return run.checkpoint.load()

    end = fencegate.job(job, slot=SLOT, resume=True).run(go_on)
    assert (end.status, end.value) == ("succeeded", value)
    assert end.run is not None and end.run.resumed_from == f"{SLOT}.1"
    assert f"checkpoints/{SLOT}" not in kept(fencegate, job)


def test_without_resume_the_checkpoint_is_removed(fencegate: Fencegate, job: str) -> None:
    def begin(run: Run) -> None:
        run.checkpoint.save([1])
        raise OSError

    with pytest.raises(OSError):
        fencegate.job(job, slot=SLOT).run(begin)
    end = fencegate.job(job, slot=SLOT).run(lambda run: (run.is_resumed, run.checkpoint.load()))
    assert end.value == (False, None) and end.run is not None and end.run.resumed_from is None


def test_what_is_claimed_is_run_at_most_once(fencegate: Fencegate, job: str) -> None:
    close_books = fencegate.job(job, slot=SLOT, once="claimed")
    with pytest.raises(OSError):
        close_books.run(fail)
    end = close_books.run(lambda: 1)
    assert end.status == "done before" and end.run is not None and end.run.status is RunStatus.FAILED
    assert kept(fencegate, job)[f"slots/{SLOT}.json"]["status"] == "started"
    assert fencegate.job(job, slot=NEXT, once="claimed").run(lambda: 1).status == "succeeded"


def test_a_run_takes_the_place_of_another_and_says_why(fencegate_url: str, fencegate: Fencegate, job: str) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        go_on.wait()

    with ThreadPoolExecutor(1) as pool, Fencegate(fencegate_url) as other:
        hanging = pool.submit(fencegate.job(job, slot=SLOT).run, hang)
        assert begun.wait(HANGS_S)
        end = other.job(job, slot=SLOT, overlap="replace", reason="it hangs").run(lambda run: run.attempt)
        go_on.set()
        with pytest.raises(LockLost):
            hanging.result()
    assert (end.status, end.value) == ("succeeded", 2)
    left = kept(fencegate, job)[f"runs/{SLOT}.1.json"]
    assert (left["status"], left["reason"]) == ("cancelled", "replaced: it hangs")


def test_runs_beyond_those_that_are_kept_go_and_their_slots_are_refused(fencegate: Fencegate, job: str) -> None:
    hours = [f"20261122T{hour:02}0000Z" for hour in range(5)]
    with pytest.raises(OSError):
        fencegate.job(job, slot=hours[0], keep=2).run(fail)
    store(fencegate, job, **{f"runs/{hours[0]}.1.log": "its output", f"checkpoints/{hours[0]}": 1})
    fencegate.job(job, slot=hours[0], resume=True, keep=2).run(lambda: None)
    fencegate.job(job, slot=hours[1], keep=2).run(lambda: None)
    objects = kept(fencegate, job)
    # Of the first slot, a run is left: the slot is done as before.
    assert {f"runs/{hours[0]}.2.json", f"slots/{hours[0]}.json"} <= objects.keys()
    assert not {f"runs/{hours[0]}.1.json", f"runs/{hours[0]}.1.log"} & objects.keys()
    assert "forgotten_through" not in objects["state.json"]
    for hour in hours[3:]:
        fencegate.job(job, slot=hour, keep=2).run(lambda: None)
    objects = kept(fencegate, job)
    ends = [f"{folder}/{hour}{end}" for hour in hours[3:] for folder, end in (("runs", ".1.json"), ("slots", ".json"))]
    assert objects.keys() == {"state.json", *ends}
    assert objects["state.json"]["forgotten_through"] == hours[1]
    ran: list[int] = []
    for hour in hours[:2]:
        with pytest.raises(Misuse, match="nobody knows"):
            fencegate.job(job, slot=hour).run(lambda: ran.append(1))
    assert not ran and kept(fencegate, job) == objects
    # One that lies behind was never run.
    assert fencegate.job(job, slot=hours[2], keep=2).run(lambda: ran.append(1)).status == "succeeded"
    assert f"runs/{hours[2]}.1.json" in kept(fencegate, job)


def test_the_newest_slot_and_those_younger_than_a_run_are_not_pushed_out(fencegate: Fencegate, job: str) -> None:
    for hour in (9, 10, 11):
        fencegate.job(job, slot=f"20261122T{hour:02}0000Z", keep=10).run(lambda: None)
    # Backwards, over more runs than are kept.
    for hour in (8, 7):
        assert fencegate.job(job, slot=f"20261122T{hour:02}0000Z", keep=2).run(lambda: None).status == "succeeded"
    assert "forgotten_through" not in kept(fencegate, job)["state.json"]
    # By hand, and later.
    for _ in range(2):
        fencegate.job(job, keep=1).run(lambda: None)
    again = fencegate.job(job, slot="20261122T110000Z").run(lambda: pytest.fail("it was run again"))
    assert again.status == "done before"
    assert kept(fencegate, job)["state.json"]["forgotten_through"] == "20261122T100000Z"


def test_a_slot_that_is_forgotten_stops_no_later_one(fencegate: Fencegate, job: str) -> None:
    long_ago = slot_text(int(time.time()) - 2 * 86_400)
    state = {"v": 1, "job": job, "last_slot": long_ago, "forgotten_through": long_ago}
    store(fencegate, job, **{"state.json": state})
    ran: list[str] = []
    end = fencegate.job(job, every="1d", catch_up="all").run(lambda run: ran.append(run.slot))
    assert end.status == "succeeded" and ran and ran[0] > long_ago


def test_a_run_that_is_too_late_ends_nobodys_run(fencegate_url: str, fencegate: Fencegate, job: str) -> None:
    with fencegate.lock(f"job:{job}"), Fencegate(fencegate_url) as other:
        late = other.job(job, slot=SLOT, catch_up="none", overdue_after="1h", overlap="replace", reason="x", wait="1s")
        assert late.run(lambda: 1).status == "held"
        found = other.resource(f"job:{job}")
        assert found is not None and found.state == "leased"


def test_a_retry_is_never_too_late(fencegate: Fencegate, job: str) -> None:
    now = datetime.now(UTC)
    slot = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    late = fencegate.job(job, slot=slot, catch_up="none", overdue_after="10s", retries=1, backoff="10ms")

    def fail_when_it_is_late() -> None:
        time.sleep(max(0.0, (now + timedelta(seconds=11) - datetime.now(UTC)).total_seconds()))
        fail()

    with pytest.raises(OSError, match="it failed"):
        late.run(fail_when_it_is_late)
    assert [run["status"] for run in kept(fencegate, job)["state.json"]["recent"]] == ["failed", "failed"]


def test_what_a_body_raised_is_told_if_somebody_else_goes_on(fencegate: Fencegate, job: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        begun = threading.Event()

        def fails() -> None:
            begun.set()
            raise OSError("it failed")

        first = pool.submit(fencegate.job(job, slot=SLOT, retries=1, backoff="3s").run, fails)
        assert begun.wait(HANGS_S)
        with fencegate.lock(f"job:{job}", wait=HANGS_S), pytest.raises(OSError, match="it failed"):
            first.result()


def test_a_slot_that_is_called_for_by_hand_leaves_what_is_expected(fencegate: Fencegate, job: str) -> None:
    fencegate.job(job, every="1d", overdue_after="2h").run(lambda: None)
    fencegate.job(job, slot=SLOT, overdue_after="5m", max_runtime="1h").run(lambda: None)
    expected = {"every_ms": 86_400_000, "overdue_after_ms": 7_200_000, "max_runtime_ms": 3_600_000}
    assert kept(fencegate, job)["state.json"]["expect"] == expected


def test_a_skipped_run_stores_what_it_found_even_if_little_is_kept(
    fencegate: Fencegate, fencegate_gateway: Gateway, job: str
) -> None:
    def lose() -> None:
        fencegate_gateway.take_over(f"job:{job}")
        fencegate.admin.break_lock(f"job:{job}", "the rival is done")

    with pytest.raises(LockLost):
        fencegate.job(job, slot=SLOT, keep=1).run(lose)
    late = fencegate.job(job, slot=NEXT, keep=1, catch_up="none", overdue_after="1h")
    assert late.run(fail).status == "skipped"
    objects = kept(fencegate, job)
    assert objects[f"runs/{SLOT}.1.json"]["status"] == "abandoned" and f"slots/{NEXT}.json" in objects


def test_a_run_removes_at_most_so_many_objects(fencegate: Fencegate, job: str) -> None:
    stems = [slot_text(60 * number) for number in range(330)]
    for some in (stems[:165], stems[165:]):
        records = {f"runs/{stem}.1.json": {"status": "succeeded"} for stem in some}
        store(fencegate, job, **records, **{f"slots/{stem}.json": {} for stem in some})
    fencegate.job(job, slot=SLOT, keep=10).run(lambda: None)
    objects = kept(fencegate, job)
    # Each goes with three of 900 operations: itself, its slot and its checkpoint.
    assert objects["state.json"]["forgotten_through"] == stems[299]
    assert len([key for key in objects if key.startswith("runs/")]) == 31
    fencegate.job(job, slot=NEXT, keep=10).run(lambda: None)
    assert len([key for key in kept(fencegate, job) if key.startswith("runs/")]) == 10


def test_what_was_missed_is_run_oldest_first(fencegate: Fencegate, job: str) -> None:
    now = fencegate.job(job, every="1h").run(lambda: None).run
    assert now is not None
    last = slot_text(begins(now.slot) - 3 * 3_600)
    ran: list[str] = []

    with pytest.raises(OSError):
        fencegate.job(f"{job}-b", slot=last).run(fail)
    end = fencegate.job(f"{job}-b", every="1h", catch_up="all").run(lambda run: ran.append(run.slot))
    expected = [slot_text(begins(last) + hour * 3_600) for hour in range(4)]
    if ran[-1] == expected[-1]:  # unless an hour began meanwhile
        assert ran == expected
        assert [part.run.trigger for part in end.parts if part.run] == ["catch_up"] * 3 + ["schedule"]
    assert end.status == "succeeded" and end.run is not None and end.run.slot == ran[-1]
    again = fencegate.job(f"{job}-b", every="1h", catch_up="all").run(lambda run: ran.append(run.slot))
    assert again.status in ("done before", "succeeded") and ran == sorted(set(ran))


def test_one_call_catches_up_with_a_hundred_slots(fencegate: Fencegate, job: str) -> None:
    long_ago = slot_text(int(time.time()) - 30 * 86_400)
    store(fencegate, job, **{"state.json": {"v": 1, "job": job, "last_slot": long_ago}})
    ran: list[str] = []
    end = fencegate.job(job, every="1h", catch_up="all").run(lambda run: ran.append(run.slot))
    assert len(ran) == len(end.parts) == 100 and ran == sorted(ran) and ran[0] == long_ago
    assert kept(fencegate, job)["state.json"]["last_slot"] == ran[-1]


class Meanwhile(httpx2.HTTPTransport):
    """Lets others do something before a lock is asked for first. Until then the gateway's clock is so far behind."""

    def __init__(self, what: Callable[[], object], behind_s: int = 0) -> None:
        super().__init__()
        self.what: Callable[[], object] | None = what
        self.behind_s = behind_s

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/locks" and self.what is not None:
            what, self.what = self.what, None
            what()
        answer = super().handle_request(request)
        if self.what is not None and "date" in answer.headers:
            at = parsedate_to_datetime(answer.headers["date"]) - timedelta(seconds=self.behind_s)
            answer.headers["date"] = format_datetime(at, usegmt=True)
        return answer


LONG = "366d"
LONG_S = 366 * 86_400


def long_slots(*before: int) -> list[str]:
    """The slots of so many long intervals before this one."""
    now = slot_at(LONG_S * 1_000, int(time.time()))
    return [slot_text(now - number * LONG_S) for number in before]


@pytest.mark.parametrize("ending", ["failed", "abandoned", "failed, and another since"])
def test_a_slot_that_was_begun_while_the_lock_was_waited_for_comes_first(
    fencegate_url: str, fencegate: Fencegate, fencegate_gateway: Gateway, job: str, ending: str
) -> None:
    slots = long_slots(2, 1, 0)

    def lose() -> None:
        fencegate_gateway.take_over(f"job:{job}")
        fencegate.admin.break_lock(f"job:{job}", "the rival is done")

    def others_begin() -> None:
        with pytest.raises((OSError, LockLost)):
            fencegate.job(job, slot=slots[0]).run(lose if ending == "abandoned" else fail)
        if ending == "failed, and another since":
            fencegate.job(job).run(lambda: None)

    with Meanwhile(others_begin) as meanwhile, Fencegate(fencegate_url, transport=meanwhile) as client:
        end = client.job(job, every=LONG, catch_up="all").run(lambda run: (run.slot, run.attempt))
    assert [part.value for part in end.parts] == [(slots[0], 2), (slots[1], 1), (slots[2], 1)]
    assert [part.run.trigger for part in end.parts if part.run] == ["catch_up", "catch_up", "schedule"]


def test_what_comes_first_and_fails_is_not_jumped_over(fencegate_url: str, fencegate: Fencegate, job: str) -> None:
    slots = long_slots(1, 0)
    ran: list[str] = []

    def others_begin() -> None:
        with pytest.raises(OSError):
            fencegate.job(job, slot=slots[0]).run(fail)

    def body(run: Run) -> None:
        ran.append(run.slot)
        fail()

    with Meanwhile(others_begin) as meanwhile, Fencegate(fencegate_url, transport=meanwhile) as client:
        waiting = client.job(job, every=LONG, catch_up="all", retries=1, backoff="10ms")
        with pytest.raises(OSError):
            waiting.run(body)
    assert ran == [slots[0]] * 2
    assert kept(fencegate, job)["state.json"]["last_slot"] == slots[0]


def test_a_slot_that_was_claimed_meanwhile_is_done(fencegate_url: str, fencegate: Fencegate, job: str) -> None:
    slots = long_slots(1, 0)

    def others_begin() -> None:
        with pytest.raises(OSError):
            fencegate.job(job, slot=slots[0], once="claimed").run(fail)

    with Meanwhile(others_begin) as meanwhile, Fencegate(fencegate_url, transport=meanwhile) as client:
        end = client.job(job, every=LONG, catch_up="all", once="claimed").run(lambda run: run.slot)
    assert [part.value for part in end.parts] == slots[1:]


def test_a_slot_before_one_that_was_begun_meanwhile_is_not_begun(
    fencegate_url: str, fencegate: Fencegate, job: str
) -> None:
    slots = long_slots(0)

    def others_run() -> None:
        fencegate.job(job, every=LONG).run(lambda: None)

    with Meanwhile(others_run, LONG_S) as meanwhile, Fencegate(fencegate_url, transport=meanwhile) as client:
        end = client.job(job, every=LONG, catch_up="all").run(lambda: pytest.fail("it was run"))
    assert end.status == "done before" and end.run is not None and end.run.slot == slots[0]


def test_the_slot_of_now_is_run_although_a_later_one_was_named(fencegate: Fencegate, job: str) -> None:
    later, now = long_slots(-1, 0)
    fencegate.job(job, slot=later).run(lambda: None)
    all_of_them = fencegate.job(job, every=LONG, catch_up="all")
    assert all_of_them.run(lambda run: run.slot).value == now
    assert all_of_them.run(lambda: pytest.fail("again")).status == "done before"


def test_a_slot_for_which_it_is_too_late_is_skipped_for_good(fencegate: Fencegate, job: str) -> None:
    with pytest.raises(OSError):
        fencegate.job(job).run(fail)
    late = fencegate.job(job, slot=SLOT, catch_up="none", overdue_after="30m")
    end = late.run(lambda: pytest.fail("it was run"))
    assert end.status == "skipped" and end.run is not None and end.run.status is RunStatus.SKIPPED
    objects = kept(fencegate, job)
    assert objects[f"slots/{SLOT}.json"]["status"] == "skipped" and objects[f"runs/{SLOT}.1.json"]["reason"]
    state = objects["state.json"]
    assert (state["last_slot"], state["failures_in_row"], state["last"]["status"]) == (SLOT, 1, "skipped")
    assert "running" not in state and "last_success" not in state
    assert fencegate.job(job, slot=SLOT).run(lambda: 1).status == "done before"
    in_time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert fencegate.job(job, slot=in_time, catch_up="none", overdue_after="30m").run(lambda: 1).status == "succeeded"


@pytest.mark.parametrize("concurrency", [1, 3])
def test_two_hosts_share_the_shards_and_each_is_done_once(fencegate_url: str, job: str, concurrency: int) -> None:
    done: list[tuple[int, str]] = []
    barrier = threading.Barrier(2)

    def host(name: str) -> JobEnd[None]:
        def part(run: Run) -> None:
            assert run.shards == 5 and run.shard is not None
            time.sleep(0.05)
            done.append((run.shard, name))

        with Fencegate(fencegate_url) as client:
            barrier.wait()
            return client.job(job, slot=SLOT, shards=5, concurrency=concurrency).run(part)

    with ThreadPoolExecutor(2) as pool:
        ends = [one.result() for one in [pool.submit(host, name) for name in "ab"]]
    assert sorted(shard for shard, _ in done) == [0, 1, 2, 3, 4]
    assert [end.status for end in ends] == ["succeeded", "succeeded"] or {name for _, name in done} != {"a", "b"}
    with Fencegate(fencegate_url) as client:
        record = kept(client, f"job:{job}@3.5")[f"runs/{SLOT}.1.json"]
        assert (record["shard"], record["shards"]) == (3, 5)
        assert client.job(job, slot=SLOT, shards=5).run(lambda: pytest.fail("again")).status == "done before"
        assert client.job(job, slot=SLOT, shard=(3, 5)).run(lambda: pytest.fail("again")).status == "done before"
        state = client.job(job, shard=(3, 5)).state()
        assert state is not None and state.document["shard"] == 3


def test_a_shard_that_fails_does_not_keep_the_others_from_being_done(fencegate: Fencegate, job: str) -> None:
    done: list[int | None] = []

    def part(run: Run) -> None:
        if run.shard == 1:
            raise OSError("the second")
        done.append(run.shard)

    with pytest.raises(OSError, match="the second"):
        fencegate.job(job, slot=SLOT, shards=3).run(part)
    assert sorted(one or 0 for one in done) == [0, 2]
    end = fencegate.job(job, slot=SLOT, shards=3).run(lambda run: run.attempt)
    assert [part.value for part in end.parts if part.status == "succeeded"] == [2]


def test_a_call_without_a_slot_is_one_of_its_own(fencegate: Fencegate, job: str) -> None:
    fencegate.job(job, every="1d").run(lambda: None)
    before = kept(fencegate, job)["state.json"]
    ends = [fencegate.job(job).run(lambda run: run.id) for _ in range(2)]
    assert [end.status for end in ends] == ["succeeded", "succeeded"]
    for end in ends:
        assert end.run is not None and end.run.trigger == "manual"
        assert end.run.slot == f"{end.run.slot[:16]}-{end.run.run[-8:]}"
        assert abs(begins(end.run.slot) - time.time()) < 60
    state = kept(fencegate, job)["state.json"]
    assert (state["last_slot"], state["expect"]) == (before["last_slot"], before["expect"])

    def begin(run: Run) -> None:
        run.checkpoint.save(run.slot)
        raise OSError

    with pytest.raises(OSError):
        fencegate.job(job).run(begin)
    end = fencegate.job(job, resume=True).run(lambda run: (run.slot, run.attempt, run.checkpoint.load()))
    assert end.value is not None and end.value == (end.value[0], 2, end.value[0])
    fresh = fencegate.job(job, resume=True).run(lambda run: (run.slot, run.attempt))
    assert fresh.value is not None and fresh.value[0] != end.value[0] and fresh.value[1] == 1


WRONG: list[dict[str, Any]] = [
    {"every": "1d", "slot": SLOT},
    {"every": "1500ms"},
    {"slot": "yesterday"},
    {"shards": 4},
    {"shards": 4, "shard": (1, 4), "slot": SLOT},
    {"shards": 4, "slot": SLOT, "overlap": "wait"},
    {"shard": (4, 4)},
    {"catch_up": "all", "slot": SLOT},
    {"catch_up": "some"},
    {"once": "claimed", "retries": 1, "slot": SLOT},
    {"overlap": "replace"},
    {"reason": "no"},
    {"wait": "1s"},
    {"keep": 0},
    {"concurrency": 0},
    {"retries": -1},
]


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_options_that_make_no_sense_are_refused_at_once(fencegate: Fencegate, options: dict[str, Any]) -> None:
    with pytest.raises(Misuse):
        fencegate.job("nightly", **options)
    with pytest.raises(Misuse):
        fencegate.job("a/b")


def test_a_state_of_a_newer_client_is_left_alone(fencegate: Fencegate, job: str) -> None:
    store(fencegate, job, **{"state.json": {"v": 2}})
    with pytest.raises(Misuse, match="newer"):
        fencegate.job(job).run(lambda: None)
    assert kept(fencegate, job) == {"state.json": {"v": 2}}


def test_a_state_that_somebody_else_changed_is_not_overwritten(fencegate: Fencegate, job: str) -> None:
    with pytest.raises(Changed):
        fencegate.job(job, slot=SLOT).run(lambda run: run.lock.put("state.json", "{}"))
    objects = kept(fencegate, job)
    assert objects["state.json"] == {} and f"slots/{SLOT}.json" not in objects


def test_a_body_that_wants_a_loop_is_refused_among_threads(fencegate: Fencegate, job: str) -> None:
    async def body() -> None: ...

    with pytest.raises(Misuse, match="AsyncFencegate"):
        fencegate.job(job).run(body)


class Losing(httpx2.HTTPTransport):
    """Loses the lock of a run as soon as its end is recorded."""

    run: Run | None = None

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = super().handle_request(request)
        if self.run is not None and request.url.path == "/commit":
            self.run.lock._held.lose(LossReason.BROKEN)
        return answer


def test_what_becomes_of_the_lock_once_the_end_is_recorded_is_no_matter(
    fencegate: Fencegate, fencegate_url: str, job: str
) -> None:
    with Losing() as losing, Fencegate(fencegate_url, transport=losing) as client:

        def body(run: Run) -> int:
            losing.run = run
            return 7

        end = client.job(job, slot=SLOT).run(body)
        assert losing.run is not None and losing.run.lock.reason is LossReason.BROKEN
    assert (end.status, end.value) == ("succeeded", 7)
    assert kept(fencegate, job)[f"runs/{SLOT}.1.json"]["status"] == "succeeded"


class Cut(httpx2.BaseTransport):
    """Passes requests on, and loses the answers to commits; the first few of those who look them up hear nothing, too."""

    def __init__(self, looks: int) -> None:
        self.looks = looks
        self.lost = 0
        self._real = httpx2.HTTPTransport()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        is_look = "operations?" in str(request.url) and self.looks > 0
        if is_look:
            self.looks -= 1
        answer = self._real.handle_request(request)
        if is_look or request.url.path == "/commit":
            answer.read()
            self.lost += 1
            raise httpx2.ReadError("the answer is lost")
        return answer

    def close(self) -> None:
        self._real.close()


@pytest.mark.parametrize("looks", [0, 2])
def test_an_answer_that_is_lost_is_looked_up_until_the_outcome_is_known(
    fencegate: Fencegate, fencegate_url: str, job: str, looks: int
) -> None:
    with Cut(looks) as cut, Fencegate(fencegate_url, transport=cut, retries=False) as client:
        end = client.job(job, slot=SLOT).run(lambda: 7)
    assert (end.status, end.value) == ("succeeded", 7) and cut.lost >= 2 and cut.looks == 0
    objects = kept(fencegate, job)
    assert objects[f"runs/{SLOT}.1.json"]["status"] == "succeeded" and f"slots/{SLOT}.json" in objects


def test_a_task_that_runs_too_long_is_cancelled(fencegate_url: str, fencegate: Fencegate, job: str) -> None:
    async def call() -> None:
        async with AsyncFencegate(fencegate_url) as client:

            @client.job(job, slot=SLOT, max_runtime="100ms")
            async def slow() -> None:
                await asyncio.sleep(30)

            with pytest.raises(TimeoutError, match="100 ms"):
                await slow()

    asyncio.run(call())
    record = kept(fencegate, job)[f"runs/{SLOT}.1.json"]
    assert record["status"] == "timed_out" and record["duration_ms"] >= 100
    assert kept(fencegate, job)["state.json"]["failures_in_row"] == 1


def test_a_task_that_ends_politely_when_it_is_cancelled_has_not_succeeded(
    fencegate_url: str, fencegate: Fencegate, job: str
) -> None:
    async def call() -> None:
        async def polite() -> str:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                return "half of it"
            return "all of it"

        async with AsyncFencegate(fencegate_url) as client:
            with pytest.raises(TimeoutError, match="100 ms"):
                await client.job(job, slot=SLOT, max_runtime="100ms").run(polite)

    asyncio.run(call())
    objects = kept(fencegate, job)
    assert objects[f"runs/{SLOT}.1.json"]["status"] == "timed_out" and f"slots/{SLOT}.json" not in objects


def test_a_thread_that_is_told_to_end_is_recorded_as_cancelled(fencegate: Fencegate, job: str) -> None:
    def body() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fencegate.job(job, slot=SLOT, retries=3).run(body)
    objects = kept(fencegate, job)
    assert objects[f"runs/{SLOT}.1.json"]["status"] == "cancelled"
    assert objects["state.json"]["failures_in_row"] == 0


def test_a_task_that_is_cancelled_is_recorded_so(fencegate_url: str, fencegate: Fencegate, job: str) -> None:
    async def call() -> None:
        begun = asyncio.Event()

        async def body(run: AsyncRun) -> None:
            await run.checkpoint.save(1)
            begun.set()
            await asyncio.sleep(30)

        async with AsyncFencegate(fencegate_url) as client:
            running = asyncio.create_task(client.job(job, slot=SLOT).run(body))
            await begun.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running

    asyncio.run(call())
    objects = kept(fencegate, job)
    assert objects[f"runs/{SLOT}.1.json"]["status"] == "cancelled"
    assert objects["state.json"]["failures_in_row"] == 0


def test_a_task_is_cancelled_when_the_lock_is_lost(
    fencegate_url: str, fencegate: Fencegate, fencegate_gateway: Gateway, job: str
) -> None:
    async def call() -> None:
        async with AsyncFencegate(fencegate_url) as client:

            async def body() -> None:
                await asyncio.to_thread(fencegate_gateway.take_over, f"job:{job}")
                await asyncio.Event().wait()

            with pytest.raises(LockLost):
                await client.job(job, slot=SLOT, ttl="9s").run(body)

    asyncio.run(asyncio.wait_for(call(), HANGS_S))
    assert kept(fencegate, job)[f"runs/{SLOT}.1.json"]["status"] == "started"


def test_tasks_share_the_shards(fencegate_url: str, job: str) -> None:
    done: list[int | None] = []

    async def host() -> JobEnd[int]:
        async with AsyncFencegate(fencegate_url) as client:

            @client.job(job, slot=SLOT, shards=4, concurrency=2)
            async def part(run: AsyncRun) -> int:
                await asyncio.sleep(0.02)
                done.append(run.shard)
                return run.shard or 0

            return await part()

    async def both() -> list[JobEnd[int]]:
        return await asyncio.gather(host(), host())

    ends = asyncio.run(both())
    assert sorted(one or 0 for one in done) == [0, 1, 2, 3]
    ran = [part.value for end in ends for part in end.parts if part.status == "succeeded"]
    assert sorted(one or 0 for one in ran) == [0, 1, 2, 3]
