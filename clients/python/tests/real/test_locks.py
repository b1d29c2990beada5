"""Locks of real gateways, for threads."""

from __future__ import annotations

import gc
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest

from fencegate import (
    Fencegate,
    Handoff,
    LockHeld,
    LockLost,
    LockStatus,
    LossReason,
    Misuse,
    NotFound,
    WaitElapsed,
    WouldDeadlock,
)
from fencegate.hooks import Acquired, Called, Ended, Event, Expiring
from fencegate.testing import Gateway

from .waiting import HANGS_S, Renewals, until


def test_a_scope_takes_the_lock_and_gives_it_back(fencegate: Fencegate, fencegate_resource: str) -> None:
    with fencegate.lock(fencegate_resource) as lock:
        assert lock.status is LockStatus.HELD and lock.reason is None
        assert lock.resources == (fencegate_resource,)
        remaining = lock.remaining
        assert remaining is not None and timedelta(seconds=25) < remaining < timedelta(seconds=30)
        seen = fencegate.resource(fencegate_resource)
        assert seen is not None and seen.owner == fencegate.owner and seen.state == "leased"
    assert lock.status is LockStatus.RELEASED
    seen = fencegate.resource(fencegate_resource)
    assert seen is not None and seen.state == "released"


def test_the_failure_of_the_body_wins(fencegate: Fencegate, fencegate_resource: str) -> None:
    with pytest.raises(ZeroDivisionError), fencegate.lock(fencegate_resource):
        raise ZeroDivisionError
    assert fencegate.try_lock(fencegate_resource) is not None


def test_what_is_held_is_told_with_its_holder(
    fencegate: Fencegate, fencegate_url: str, fencegate_resource: str
) -> None:
    lock = fencegate.acquire(fencegate_resource, owner="first")
    with Fencegate(fencegate_url) as other:
        with pytest.raises(LockHeld) as held:
            other.acquire(fencegate_resource)
        assert held.value.holder == "first" and held.value.holder_age is not None
        assert other.try_lock(fencegate_resource) is None
        with pytest.raises(WaitElapsed):
            other.acquire(fencegate_resource, wait="300ms")
        assert lock.release()
        assert other.try_lock(fencegate_resource) is not None


def test_who_waits_gets_the_lock_when_it_is_given_back(
    fencegate: Fencegate, fencegate_url: str, fencegate_resource: str
) -> None:
    lock = fencegate.acquire(fencegate_resource)
    taken: list[str] = []

    def wait() -> None:
        with Fencegate(fencegate_url) as other, other.lock(fencegate_resource, wait="forever") as theirs:
            taken.append(theirs.token)

    waiting = threading.Thread(target=wait)
    waiting.start()
    until(lambda: fencegate.waiters(fencegate_resource).all())
    lock.release()
    waiting.join(HANGS_S)
    assert len(taken) == 1 and int(taken[0]) > int(lock.token)


def test_a_second_lock_of_the_same_thread_would_deadlock(fencegate: Fencegate, fencegate_resource: str) -> None:
    with fencegate.lock(fencegate_resource):
        with pytest.raises(WouldDeadlock):
            fencegate.acquire(fencegate_resource, wait="forever")
        with fencegate.lock(f"{fencegate_resource}:2"):
            pass


def test_a_lock_covers_all_or_nothing(fencegate: Fencegate, fencegate_url: str, fencegate_resource: str) -> None:
    both = [f"{fencegate_resource}:b", f"{fencegate_resource}:a"]
    with fencegate.lock(both) as lock:
        assert lock.resources == (both[1], both[0])
        with Fencegate(fencegate_url) as other:
            assert other.try_lock([both[0], f"{fencegate_resource}:c"]) is None
            assert other.try_lock(f"{fencegate_resource}:c") is not None
        with pytest.raises(Misuse):
            lock.put("a", "which?")
        lock.put("a", "1", resource=both[0])


def test_a_lock_is_renewed_and_kept(fencegate: Fencegate, fencegate_resource: str) -> None:
    with fencegate.lock(fencegate_resource, ttl="9s") as lock:
        renewals = Renewals(lock)
        # One comes with each third of the ttl.
        until(lambda: renewals.are(4))
        lock.put("still.txt", "mine")


