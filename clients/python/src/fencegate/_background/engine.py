"""What guards need to have done for them, whoever does it: on the loop of the caller, or in a thread."""

from __future__ import annotations

from typing import Any, Protocol

from .._guard.held import Burial, Held


class Engine(Protocol):
    """Does what goes on behind the caller's back. All of it may be called from any thread."""

    def keep(self, held: Held) -> None:
        """Renews the guard in time and gives its signal in time, until it is over."""
        ...

    def poke(self, held: Held) -> None:
        """The guard has to be looked at sooner than was known."""
        ...

    def over(self, held: Held) -> None:
        """The guard is over, whose events were followed."""
        ...

    def ask_when_it_breaks(self, held: Held) -> None:
        """An operator is about to break the lock: asks when, and lets the guard know."""
        ...

    def bury(self, burial: Burial) -> Any:
        """Gives a lock back, however long that takes. Gives what to wait for, if there is anything."""
        ...
