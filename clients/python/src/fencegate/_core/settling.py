"""What settles a write whose attempts went without an answer (CC23, CC24, CC24a).

Once an attempt was sent and not answered, a copy of it may still arrive. From then on only an answer that holds for
every copy ends the write with a certain result. **Safety-critical.**
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from .._words import ErrorClass
from .acquiring import Refusal, Stranger


class Condition(Enum):
    """What a write demands of what it finds."""

    NONE = "none"
    TAGS = "tags"
    """`If-Match` with tags: they never recur."""
    ABSENCE = "absence"
    """That something is not there, or a version: it may be so again later."""


class Said(Enum):
    """What came of an attempt that nobody refused."""

    DONE = auto()
    UNSENT = auto()
    UNANSWERED = auto()


@dataclass(frozen=True, slots=True)
class Beside:
    """What else the guard writes."""

    overlapped: bool = False
    """Another write was under way at some time since this one began, and the caller was not yet told that the
    outcome of this one is unknown."""
    earlier_is_open: bool = False
    """A write with a lower number is under way, or its outcome is unknown."""


ALONE = Beside()


class Verdict(Enum):
    """What follows."""

    DONE = "done"
    """It took effect, once."""
    REFUSED = "refused"
    """It took no effect and never will: the answer is the result."""
    AGAIN = "again"
    """The same again, after a pause. At the deadline the write is open or not."""
    RENUMBER = "renumber"
    """The same under the next number (CC23): it took no effect, but overlapped another write."""


# The same bytes are malformed in every copy.
_ABOUT_THE_BYTES = frozenset(
    {"fence-token-missing", "fence-token-malformed", "lock-id-mismatch", "body-malformed", "query-malformed"}
)


class Settling:
    """What is known of one write."""

    __slots__ = ("_condition", "_is_numbered", "_is_own_key", "is_open")

    def __init__(self, is_numbered: bool, condition: Condition, is_own_key: bool = False) -> None:
        self._is_numbered = is_numbered
        self._condition = condition
        self._is_own_key = is_own_key
        self.is_open = False
        """Whether a copy of an attempt may still take effect, or has."""

    def judge(self, said: Said | Refusal | Stranger, beside: Beside = ALONE) -> Verdict:
        """Judges the answer to an attempt, beside the other writes of the guard."""
        if said is Said.DONE:
            return self._settled(Verdict.DONE)
        if said is Said.UNSENT:
            return Verdict.AGAIN
        if isinstance(said, Stranger):
            # A proxy that wants to know who asks has passed nothing on. Of all else that stands in between, nobody
            # knows what it did before it answered.
            if said.status in (401, 407) and not self.is_open:
                return Verdict.REFUSED
            return self._opened()
        if isinstance(said, Refusal):
            return self._refusal(said.code, said.error_class, beside)
        return self._opened()

    def _refusal(self, code: str, error_class: ErrorClass, beside: Beside) -> Verdict:
        if error_class == ErrorClass.OUTCOME_UNKNOWN:
            return self._opened()
        if code == "idempotency-in-progress":
            # An attempt of ours that we know nothing of is under way: the key is ours alone.
            return self._opened()
        if error_class == ErrorClass.LOCK_LOST:
            # The key is looked up before the token is judged, and the token is dead for every copy.
            return self._settled(Verdict.REFUSED)
        if code == "sequence-out-of-order" and self._is_numbered:
            # Every copy has that number.
            return self._settled(Verdict.RENUMBER if beside.overlapped else Verdict.REFUSED)
        if code == "version-mismatch":
            return self._mismatch(beside)
        if code == "idempotency-key-reused":
            # Under a key that is ours alone, the other bytes are of an attempt of ours, which took effect.
            return self._opened() if self._is_own_key else self._settled(Verdict.REFUSED)
        if code in _ABOUT_THE_BYTES:
            return self._settled(Verdict.REFUSED)
        if error_class == ErrorClass.UNAVAILABLE:
            return Verdict.AGAIN
        # Limits, names, rights, marks: another gateway, or a later moment, may see it otherwise.
        return self._unless_open()

    def _mismatch(self, beside: Beside) -> Verdict:
        if self._condition is Condition.TAGS:
            return self._settled(Verdict.REFUSED)
        # A later write of ours that could make the condition true outnumbers the copy, and another holder's makes it
        # stale. Only an earlier one of ours that is open could still land before the copy.
        is_certain = self._condition is Condition.ABSENCE and self._is_numbered and not beside.earlier_is_open
        return self._settled(Verdict.REFUSED) if is_certain else self._unless_open()

    def _unless_open(self) -> Verdict:
        """The answer is the result if it was the only attempt; else it says nothing of the others."""
        return Verdict.AGAIN if self.is_open else Verdict.REFUSED

    def _settled(self, verdict: Verdict) -> Verdict:
        self.is_open = False
        return verdict

    def _opened(self) -> Verdict:
        self.is_open = True
        return Verdict.AGAIN