def test_renewals_end_with_the_last_guard(fencegate_url: str, fencegate_resource: str) -> None:
    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "fencegate"]

    # Those of earlier tests.
    gc.collect()
    until(lambda: not threads())
    with Fencegate(fencegate_url) as client:
        assert not threads(), "nothing begins before the first guard"
        with client.lock(fencegate_resource), client.lock(f"{fencegate_resource}:2"):
            assert len(threads()) == 1, "one for all guards"
        until(lambda: not threads())


def test_an_infinite_lock_is_confirmed_and_released(fencegate: Fencegate, fencegate_resource: str) -> None:
    lock = fencegate.acquire(fencegate_resource, ttl="infinite")
    assert lock.remaining is None
    seen = fencegate.resource(fencegate_resource)
    assert seen is not None and seen.expires_in_ms is None
    lock.renew(ttl="10s")
    assert lock.remaining is not None and lock.remaining < timedelta(seconds=10)
    assert lock.release()


def test_another_ttl_is_kept(fencegate: Fencegate, fencegate_resource: str) -> None:
    with fencegate.lock(fencegate_resource, ttl="30s") as lock:
        lock.renew(ttl=timedelta(minutes=5))
        assert lock.remaining is not None and lock.remaining > timedelta(minutes=4)
        lock.renew()
        assert lock.remaining > timedelta(minutes=4)
        with pytest.raises(Misuse):
            lock.renew(ttl="25h")


def test_a_takeover_while_writing_is_told(
    fencegate: Fencegate, fencegate_gateway: Gateway, fencegate_resource: str
) -> None:
    lock = fencegate.acquire(fencegate_resource)
    lock.put("a.txt", "1")
    fencegate_gateway.take_over(fencegate_resource)
    with pytest.raises(LockLost) as lost:
        lock.put("a.txt", "2")
    assert lost.value.reason in (LossReason.SUPERSEDED, LossReason.BROKEN)
    assert lock.status is LockStatus.LOST and lock.lost.is_set()
    found = fencegate.get(fencegate_resource, "a.txt")
    assert found is not None and found.text == "1"
    with pytest.raises(LockLost):
        lock.check()


def test_a_scope_that_lost_its_lock_fails(
    fencegate: Fencegate, fencegate_gateway: Gateway, fencegate_resource: str
) -> None:
    told: list[LossReason] = []
    with (
        pytest.raises(LockLost),
        fencegate.lock(fencegate_resource, ttl="1s", on_lost=lambda loss: told.append(loss.reason)) as lock,
    ):
        fencegate_gateway.take_over(fencegate_resource)
        assert lock.lost.wait(HANGS_S)
    assert len(told) == 1


def test_guarded_work_ends_between_two_items(
    fencegate: Fencegate, fencegate_gateway: Gateway, fencegate_resource: str
) -> None:
    done: list[int] = []
    with pytest.raises(LockLost), fencegate.lock(fencegate_resource, ttl="9s") as lock:
        for item in lock.guarded(range(1_000)):
            done.append(item)
            if item == 3:
                fencegate_gateway.take_over(fencegate_resource)
                assert lock.lost.wait(HANGS_S)
    assert done == [0, 1, 2, 3]


def test_whoever_ignores_the_loss_goes_on(
    fencegate: Fencegate, fencegate_gateway: Gateway, fencegate_resource: str
) -> None:
    with fencegate.lock(fencegate_resource, ttl="1s", on_lost="ignore") as lock:
        fencegate_gateway.take_over(fencegate_resource)
        assert lock.lost.wait(HANGS_S)
    assert lock.status is LockStatus.LOST


def test_a_break_with_a_delay_lets_the_holder_end(fencegate: Fencegate, fencegate_resource: str) -> None:
    lock = fencegate.acquire(fencegate_resource, ttl="30s")
    # The next renewal, after 10 s, tells the holder.
    fencegate.admin.break_lock(fencegate_resource, "it hangs", after="20s")
    until(lambda: lock.ends_at is not None)
    assert lock.status is LockStatus.HELD
    lock.put("last.txt", "words")
    assert lock.lost.wait(HANGS_S)
    assert lock.reason is LossReason.BROKEN


def test_a_stalled_worker_loses_its_lock(fencegate: Fencegate, fencegate_resource: str) -> None:
    lock = fencegate.acquire(fencegate_resource, stall_after="5s")
    for _ in range(4):
        time.sleep(1.5)
        lock.beat()
    assert lock.status is LockStatus.HELD
    assert lock.lost.wait(HANGS_S)
    assert lock.reason is LossReason.STALLED


