"""What an acquire does after each answer (CC14 to CC19)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from .._words import ErrorClass

WAIT_MS = 25_000
"""The longest wait of one call: load balancers cut at 30 s or a minute."""

_WASTED_MAX = 3
"""So many grants of one acquire may come to nothing."""

_OVER_UNHEARD = frozenset(
    {"lock-released", "lock-superseded", "lock-broken", "lock-void", "lock-hold-exceeded", "lock-not-found"}
)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a caller waits for a lock. Without `waits` not at all; without `wait_ms` for ever."""

    waits: bool
    wait_ms: int | None = None


class Heard(Enum):
    """What came of an attempt that no gateway refused."""

    GRANTED = auto()
    DRAINING = auto()
    """It is ours, but waits for the effects of older tokens: no token yet."""
    UNSENT = auto()
    UNANSWERED = auto()
    UNSENDABLE = auto()
    """It cannot be sent at all."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A gateway gave this code and class."""

    code: str
    error_class: ErrorClass


@dataclass(frozen=True, slots=True)
class Stranger:
    """Something that is no gateway answered with this status."""

    status: int


class Next(Enum):
    """What follows."""

    TAKE = "take"
    """The lock is ours."""
    WAIT_ON = "wait-on"
    """The same call at once, with the rest of the wait."""
    AGAIN = "again"
    """The same call after a pause."""
    ANEW = "anew"
    """The same under a new id, after a pause: the old one was granted, the answer lost, and it ended."""
    LATER = "later"
    """The line is full: again after 1 to 5 s."""
    GIVE_UP = "give-up"
    """The answer is the result."""


class Acquiring:
    """What is known of one acquire."""

    __slots__ = ("_patience", "_was_left", "_wasted", "may_be_left")

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        # The same as `may_be_left`, before the attempt under way.
        self._was_left = False
        # How many grants came to nothing.
        self._wasted = 0
        self.may_be_left = False
        """Whether something of the id may be left at the gateway, so that giving up has to bury it (CC18)."""

    def wait_ms(self, left_ms: int | None) -> int | None:
        """What the next call waits, with so much left until the caller's deadline; None: it does not."""
        if not self._patience.waits:
            return None
        return WAIT_MS if left_ms is None else min(left_ms, WAIT_MS)

    def sent(self) -> None:
        """An attempt goes out."""
        self._was_left = self.may_be_left
        self.may_be_left = True

    def forget(self) -> None:
        """The id is done with: it was buried, or a guard has it."""
        self.may_be_left = False

    def wasted(self) -> Next:
        """A grant came to nothing (CC19): it was over before it was renewed, or too little of it was left.

        Another one is asked for, but not for ever: where answers take too long for the ttl, each ends so.
        """
        self._wasted += 1
        return Next.ANEW if self._wasted < _WASTED_MAX else Next.GIVE_UP

    def judge(self, said: Heard | Refusal | Stranger) -> Next:
        """Judges the answer to an attempt."""
        if isinstance(said, Refusal):
            return self._refusal(said)
        if isinstance(said, Stranger):
            return Next.AGAIN if said.status >= 500 or said.status == 429 else Next.GIVE_UP
        match said:
            case Heard.GRANTED:
                return Next.TAKE
            case Heard.DRAINING:
                return Next.WAIT_ON if self._patience.waits else Next.GIVE_UP
            case Heard.UNSENT:
                self.may_be_left = self._was_left
                return Next.AGAIN
            case Heard.UNANSWERED:
                return Next.AGAIN
            case Heard.UNSENDABLE:
                return self._refused()

    def _refusal(self, said: Refusal) -> Next:
        if said.code == "lock-wait-elapsed":
            # The place in line is kept for a while: giving up frees it.
            return Next.WAIT_ON if self._patience.waits else Next.GIVE_UP
        if said.code == "queue-full" and self._patience.waits and self._patience.wait_ms is None:
            return Next.LATER
        if said.code == "resource-draining":
            # The lock is sealed already, and only waits for the effects of older tokens.
            return Next.AGAIN if self._patience.waits else Next.GIVE_UP
        if said.code in _OVER_UNHEARD:
            self.may_be_left = False
            return Next.ANEW
        if said.error_class in (ErrorClass.UNAVAILABLE, ErrorClass.OUTCOME_UNKNOWN):
            return Next.AGAIN
        if said.error_class == ErrorClass.GATEWAY_FAULT:
            # It failed somewhere, and nobody says where.
            return Next.GIVE_UP
        return self._refused()

    def _refused(self) -> Next:
        # This attempt left nothing. An earlier one may have.
        self.may_be_left = self._was_left
        return Next.GIVE_UP
