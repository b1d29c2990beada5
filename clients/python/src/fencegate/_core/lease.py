"""The guard and its clock (CC30 to CC38): in what state it is, when to renew, when to give the signal.

held -- deadline --> uncertain -- (on_uncertain = stop) --> lost (unconfirmed)
  `-- the gateway says so --> lost (reason)      released <-- a release, from any state but lost
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from .._words import LockStatus, LossReason
from .backoff import portion


@dataclass(frozen=True, slots=True)
class Terms:
    """How a guard is to behave."""

    holds_on: bool = False
    """After its deadline it is uncertain, not lost: for work all of whose effects go through the gateway."""
    stall_after_ms: int | None = None
    """Without a sign of life for so long, renewals stop."""
    is_renewed: bool = True


class WarningKind(Enum):
    """What is told to hooks, and not to the work (CC36)."""

    EXPIRING = "expiring"
    BREAKING = "breaking"
    REVIVED = "revived"


@dataclass(frozen=True, slots=True)
class Effects:
    """What follows from an input."""

    signal: LossReason | None = None
    """The signal, given once in the life of a guard (CC35)."""
    warning: tuple[WarningKind, int] | None = None
    """For the hooks: what, and for how many milliseconds yet, or already."""


NOTHING = Effects()


_NEVER_MS = 1 << 62


def margin_ms(ttl_ms: int) -> int:
    """What is taken off the ttl, for clocks that do not run alike (CC30)."""
    return max(ttl_ms // 100, 20)


def _least(*times: int | None) -> int | None:
    known = [time for time in times if time is not None]
    return min(known) if known else None


class Lease:
    """The state of one guard. It has no clock: the time comes with each call, in milliseconds."""

    __slots__ = (
        "_beat_ms",
        "_cap_ms",
        "_deadline_ms",
        "_due_ms",
        "_has_warned",
        "_terms",
        "breaks_ms",
        "confirmed_ms",
        "reason",
        "status",
        "ttl_ms",
    )

    def __init__(
        self, now_ms: int, sent_ms: int, left_ms: int | None, ttl_ms: int | None, terms: Terms, draw: float
    ) -> None:
        """A guard whose grant was asked for at `sent_ms`, with so much left until it expires (None: it does not)."""
        self._terms = terms
        self.status: LockStatus = LockStatus.HELD
        self.reason: LossReason | None = None
        """Why it is lost."""
        self.breaks_ms: int | None = None
        """When an operator's break is due."""
        # A ttl that was asked for and may be in force or not: nothing longer counts.
        self._cap_ms: int | None = None
        self._beat_ms = now_ms
        self._confirm(sent_ms, left_ms, ttl_ms, draw)

    @classmethod
    def unproven(cls, now_ms: int, ttl_ms: int | None, terms: Terms, draw: float) -> Lease:
        """A guard that is not given out before it was renewed: its time begins with that, and nothing is lost until then.

        Nobody works under it yet, so that no sign of life is missed before the first.
        """
        lease = cls(now_ms, now_ms, 60_000, ttl_ms, terms, draw)
        lease._beat_ms = _NEVER_MS
        return lease

    @property
    def is_live(self) -> bool:
        """Whether it is neither lost nor released."""
        return self.status is LockStatus.HELD or self.status is LockStatus.UNCERTAIN

    @property
    def deadline_ms(self) -> int | None:
        """Until when it is surely held; None: it does not expire."""
        return _least(self._deadline_ms, self.breaks_ms)

    @property
    def due_ms(self) -> int | None:
        """When the next renewal is due; None: none is."""
        return self._due_ms if self.is_live else None

    @property
    def attempt_ms(self) -> int:
        """How long one renewal may take (CC31)."""
        return 5_000 if self.ttl_ms is None else min(self.ttl_ms // 4, 5_000)

    @property
    def wake_ms(self) -> int | None:
        """When to look again, at the latest, if nothing happens."""
        stalls_ms = None if self._terms.stall_after_ms is None else self._beat_ms + self._terms.stall_after_ms
        if self.status is LockStatus.HELD:
            return _least(self.deadline_ms, self._due_ms, stalls_ms, self._warns_ms())
        if self.status is LockStatus.UNCERTAIN:
            return _least(self._due_ms, stalls_ms, self.breaks_ms)
        return None

    def can_begin(self, now_ms: int, grace_ms: int = 0) -> bool:
        """Whether there is time to begin work under it (CC19).

        More than the holder needs to end before the deadline, and than two more answers take that come as slowly as
        the last one.
        """
        needed_ms = grace_ms + 2 * max(now_ms - self.confirmed_ms, 0)
        return self.deadline_ms is None or self.deadline_ms - now_ms > needed_ms

    def joins(self, now_ms: int) -> bool:
        """Whether the renewal of another guard takes this one along (CC32)."""
        return self.due_ms is not None and self.ttl_ms is not None and now_ms - self.confirmed_ms >= self.ttl_ms // 12

    def is_stale_for_upload(self, now_ms: int) -> bool:
        """Whether a large upload is worth a renewal first (CC27)."""
        return self.due_ms is not None and self.ttl_ms is not None and now_ms - self.confirmed_ms > self.ttl_ms // 6

    def renewal_began(self, now_ms: int) -> None:
        """A renewal is under way: the next is due when this one must be over."""
        if self._due_ms is not None:
            self._due_ms = now_ms + 2 * self.attempt_ms + 1

    def stop_renewing(self) -> None:
        """Nothing is renewed from now on: a break is announced, or nobody is there who works under the lock."""
        self._due_ms = None

    def ttl_asked(self, sent_ms: int, ttl_ms: int | None) -> None:
        """The holder asks for another ttl (None: for ever), by a renewal that is sent now.

        Until that is answered, and if it never is, the shorter of the two counts.
        """
        if ttl_ms is None:
            return
        self._cap_ms = _least(self._cap_ms, ttl_ms)
        self._deadline_ms = _least(self._deadline_ms, sent_ms + ttl_ms - margin_ms(ttl_ms))
        # Nearer, it has to be renewed sooner.
        if self._terms.is_renewed and self.breaks_ms is None:
            self._due_ms = _least(self._due_ms, sent_ms + ttl_ms // 3)

    def ttl_known(self, ttl_ms: int | None) -> None:
        """The gateway has answered with the ttl that was asked for: it is in force."""
        if self._cap_ms is not None and (ttl_ms is None or ttl_ms <= self._cap_ms):
            self._cap_ms = None

    def tick(self, now_ms: int) -> Effects:
        """What follows from the time alone. It comes first after each wake-up (CC37)."""
        if not self.is_live:
            return NOTHING
        if self.breaks_ms is not None and self.breaks_ms <= now_ms:
            return self._lose(LossReason.BROKEN)
        stall_after_ms = self._terms.stall_after_ms
        if stall_after_ms is not None and self._beat_ms + stall_after_ms <= now_ms:
            return self._lose(LossReason.STALLED)
        if self._deadline_ms is not None and self._deadline_ms <= now_ms:
            if not self._terms.holds_on:
                return self._lose(LossReason.UNCONFIRMED)
            self.status = LockStatus.UNCERTAIN
            return NOTHING
        warns_ms = self._warns_ms()
        if warns_ms is not None and warns_ms <= now_ms and self._deadline_ms is not None:
            self._has_warned = True
            return Effects(warning=(WarningKind.EXPIRING, self._deadline_ms - now_ms))
        return NOTHING

    def beat(self, now_ms: int) -> Effects:
        """The work is alive (CC38)."""
        effects = self.tick(now_ms)
        if self.is_live:
            self._beat_ms = now_ms
        return effects

    def renewed(
        self, now_ms: int, sent_ms: int, left_ms: int | None, ttl_ms: int | None, draw: float
    ) -> tuple[Effects, ...]:
        """A renewal was answered, which had been sent at `sent_ms`."""
        first = self.tick(now_ms)
        if not self.is_live:
            return (first,)
        # An answer that was overtaken by a later one says nothing new.
        if sent_ms < self.confirmed_ms:
            self._again(now_ms, draw)
            return (first,)
        ended_ms = self._deadline_ms
        self._confirm(sent_ms, left_ms, ttl_ms, draw)
        # Answered too late: what it says is over already.
        if self._deadline_ms is not None and self._deadline_ms <= now_ms:
            late = self.tick(now_ms)
            self._again(now_ms, draw)
            return (first, late)
        if self.status is LockStatus.UNCERTAIN:
            self.status = LockStatus.HELD
            lapsed_ms = max(now_ms - (now_ms if ended_ms is None else ended_ms), 0)
            return (first, Effects(warning=(WarningKind.REVIVED, lapsed_ms)))
        return (first,)

    def renew_failed(self, now_ms: int, draw: float) -> Effects:
        """A renewal was not answered, or by something that is no gateway."""
        effects = self.tick(now_ms)
        if self.is_live:
            self._again(now_ms, draw)
        return effects

    def lost(self, now_ms: int, reason: LossReason) -> tuple[Effects, ...]:
        """A gateway said that the lock is over, or the client knows."""
        first = self.tick(now_ms)
        return (first, self._lose(reason)) if self.is_live else (first,)

    def breaking(self, now_ms: int, sent_ms: int, left_ms: int) -> tuple[Effects, ...]:
        """An operator's break is due, so long after it was asked about at `sent_ms`."""
        first = self.tick(now_ms)
        if not self.is_live:
            return (first,)
        # Of several answers, the soonest time counts: the latest may be the oldest.
        breaks_ms = sent_ms + left_ms
        self.breaks_ms = breaks_ms if self.breaks_ms is None else min(self.breaks_ms, breaks_ms)
        self._due_ms = None
        return (first, Effects(warning=(WarningKind.BREAKING, max(self.breaks_ms - now_ms, 0))))

    def release(self, now_ms: int) -> Effects:
        """The holder gives it back."""
        effects = self.tick(now_ms)
        if self.is_live:
            self.status = LockStatus.RELEASED
        return effects

    def _confirm(self, sent_ms: int, left_ms: int | None, ttl_ms: int | None, draw: float) -> None:
        left_ms = _least(left_ms, self._cap_ms)
        shortest_ms = _least(ttl_ms, self._cap_ms)
        taken_off_ms = margin_ms(60_000 if shortest_ms is None else shortest_ms)
        self.ttl_ms: int | None = ttl_ms
        self.confirmed_ms: int = sent_ms
        self._deadline_ms = None if left_ms is None else sent_ms + max(left_ms - taken_off_ms, 0)
        self._has_warned = False
        # A third of what is there, a tenth more or less.
        shorter_ms = _least(left_ms, ttl_ms)
        if shorter_ms is None or not self._terms.is_renewed or self.breaks_ms is not None:
            self._due_ms = None
            return
        third_ms = shorter_ms // 3
        self._due_ms = sent_ms + third_ms - third_ms // 10 + portion(third_ms // 5, draw)

    def _again(self, now_ms: int, draw: float) -> None:
        """After an attempt that failed: again soon (CC31)."""
        if self._due_ms is not None:
            every_ms = 2_000 if self.ttl_ms is None else min(self.ttl_ms // 10, 2_000)
            self._due_ms = now_ms + every_ms // 2 + portion(every_ms, draw)

    def _warns_ms(self) -> int | None:
        """A third of the ttl before the deadline, once after each confirmation."""
        if self._has_warned or not self._terms.is_renewed or self.ttl_ms is None or self._deadline_ms is None:
            return None
        return max(self._deadline_ms - self.ttl_ms // 3, 0)

    def _lose(self, reason: LossReason) -> Effects:
        self.status = LockStatus.LOST
        self.reason = reason
        # Whoever hands a lock over knows that it is gone (CC50).
        return NOTHING if reason is LossReason.TRANSFERRED else Effects(signal=reason)