def test_a_guard_that_is_collected_is_given_back(fencegate: Fencegate, fencegate_resource: str) -> None:
    lock = fencegate.acquire(fencegate_resource, ttl="10m")
    assert lock.status is LockStatus.HELD
    del lock
    gc.collect()
    _until_free(fencegate, fencegate_resource)


def test_a_guard_in_a_cycle_is_given_back(fencegate: Fencegate, fencegate_resource: str) -> None:
    holder: dict[str, object] = {}
    holder["lock"] = fencegate.acquire(fencegate_resource, ttl="10m", on_lost=lambda loss: holder.clear())
    holder = {}
    gc.collect()
    _until_free(fencegate, fencegate_resource)


def _until_free(client: Fencegate, resource: str) -> None:
    with client.lock(resource, wait=HANGS_S):
        pass


def test_a_lock_whose_thread_has_ended_is_not_renewed(fencegate: Fencegate, fencegate_resource: str) -> None:
    locks = list[object]()

    def take() -> None:
        locks.append(fencegate.acquire(fencegate_resource, ttl="1s"))

    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
    (lock,) = locks
    assert lock.lost.wait(HANGS_S)  # type: ignore[attr-defined]
    assert lock.reason is LossReason.UNCONFIRMED  # type: ignore[attr-defined]


def test_a_lock_goes_to_its_successor_as_text(
    fencegate: Fencegate, fencegate_url: str, fencegate_resource: str
) -> None:
    lock = fencegate.acquire(fencegate_resource)
    lock.put("state.txt", "first stage")
    text = lock.transfer("second-stage").to_text()
    assert text.startswith("fence1:") and "\n" not in text
    assert lock.status is LockStatus.LOST and lock.reason is LossReason.TRANSFERRED and not lock.lost.is_set()
    with Fencegate(fencegate_url) as second:
        taken = second.adopt(text)
        assert taken.owner == "second-stage" and int(taken.token) > int(lock.token)
        taken.put("state.txt", "second stage")
        with pytest.raises(LockLost):
            lock.put("state.txt", "late")
        with pytest.raises(LockHeld):
            fencegate.acquire(fencegate_resource)
        assert taken.release()
    with pytest.raises(LockLost):
        fencegate.adopt(text)
    with pytest.raises(Misuse):
        Handoff.from_text("fence1:nonsense")


def test_a_fence_orders_the_holders_of_another_lock(fencegate: Fencegate, fencegate_resource: str) -> None:
    first = fencegate.fence(fencegate_resource, order=41)
    first.put("a.txt", "1")
    second = fencegate.fence(fencegate_resource, order="42")
    assert second.version == 1
    second.put("a.txt", "2")
    with pytest.raises(LockLost):
        first.put("a.txt", "late")
    with pytest.raises(LockLost) as stale:
        fencegate.fence(fencegate_resource, order=41)
    assert stale.value.reason is LossReason.ORDER_STALE
    with pytest.raises(Misuse):
        fencegate.fence(fencegate_resource, order=0)


def test_a_lent_token_writes_for_its_holder(fencegate: Fencegate, fencegate_url: str, fencegate_resource: str) -> None:
    with fencegate.lock(fencegate_resource, numbers=False) as lock, Fencegate(fencegate_url) as child:
        lent = child.lent(fencegate_resource, token=lock.token, id=lock.id)
        written = lent.put("child.txt", "mine, too")
        assert written.receipt.number is None
        lock.put("parent.txt", "still mine")
    with pytest.raises(LockLost):
        lent.put("child.txt", "late")


def test_shards_are_shared_among_workers(fencegate: Fencegate, fencegate_url: str, fencegate_resource: str) -> None:
    with Fencegate(fencegate_url) as other:
        mine = list(islice(fencegate.shards(fencegate_resource[:100], 5), 2))
        theirs = list(other.shards(fencegate_resource[:100], 5))
        assert sorted(shard.index for shard in [*mine, *theirs]) == [0, 1, 2, 3, 4]
        assert theirs[0].lock.resources[0].endswith(f"@{theirs[0].index}.5")


