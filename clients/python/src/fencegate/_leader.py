"""Who leads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ._words import LockState


@dataclass(frozen=True, slots=True)
class Leader:
    """Whose lock it is."""

    owner: str
    """The name that the holder gave itself."""
    since: datetime
    state: LockState
    """What the lock is doing; see `leads`."""

    @property
    def leads(self) -> bool:
        """Whether it leads still: a lock that was released or broken leads no more. One that has expired is nobody
        else's yet, so that its holder may still write."""
        return self.state not in (LockState.RELEASED, LockState.BROKEN)
