"""What all parts of the client know of one guard: its token, its clock, its signal."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from .. import errors
from .._core import clock
from .._core.classes import is_dead_everywhere, loss_of
from .._core.lease import NOTHING, Effects, Lease, WarningKind
from .._core.numbers import Numbers
from .._core.replies import Problem, error_of_problem
from .._core.turn import Turn
from .._hooks import Breaking, Ended, Expiring, Revived
from .._wire import S3Access
from .._words import LockStatus, LossReason

if TYPE_CHECKING:
    from .._shared import Shared


class Facade(Protocol):
    """The object in the caller's hand."""

    def _signalled(self, loss: errors.LockLost) -> None:
        """The guard is lost."""
        ...

    def _forked(self) -> None:
        """It is lost since this process is a copy."""
        ...


@dataclass(slots=True)
class Grant:
    """What a guard is made of."""

    id: str
    token: str
    resources: tuple[str, ...]
    owner: str
    lease: Lease
    versions: tuple[int, ...] = ()
    principal: str | None = None
    writers: tuple[str, ...] = ()
    s3: S3Access | None = None
    """What S3 tools write with under it, as the answer said that granted it."""
    is_ours: bool = True
    """Whether the lock is ours to give back. Not so for a fence, or one that was lent."""
    is_numbered: bool = True
    """Whether writes have numbers (CC23)."""
    is_ordered: bool = False
    """Whether it sends one write at a time."""


@dataclass(frozen=True, slots=True)
class Burial:
    """An id to be given back, whether or not a lock was granted under it."""

    id: str
    resources: tuple[str, ...]
    ttl_ms: int | None
    """When the lock is over by itself; None: never, so that nobody ever stops asking."""


@dataclass(slots=True)
class Where:
    """Where a guard was taken: in which task, or by which thread."""

    place: object = None
    """The task, or the thread (CC19a)."""
    thread: threading.Thread | None = field(default=None)
    """The thread that owns it; None: it lives on a loop, and ends with it."""