def test_whoever_is_elected_leads_until_it_returns(
    fencegate: Fencegate, fencegate_gateway: Gateway, fencegate_resource: str
) -> None:
    terms: list[str] = []

    def lead(lock: object) -> str:
        terms.append(lock.token)  # type: ignore[attr-defined]
        if len(terms) == 1:
            fencegate_gateway.take_over(fencegate_resource)
            fencegate_gateway.client.admin.break_lock(fencegate_resource, "so that it ends")
            assert lock.lost.wait(HANGS_S)  # type: ignore[attr-defined]
            lock.check()  # type: ignore[attr-defined]
        return "led"

    assert fencegate.elect(fencegate_resource, lead, ttl="9s", owner="10.0.0.7:9000") == "led"
    assert len(terms) == 2
    leader = next(iter(fencegate.observe(fencegate_resource)))
    assert leader is not None and leader.owner == "10.0.0.7:9000" and not leader.leads


def test_a_closed_client_gives_everything_back(
    fencegate: Fencegate, fencegate_url: str, fencegate_resource: str
) -> None:
    # Again and again, since the client's thread may not have begun yet when it is closed.
    for number in range(30):
        resource = f"{fencegate_resource}:{number}"
        other = Fencegate(fencegate_url)
        lock = other.acquire(resource)
        other.close()
        assert lock.reason is LossReason.CLOSED
        assert fencegate.try_lock(resource) is not None


def test_hooks_hear_what_happens_and_no_secrets(fencegate_url: str, fencegate_resource: str) -> None:
    heard: list[Event] = []
    with Fencegate(fencegate_url, on_event=heard.append) as client, client.lock(fencegate_resource) as lock:
        lock.put("a.txt", "1")
        secrets = (lock.id, f"'{lock.token}'", f"token={lock.token}")
    kinds = [type(event) for event in heard]
    assert Acquired in kinds and Ended in kinds and Called in kinds and Expiring not in kinds
    calls = {event.call for event in heard if isinstance(event, Called)}
    assert {"acquire", "put"} <= calls
    assert not any(secret in repr(event) for secret in secrets for event in heard)
    assert lock.id not in repr(lock) and lock.id not in repr(client)


def test_a_decorated_function_runs_under_its_lock(fencegate: Fencegate, fencegate_resource: str) -> None:
    @fencegate.locked(lambda order: f"{fencegate_resource}:{order}")
    def work(order: int) -> str:
        seen = fencegate.resource(f"{fencegate_resource}:{order}")
        return "" if seen is None else str(seen.state)

    assert work(7) == "leased"
    assert work.__name__ == "work"


def test_a_scope_is_entered_once(fencegate: Fencegate, fencegate_resource: str) -> None:
    scope = fencegate.lock(fencegate_resource)
    with scope, pytest.raises(Misuse), scope:
        pass


def test_what_was_never_locked_is_not_there(fencegate: Fencegate, fencegate_resource: str) -> None:
    assert fencegate.resource(fencegate_resource) is None
    with pytest.raises(NotFound):
        fencegate.acquire(fencegate_resource, only_if_exists=True)
    with pytest.raises(NotFound):
        fencegate.lock_record("01981b2e-5d0a-7c3e-9d52-0a8f6c1f4b21")


@contextmanager
def handling(handler: Any) -> Iterator[None]:
    """With this handler of SIGINT, whatever this process began with."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@handling(signal.default_int_handler)
def test_a_body_in_the_main_thread_is_interrupted_if_it_wants_that(
    fencegate: Fencegate, fencegate_gateway: Gateway, fencegate_resource: str
) -> None:
    rival = threading.Timer(0.2, fencegate_gateway.take_over, [fencegate_resource])
    with pytest.raises(LockLost) as loss, fencegate.lock(fencegate_resource, ttl="9s", interrupt_main=True):
        rival.start()
        # Nothing else ends it.
        while True:
            time.sleep(0.05)
    assert loss.value.reason in (LossReason.BROKEN, LossReason.SUPERSEDED)
    rival.join()


@handling(signal.SIG_IGN)
def test_whoever_ignores_interruptions_is_told(fencegate: Fencegate, fencegate_resource: str) -> None:
    with pytest.raises(Misuse, match="SIGINT"), fencegate.lock(fencegate_resource, interrupt_main=True):
        pass
    assert fencegate.resource(fencegate_resource) is None


def test_a_thread_cannot_be_interrupted_and_takes_no_lock(fencegate: Fencegate, fencegate_resource: str) -> None:
    told: list[BaseException] = []

    def work() -> None:
        try:
            with fencegate.lock(fencegate_resource, interrupt_main=True):
                pass
        except Misuse as misuse:
            told.append(misuse)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(told) == 1
    assert fencegate.resource(fencegate_resource) is None
