"""Guards that are lost at will, to test one's own cancellation. No storage is behind them, and no gateway."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import AsyncLock, Lock, LossReason, errors
from .._async import _runtime as on_loop
from .._async._caller import AsyncCaller
from .._core import clock, names
from .._core.ids import uuid7
from .._core.lease import Lease, Terms
from .._core.replies import Failure, Unsendable
from .._guard.held import Burial, Grant, Held, Where
from .._settings import settings_of
from .._shared import Shared
from .._sync import _runtime as in_threads
from .._sync._caller import Caller
from .._wish import OnLost


class _NoEngine:
    """Nothing goes on behind anybody's back."""

    def keep(self, held: Held) -> None:
        """Nothing."""

    def poke(self, held: Held) -> None:
        """Nothing."""

    def over(self, held: Held) -> None:
        """Nothing."""

    def ask_when_it_breaks(self, held: Held) -> None:
        """Nothing."""

    def bury(self, burial: Burial) -> Any:
        """Nothing."""
        return None


_REFUSED = Unsendable(errors.NoFence("a fake guard has no storage behind it"))


class _NoTransport:
    """Sends nothing."""

    def attempt(self, request: object, id: str) -> Failure:
        """Refuses."""
        return _REFUSED

    def attempt_any(self, request: object, id: str, is_meant: object) -> Failure:
        """Refuses."""
        return _REFUSED


class _NoAsyncTransport:
    """The same for asyncio."""

    async def attempt(self, request: object, id: str) -> Failure:
        """Refuses."""
        return _REFUSED

    async def attempt_any(self, request: object, id: str, is_meant: object) -> Failure:
        """Refuses."""
        return _REFUSED


def _held(resources: str | Iterable[str], token: str, where: Where) -> Held:
    shared = Shared(settings_of("http://localhost", {"owner": "fake"}), _NoEngine())
    now = clock.now_ms()
    lease = Lease(now, now, None, None, Terms(is_renewed=False), 0.5)
    chosen = names.checked_resources(resources)
    return Held(shared, Grant(uuid7(), token, chosen, "fake", lease, is_ours=False), where)


class FakeLock(Lock):
    """A guard that is lost when `lose` says so. Writes raise `NoFence`.

    with FakeLock("r") as lock:
        lock.lose()
        lock.check()  # raises LockLost
    """

    __slots__ = ()

    def __init__(self, resources: str | Iterable[str] = "fake", *, token: str = "1", on_lost: OnLost = "raise") -> None:
        held = _held(resources, token, in_threads.where())
        transport: Any = _NoTransport()
        super().__init__(Caller(held.shared, transport), held, on_lost)

    def lose(self, reason: LossReason = LossReason.SUPERSEDED) -> None:
        """The lock is lost: its signal is given."""
        self._held.lose(reason)


class AsyncFakeLock(AsyncLock):
    """The same for asyncio. Made in a task; as a context manager it cancels that task when it is lost."""

    __slots__ = ()

    def __init__(self, resources: str | Iterable[str] = "fake", *, token: str = "1", on_lost: OnLost = "raise") -> None:
        held = _held(resources, token, on_loop.where())
        transport: Any = _NoAsyncTransport()
        super().__init__(AsyncCaller(held.shared, transport), held, on_lost)

    def lose(self, reason: LossReason = LossReason.SUPERSEDED) -> None:
        """The lock is lost: its signal is given."""
        self._held.lose(reason)
