"""The machines: what they decide, step by step."""

from __future__ import annotations

from typing import Any

from fencegate import ErrorClass, LockStatus
from fencegate._core.acquiring import Acquiring, Heard, Next, Patience, Refusal, Stranger
from fencegate._core.backoff import Backoff, portion
from fencegate._core.classes import loss_of
from fencegate._core.lease import NOTHING, Effects, Lease, Terms
from fencegate._core.leaving import Body, Release, leave
from fencegate._core.settling import Beside, Condition, Said, Settling, Verdict

from .replay import cases, classed, foreign, reason

RETRIED = (ErrorClass.UNAVAILABLE, ErrorClass.OUTCOME_UNKNOWN)


@cases("lease")
def test_lease(case: dict[str, Any]) -> None:
    granted, draw = case["granted"], case["draw"]
    terms = Terms(case["on_uncertain"] == "hold", case["stall_after_ms"], case["is_renewed"])
    lease = Lease(granted["at"], granted["sent"], granted["left_ms"], granted["ttl_ms"], terms, draw)
    _compare(granted["at"], granted["then"], lease, ())
    for step in case["steps"]:
        _compare(step["at"], step["then"], lease, _step(lease, step, draw))


def _step(lease: Lease, step: dict[str, Any], draw: float) -> tuple[Effects, ...]:
    now = step["at"]
    match step["on"]:
        case "clock":
            return (lease.tick(now),)
        case "asked":
            effects = lease.tick(now)
            lease.ttl_asked(now, step["ttl_ms"])
            return (effects,)
        case "renewed":
            if step.get("asked"):
                lease.ttl_known(step["ttl_ms"])
            return lease.renewed(now, step["sent"], step["left_ms"], step["ttl_ms"], draw)
        case "failed":
            return (lease.renew_failed(now, draw),)
        case "refused":
            lost = loss_of(step["code"])
            return (lease.tick(now),) if lost is None else lease.lost(now, lost)
        case "breaking":
            return lease.breaking(now, now, step["left_ms"])
        case "ended":
            lost = reason(step["reason"])
            assert lost is not None
            return lease.lost(now, lost)
        case "release":
            return (lease.release(now),)
        case "beat":
            return (lease.beat(now),)
        case other:
            raise AssertionError(other)


def _compare(now: int, then: dict[str, Any], lease: Lease, effects: tuple[Effects, ...]) -> None:
    assert lease.status == then["state"]
    assert (lease.reason if lease.status is LockStatus.LOST else None) == then.get("reason")
    signals = [one.signal for one in effects if one.signal is not None]
    assert signals == ([then["signal"]] if then.get("signal") else [])
    assert [one.warning[0].value for one in effects if one.warning is not None] == then.get("hooks", [])
    if "joins" in then:
        assert (lease.deadline_ms, lease.due_ms, lease.joins(now)) == (
            then["deadline"],
            then["renew_at"],
            then["joins"],
        )
    if "attempt_ms" in then:
        assert lease.attempt_ms == then["attempt_ms"]
    assert all(one is NOTHING or one != NOTHING for one in effects)


@cases("retry")
def test_retry(case: dict[str, Any]) -> None:
    backoff, now, end, draw = Backoff(), 0, None, 0.5
    draws = iter(case["draws"])
    for attempt in case["attempts"]:
        assert attempt["start"] == now and end is None
        now = attempt["end"]
        if attempt["got"] == "ok":
            end = (now, None, None)
            continue
        kind, code, again = _judged(attempt["got"], case.get("ride_out", False))
        draw = next(draws, draw)
        left_ms = case["deadline_ms"] - now
        pause_ms = backoff.next(draw, attempt.get("retry_after_ms"), left_ms)
        if pause_ms is not None and again and not case.get("once") and pause_ms < left_ms:
            now += pause_ms
        else:
            end = (now, kind, code)
    expected = case["end"]
    assert end == (expected["at"], expected.get("class"), expected.get("code"))


def _judged(got: str, rides_out: bool) -> tuple[str, str | None, bool]:
    """The class and code of what an attempt got, and whether it is repeated."""
    status = foreign(got)
    if got in ("nothing", "not-connected"):
        return "Unavailable", None, True
    if status is not None:
        if status in (401, 403, 407):
            return "Denied", None, False
        return ("Unavailable", None, True) if status >= 500 or status == 429 else ("GatewayFault", None, False)
    code, kind = classed(got)
    rides = rides_out and code in ("resource-frozen", "resource-draining")
    again = kind in RETRIED or code == "idempotency-in-progress" or rides
    # A call that can be made again is never unknown in the end.
    return ("Unavailable" if kind is ErrorClass.OUTCOME_UNKNOWN else str(kind)), code, again


def _heard(got: str) -> Heard | Refusal | Stranger:
    words = {
        "granted": Heard.GRANTED,
        "draining": Heard.DRAINING,
        "nothing": Heard.UNANSWERED,
        "not-connected": Heard.UNSENT,
    }
    status = foreign(got)
    if got in words:
        return words[got]
    return Refusal(*classed(got)) if status is None else Stranger(status)


_RENEW = "/locks/{id}/renew"


def _is_good(turn: dict[str, Any], case: dict[str, Any]) -> bool:
    """Whether the guard may be given out that this answer grants or renews."""
    if turn["got"] not in ("granted", "renewed"):
        return False
    now, ttl_ms = turn["answered_at"], case["ttl_ms"]
    lease = Lease(now, turn["at"], turn.get("left_ms", ttl_ms), ttl_ms, Terms(), case["draw"])
    return lease.can_begin(now, case.get("grace_ms", 0))


