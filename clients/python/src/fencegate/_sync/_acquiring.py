# Made by scripts/unasync.py out of ../_async/_acquiring.py: change that, and run it again.
"""An acquire under way: its attempts, its guard, and its burial if it comes to nothing (CC14 to CC19)."""

from __future__ import annotations

from typing import Any

from .. import errors
from .._core import clock
from .._core.acquiring import Acquiring, Heard, Next, Refusal, Stranger
from .._core.backoff import Backoff, portion
from .._core.durations import text
from .._core.ids import RequestIds, uuid7
from .._core.lease import Lease
from .._core.renewals import times_of
from .._core.replies import AnswerBroken, Failure, Foreign, Nothing, Problem, error_of, floor_ms, summary
from .._guard.held import Burial, Grant, Held
from .._hooks import Acquired, Retry
from .._json import items, members
from .._request import json_request
from .._wire import NotOfThisForm, S3Access, decode
from .._wish import Wish
from . import _runtime as runtime
from ._answer import Answer
from ._burying import AWAITED_MS, bury
from ._caller import Caller
from ._renewing import TOO_LATE, renew_first

_WATCHED_AFTER_MS = 5_000
"""How long a lock is held before its events are followed: short sections never pay for it (CC39)."""
_DRAINING = "the lock is not in force yet: effects of older tokens are under way"


class Acquisition:
    """An acquire under way."""

    def __init__(self, caller: Caller, wish: Wish) -> None:
        self._caller = caller
        self._shared = caller.shared
        self._wish = wish
        self._id = uuid7()
        self._machine = Acquiring(wish.patience)
        self._began_ms = clock.now_ms()
        self._until_ms: int | None = None
        if not wish.patience.waits:
            self._until_ms = self._shared.call_until_ms()
        elif wish.patience.wait_ms is not None:
            self._until_ms = self._began_ms + wish.patience.wait_ms

    def go(self) -> Held:
        """Asks until the lock is granted or given up. Whoever is told that nothing is held can rely on it."""
        try:
            return self._ask_on()
        except BaseException:
            # It is given back, and waited for, also if the caller is cancelled (CC18).
            if self._machine.may_be_left:
                self._machine.forget()
                bury(self._caller, self._burial(), AWAITED_MS)
            raise

    def _ask_on(self) -> Held:
        ids, backoff = RequestIds(), Backoff()
        while True:
            self._caller.must_not_be_closing()
            # 1. One attempt, under the id of this acquire.
            wait_ms = self._machine.wait_ms(self._left_ms())
            sent_ms = clock.now_ms()
            self._machine.sent()
            heard, lock = self._attempt(wait_ms, ids.next())
            # 2. What it says.
            following = self._machine.judge(_said(heard))
            # 3. What follows.
            pause_ms = None
            if following is Next.TAKE:
                held = self._take(lock, sent_ms)
                if held is not None:
                    self._shared.called("acquire", self._began_ms, ids.attempts, None)
                    return held
                pause_ms = self._anew(backoff) if self._machine.wasted() is Next.ANEW else None
            elif following is Next.WAIT_ON:
                # A gateway that did not wait as it was asked to is not asked at once.
                if clock.now_ms() < sent_ms + (wait_ms or 0) // 2:
                    pause_ms = backoff.next(clock.draw(), None, self._left_ms())
                else:
                    backoff = Backoff()
                    pause_ms = 0 if self._has_time() else None
            elif following is Next.AGAIN and self._shared.settings.retries:
                floor = None if isinstance(heard, Heard) else floor_ms(heard)
                pause_ms = self._in_time(backoff.next(clock.draw(), floor, self._left_ms()))
            elif following is Next.ANEW:
                pause_ms = self._anew(backoff)
            elif following is Next.LATER:
                pause_ms = 1_000 + portion(4_000, clock.draw())
            if pause_ms is None:
                error = _error(heard, ids.attempts)
                self._shared.called("acquire", self._began_ms, ids.attempts, error)
                raise error
            if pause_ms > 0:
                self._shared.hooks.tell(Retry("acquire", ids.attempts, _summary(heard)))
                runtime.sleep_until_ms(clock.now_ms() + pause_ms)

    def _left_ms(self) -> int | None:
        return None if self._until_ms is None else max(self._until_ms - clock.now_ms(), 0)

    def _has_time(self) -> bool:
        return self._left_ms() != 0

    def _in_time(self, pause_ms: int | None) -> int | None:
        left_ms = self._left_ms()
        return pause_ms if pause_ms is not None and (left_ms is None or pause_ms < left_ms) else None

    def _burial(self) -> Burial:
        return Burial(self._id, self._wish.resources, self._wish.ttl_ms)

    def _attempt(self, wait_ms: int | None, id: str) -> tuple[Heard | Failure, dict[str, Any]]:
        document = {**self._wish.document, "id": self._id}
        if wait_ms is not None:
            document["wait"] = text(wait_ms)
        request = json_request("POST", "/locks", document)
        request.wait_ms = wait_ms or 0
        reply = self._caller.transport.attempt(request, id)
        if not isinstance(reply, Answer):
            self._caller.note_slowness(reply)
            return reply, {}
        try:
            lock = members(reply.json())
            if lock and (lock.get("token") is None or lock.get("state") == "draining"):
                return Heard.DRAINING, {}
            times_of(lock)
            _s3_of(lock)
            if not isinstance(lock["token"], str) or items(lock.get("resources")) is None:
                raise AnswerBroken(Foreign(502, "no lock in the answer"))
        except AnswerBroken as broken:
            # A gateway in between that answers nonsense: again, elsewhere perhaps.
            failure = broken.failure
            return (Foreign(502, failure.detail) if isinstance(failure, Foreign) else failure), {}
        return Heard.GRANTED, lock

    def _anew(self, backoff: Backoff) -> int | None:
        """The old id is over: another one. What may be left of the old one is given back first, or the new one would
        find it in its way."""
        left_ms = self._left_ms()
        if self._machine.may_be_left:
            self._machine.forget()
            bury(self._caller, self._burial(), AWAITED_MS)
        self._id = uuid7()
        return None if left_ms == 0 else backoff.next(clock.draw(), None, left_ms)

    def _take(self, lock: dict[str, Any], sent_ms: int) -> Held | None:
        """A guard for the grant, whose time begins with the grant and not with the wait before it.

        None: it is over already, or too little of it is left (CC19).
        """
        wish, now, times = self._wish, clock.now_ms(), times_of(lock)
        lease = Lease(now, sent_ms, times.left_ms, times.ttl_ms, wish.terms, clock.draw())
        # Nobody knows when in the wait it was granted: where that matters, its clock begins with a renewal.
        is_proven = times.ttl_ms is not None and lease.can_begin(now)
        if not is_proven:
            lease = Lease.unproven(now, times.ttl_ms, wish.terms, clock.draw())
        held = Held(
            self._shared,
            Grant(
                id=self._id,
                token=lock["token"],
                resources=tuple(lock["resources"]),
                owner=wish.owner,
                lease=lease,
                versions=tuple(lock.get("versions") or ()),
                principal=lock.get("principal"),
                writers=tuple(lock.get("writers") or ()),
                s3=_s3_of(lock),
                is_numbered=wish.is_numbered,
                is_ordered=wish.is_ordered,
            ),
            runtime.where(),
        )
        if not is_proven and not self._is_proven(held, times.left_ms):
            return None
        if self._shared.is_closing:
            # `close` may have ended all guards before this one was among them.
            held.discard()
            self._caller.must_not_be_closing()
        self._machine.forget()
        if wish.is_watched:
            held.watched_ms = held.granted_ms + _WATCHED_AFTER_MS
        if self._shared.hooks.listens:
            self._shared.hooks.tell(Acquired(held.resources, (clock.now_ms() - self._began_ms) / 1000))
        self._shared.engine.keep(held)
        return held

    def _is_proven(self, held: Held, left_ms: int | None) -> bool:
        """Renews it once. If that does not succeed, its id is buried by whoever asked for it."""
        held.is_ours = False
        is_good = False
        try:
            renew_first(self._caller, held, left_ms)
            is_good = True
        except errors.FenceError:
            is_good = False
        finally:
            if not is_good:
                held.discard()
        held.is_ours = True
        return is_good


