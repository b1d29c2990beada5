"""What all parts of one client share: its settings, its guards, and what it has learnt of its gateways."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ._core import clock
from ._hooks import Called, Hooks
from ._settings import Settings, default_owner

if TYPE_CHECKING:
    from ._background.engine import Engine
    from ._guard.held import Held
    from .errors import FenceError

STREAMS_MAX = 16
"""The most streams of events of one client: a gateway gives no more to one peer."""


class Shared:
    """The common part of a client. Safe to use from several threads."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self.settings = settings
        self.hooks: Hooks = settings.hooks
        self.engine = engine
        self.owner: str = settings.owner or default_owner()
        self.is_closing = False
        """No new locks are taken."""
        self.is_closed = False
        """Nobody goes on with anything."""
        self.answer_within_ms: int = 0
        """What the gateway says that it needs for an answer, if it was asked (CC9)."""
        self.keys_kept_ms: int | None = None
        """For how long gateways keep keys at least; None: not asked yet."""
        self.streams: int = 0
        """How many streams of events are open."""
        self.no_streams_before_ms = 0
        """Until when no stream is asked for, since one was refused (CC39)."""
        self._lock = threading.RLock()
        self._guards: dict[int, Held] = {}

    def take_stream(self) -> bool:
        """Takes one of the streams that a client may have, if there is one."""
        with self._lock:
            if self.streams >= STREAMS_MAX:
                return False
            self.streams += 1
            return True

    def give_stream_back(self) -> None:
        """A stream is over."""
        with self._lock:
            self.streams -= 1

    def add(self, held: Held) -> None:
        """A guard begins."""
        with self._lock:
            self._guards[id(held)] = held

    def remove(self, held: Held) -> None:
        """A guard is over."""
        with self._lock:
            self._guards.pop(id(held), None)

    def guards(self) -> list[Held]:
        """All guards that are not over."""
        with self._lock:
            return list(self._guards.values())

    def forget_locks_of_threads(self) -> None:
        """In a process that is a copy: whoever held the lock of this object is not here."""
        self._lock = threading.RLock()

    def head_ms(self) -> int:
        """How long to wait for the head of an answer to a call that does not wait."""
        return max(self.settings.head_ms, self.answer_within_ms)

    def call_until_ms(self) -> int:
        """Until when a call that begins now goes on."""
        return clock.now_ms() + self.settings.call_ms

    def learn_status(self, status: dict[str, object]) -> None:
        """Keeps what calls need of `GET /status`."""
        within_ms, kept_ms = status.get("answer_within_ms"), status.get("keys_kept_ms")
        if isinstance(within_ms, int):
            self.answer_within_ms = min(max(within_ms, 0), 600_000)
        if isinstance(kept_ms, int):
            self.keys_kept_ms = max(kept_ms, 1)

    def called(self, call: str, began_ms: int, attempts: int, error: FenceError | None) -> None:
        """Tells the hooks how a call ended."""
        if self.hooks.listens:
            took = (clock.now_ms() - began_ms) / 1000
            self.hooks.tell(Called(call, None if error is None else error.error_class, attempts, took))