@cases("acquire")
def test_acquire(case: dict[str, Any]) -> None:
    """What the machine decides, turn by turn, and the pauses between. Releases, and renewals before a guard is returned,
    are sent by others: here only that one is due, and what follows from its answer."""
    wait, draw = case["wait"], case["draw"]
    patience = Patience(wait is not None, wait if isinstance(wait, int) else None)
    until = 30_000 if wait is None else None if wait == "forever" else wait
    backoff, machine = Backoff(), Acquiring(patience)

    def left(now: int) -> int | None:
        return None if until is None else max(until - now, 0)

    id, due, last = 1, 0, None
    # When the last id was over, whose grant came to nothing.
    ended_at = None
    for place, turn in enumerate(case["turns"]):
        now = turn.get("answered_at")
        if turn["path"] != "/locks":
            renews = turn["path"] == _RENEW
            following = None if not renews else Next.TAKE if _is_good(turn, case) else machine.wasted()
            assert turn.get("next") == (None if following is None else following.value)
            # What is given back comes before the next id.
            if following is Next.ANEW or ended_at is not None:
                ended_at = now
            continue
        if ended_at is not None:
            pause_ms = backoff.next(draw, None, left(ended_at))
            due = None if pause_ms is None else ended_at + pause_ms
            id, ended_at = id + 1, None
            machine.forget()
        assert (turn["method"], turn["at"], turn["id"]) == ("POST", due, id)
        assert machine.wait_ms(left(turn["at"])) == turn["wait_ms"]
        machine.sent()
        if now is None or turn.get("got") is None:
            continue
        last = turn["got"]
        following = machine.judge(_heard(last))
        assert following.value == turn["next"]
        if following is Next.TAKE:
            renews = any(later["path"] == _RENEW for later in case["turns"][place + 1 : place + 2])
            assert renews == (case["ttl_ms"] is None or not _is_good(turn, case))
        pause_ms = None
        if following is Next.WAIT_ON:
            pause_ms = 0 if left(now) != 0 else None
        elif following is Next.AGAIN and not case["once"]:
            pause_ms = backoff.next(draw, turn.get("retry_after_ms"), left(now))
        elif following is Next.ANEW:
            id += 1
            machine.forget()
            pause_ms = backoff.next(draw, None, left(now))
        elif following is Next.LATER:
            pause_ms = 1_000 + portion(4_000, draw)
        due = None if pause_ms is None else now + pause_ms
    result = case["result"]
    is_released = case["turns"][-1]["method"] == "DELETE"
    if "guard" in result:
        assert (result["guard"], is_released) == (id, False)
        return
    assert (case["cancelled_at"] is not None) == result.get("cancelled", False)
    if result.get("code") is not None and last is not None:
        assert (result["code"], result["class"]) == (last, classed(last)[1])
    assert is_released == machine.may_be_left


@cases("write")
def test_write(case: dict[str, Any]) -> None:
    settling = Settling(case["numbered"], Condition(case["condition"]))
    number = 1 if case["numbered"] else None
    last: tuple[Verdict, str] | None = None
    for sent in case["attempts"]:
        assert sent.get("number") == number
        words = {"done": Said.DONE, "nothing": Said.UNANSWERED, "not-connected": Said.UNSENT}
        said = words.get(sent["got"]) or _heard(sent["got"])
        assert not isinstance(said, Heard)
        verdict = settling.judge(said, Beside(sent["overlapped"], sent.get("earlier_is_open", False)))
        assert (verdict.value, settling.is_open) == (sent["verdict"], sent["open"])
        if verdict is Verdict.RENUMBER and number is not None:
            number += 1
        last = (verdict, sent["got"])
    _follows(case, settling, last)


def _follows(case: dict[str, Any], settling: Settling, last: tuple[Verdict, str] | None) -> None:
    """What follows from that for the caller."""
    result = case["result"]
    if last is None:
        assert result["class"] == "LockLost"
    elif last[0] is Verdict.DONE:
        assert result.get("applied") and not result.get("replayed")
    elif last[0] is Verdict.REFUSED:
        if foreign(last[1]) is not None:
            assert result["class"] == "Denied"
            return
        code, kind = classed(last[1])
        assert (result["class"], result["code"]) == (kind, code)
        if kind is ErrorClass.LOCK_LOST:
            assert result["reason"] == loss_of(code)
    elif settling.is_open and case["asks"]:
        found = case["asks"][-1]["got"]
        if found == "applied":
            assert result.get("applied") and result.get("replayed")
        elif case.get("abandoned"):
            assert result.get("not_applied")
        else:
            assert result["class"] == "OutcomeUnknown"
    else:
        assert result["class"] == ("OutcomeUnknown" if settling.is_open else "Unavailable")


@cases("scope")
def test_scope(case: dict[str, Any]) -> None:
    outcome, release = leave(Body(case["body"]), reason(case["lost"]), case["on_lost"] == "ignore")
    assert outcome.value == case["outcome"]["is"]
    if "reason" in case["outcome"]:
        assert case["outcome"]["reason"] == case["lost"]
    assert release.value == case["release"]
    # The order follows from that; the conformance scenarios look at it.
    calls = case["calls"]
    is_due = case["release_answer"] is not None
    assert is_due == (release is not Release.NONE) == ("release" in calls)
    if is_due:
        is_awaited = calls.index("release") < calls.index("return")
        assert is_awaited == (release is Release.AWAITED)
    assert ("wait-for-writes" in calls) == (case["writes_under_way"] and release is Release.AWAITED)
    assert bool(case["hooks"]) == (is_due and case["release_answer"] != "ok")