def _s3_of(lock: dict[str, Any]) -> S3Access | None:
    """What S3 tools write with under a lock that was granted; None: none of its resources lies in a bucket."""
    access = lock.get("s3")
    try:
        return None if access is None else decode(S3Access, access)
    except NotOfThisForm:
        # What it said instead may have a secret in it.
        raise AnswerBroken(Foreign(502, "no S3 key of a lock in the answer")) from None


def _said(heard: Heard | Failure) -> Heard | Refusal | Stranger:
    if isinstance(heard, Heard):
        return heard
    if isinstance(heard, Problem):
        return heard.refusal
    if isinstance(heard, Foreign):
        return heard.stranger
    if isinstance(heard, Nothing):
        return Heard.UNANSWERED if heard.was_sent else Heard.UNSENT
    return Heard.UNSENDABLE


def _summary(heard: Heard | Failure) -> str:
    if not isinstance(heard, Heard):
        return summary(heard)
    return _DRAINING if heard is Heard.DRAINING else TOO_LATE


def _error(heard: Heard | Failure, attempts: int) -> errors.FenceError:
    if not isinstance(heard, Heard):
        return error_of(heard, attempts)
    if heard is Heard.DRAINING:
        return errors.ResourceDraining(_DRAINING, attempts=attempts)
    return errors.Unavailable(TOO_LATE, attempts=attempts)