class Held:
    """One guard."""

    __slots__ = (
        "__weakref__",
        "_facade",
        "_has_ended",
        "_lock",
        "_transfers",
        "granted_ms",
        "id",
        "in_order",
        "is_buried",
        "is_followed",
        "is_numbered",
        "is_ours",
        "lease",
        "loss",
        "numbers",
        "owner",
        "principal",
        "queued_ms",
        "renewing",
        "resources",
        "s3",
        "shared",
        "token",
        "versions",
        "watched_ms",
        "where",
        "words",
        "write_headers",
        "writers",
    )

    def __init__(self, shared: Shared, grant: Grant, where: Where) -> None:
        self.shared: Shared = shared
        self.id: str = grant.id
        self.token: str = grant.token
        self.resources: tuple[str, ...] = grant.resources
        self.versions: tuple[int, ...] = grant.versions
        self.owner: str = grant.owner
        self.principal: str | None = grant.principal
        self.writers: tuple[str, ...] = grant.writers
        # No later answer changes it (CC14b).
        self.s3: S3Access | None = grant.s3
        self.is_ours: bool = grant.is_ours
        self.is_numbered: bool = grant.is_numbered
        self.lease: Lease = grant.lease
        self.words: str | None = None
        """Why an operator breaks it, in the operator's words, as heard last."""
        self.where: Where = where
        self.granted_ms: int = clock.now_ms()
        self.numbers: Numbers = Numbers()
        self.in_order: Turn | None = Turn() if grant.is_ordered else None
        # Had by whoever renews it: answers never overtake each other.
        self.renewing: Turn = Turn()
        self.write_headers: list[tuple[bytes, bytes]] = [
            (b"X-Fence-Token", self.token.encode()),
            (b"X-Lock-Id", self.id.encode()),
        ]
        self.is_buried: bool = False
        """Whether a gateway has confirmed its release."""
        self.loss: errors.LockLost | None = None
        """Why it was lost, with what the gateway said of it."""
        self.queued_ms: int | None = None
        """When the keeper looks at it next."""
        self.watched_ms: int | None = None
        """When its events are to be followed; None: they are, or nobody wants that."""
        self.is_followed: bool = False
        """Whether its events are followed."""
        self._facade: weakref.ref[Facade] | None = None
        self._lock = threading.RLock()
        self._has_ended = False
        # Whether a transfer is under way: what is heard of a successor is no loss.
        self._transfers = False
        shared.add(self)

    def __repr__(self) -> str:
        return f"Held({', '.join(self.resources)})"

    def tell(self, facade: Facade) -> None:
        """This object in the caller's hand is told of a loss. It is not kept alive by that."""
        self._facade = weakref.ref(facade)

    def for_signal(self) -> threading.RLock:
        """The lock under which the signal is made."""
        return self._lock

    # The clock.

    def look(self) -> None:
        """Compares the clock with the deadline."""
        with self._lock:
            effects = self.lease.tick(clock.now_ms())
        if effects is not NOTHING:
            self._carry_out((effects,))

    def status(self) -> LockStatus:
        """The state as of now."""
        self.look()
        return self.lease.status

    def is_live(self) -> bool:
        """Whether it is neither lost nor released, as of now."""
        self.look()
        return self.lease.is_live

    def check(self) -> None:
        """That a write may be begun (CC21): raises `LockLost` if not."""
        self.look()
        self._must_be_live()

    def begin_call(self) -> None:
        """The same, as a sign of life (CC38)."""
        with self._lock:
            effects = self.lease.beat(clock.now_ms())
        if effects is not NOTHING:
            self._carry_out((effects,))
        self._must_be_live()

    def _must_be_live(self) -> None:
        if self.lease.is_live:
            return
        if self.lease.status is LockStatus.RELEASED:
            raise errors.lost(LossReason.RELEASED)
        raise self.loss_error()

    def loss_error(self) -> errors.LockLost:
        """Why it was lost, as a new error."""
        reason = self.lease.reason or LossReason.GONE
        if self.loss is None or self.loss.reason is not reason:
            return errors.lost(reason)
        error = errors.lost(reason)
        error.__dict__.update(self.loss.__dict__)
        error.args = self.loss.args
        return error

    def lost_reason(self) -> LossReason | None:
        """Why it was lost; None: it was not."""
        return self.lease.reason if self.status() is LockStatus.LOST else None

    # What is learnt.

    def heard_why(self, words: object) -> None:
        """An operator breaks it, or has, for this reason."""
        if isinstance(words, str):
            self.words = words

    def lose(self, reason: LossReason, problem: Problem | None = None) -> None:
        """A gateway said that it is over, or the client knows."""
        if reason is LossReason.SUPERSEDED and self._transfers:
            return
        with self._lock:
            effects = self.lease.lost(clock.now_ms(), reason)
        self._carry_out(effects, problem)

    def refused(self, problem: Problem) -> None:
        """A gateway refused something of this guard: is it over?"""
        reason = loss_of(problem.code)
        if reason is not None:
            self.lose(reason, problem)

    def renewed(self, sent_ms: int, left_ms: int | None, ttl_ms: int | None) -> None:
        """A renewal was answered."""
        with self._lock:
            effects = self.lease.renewed(clock.now_ms(), sent_ms, left_ms, ttl_ms, clock.draw())
        self._carry_out(effects)

    def renew_failed(self) -> None:
        """A renewal was not answered."""
        with self._lock:
            effects = self.lease.renew_failed(clock.now_ms(), clock.draw())
        self._carry_out((effects,))

    def breaking(self, sent_ms: int, left_ms: int) -> None:
        """An operator's break is due."""
        with self._lock:
            effects = self.lease.breaking(clock.now_ms(), sent_ms, left_ms)
        self._carry_out(effects)
        self.shared.engine.poke(self)

    def stop_renewing(self) -> None:
        """Nothing is renewed from now on."""
        with self._lock:
            self.lease.stop_renewing()

    def ttl_asked(self, sent_ms: int, ttl_ms: int | None) -> None:
        """The holder asks for another ttl."""
        with self._lock:
            self.lease.ttl_asked(sent_ms, ttl_ms)
        self.shared.engine.poke(self)

    def ttl_known(self, ttl_ms: int | None) -> None:
        """The gateway has answered with that ttl."""
        with self._lock:
            self.lease.ttl_known(ttl_ms)

    def renewal_began(self, now_ms: int) -> None:
        """A renewal is under way."""
        with self._lock:
            self.lease.renewal_began(now_ms)

    def begin_transfer(self, begins: bool) -> None:
        """A transfer begins, or has failed."""
        self._transfers = begins

    def transferred(self) -> None:
        """It was handed to a successor."""
        self.lose(LossReason.TRANSFERRED)
        self.ended(LossReason.TRANSFERRED)

    # Its end.

    def release(self) -> LockStatus:
        """No renewals any more, and no new writes. Gives the state before."""
        before = self.status()
        with self._lock:
            effects = self.lease.release(clock.now_ms())
        self._carry_out((effects,))
        if self.lease.status is LockStatus.RELEASED:
            self.ended(LossReason.RELEASED)
        return before

    def dropped(self) -> None:
        """Nobody has it in hand any more: it is given back in the background."""
        if self.release() in (LockStatus.HELD, LockStatus.UNCERTAIN) and self.is_ours:
            self.shared.engine.bury(self.burial())

    def discard(self) -> None:
        """It was never given out: nobody is told of its end."""
        with self._lock:
            self._has_ended = True
            self.lease.status = LockStatus.RELEASED
        self.shared.remove(self)

    def forked(self) -> None:
        """This process is a copy of the one that holds it: it is lost here, and nobody is told."""
        # Whoever held these locks is not here.
        self._lock = threading.RLock()
        self.numbers = Numbers()
        self.renewing = Turn()
        if self.in_order is not None:
            self.in_order = Turn()
        if self.lease.is_live:
            self.lease.status = LockStatus.LOST
            self.lease.reason = LossReason.FORKED
            self.loss = errors.lost(LossReason.FORKED)
            facade = None if self._facade is None else self._facade()
            if facade is not None:
                facade._forked()
        self._has_ended = True

    def burial(self) -> Burial:
        """How its lock is given back."""
        return Burial(self.id, self.resources, self.lease.ttl_ms)

    def ended(self, reason: LossReason) -> None:
        """The guard is over: the hooks are told, once."""
        self.shared.remove(self)
        with self._lock:
            if self._has_ended:
                return
            self._has_ended = True
        if self.is_followed:
            self.shared.engine.over(self)
        self.shared.hooks.tell(Ended(self.resources, reason, (clock.now_ms() - self.granted_ms) / 1000))

    def _carry_out(self, many: tuple[Effects, ...], problem: Problem | None = None) -> None:
        for effects in many:
            if effects.warning is not None:
                self._warn(*effects.warning)
            if effects.signal is not None:
                self._signal(effects.signal, problem)

    def _warn(self, kind: WarningKind, ms: int) -> None:
        event = {WarningKind.EXPIRING: Expiring, WarningKind.BREAKING: Breaking, WarningKind.REVIVED: Revived}[kind]
        self.shared.hooks.tell(event(self.resources, ms / 1000))

    def _signal(self, reason: LossReason, problem: Problem | None) -> None:
        error = None if problem is None or loss_of(problem.code) is not reason else error_of_problem(problem, 1)
        words = self.words if reason is LossReason.BROKEN else None
        loss = error if isinstance(error, errors.LockLost) else errors.lost(reason, words)
        loss.reason = reason
        self.loss = loss
        facade = None if self._facade is None else self._facade()
        if facade is not None:
            facade._signalled(loss)
        self.ended(reason)
        # Where it may still be there, the gateway is told that it is over, so that others can have it and late copies
        # of writes bounce (CC46).
        if self.is_ours and not is_dead_everywhere(reason, len(self.resources)):
            self.shared.engine.bury(self.burial())
