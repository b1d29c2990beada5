"""The guard: a lock in hand."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Literal, TypeVar

from .. import errors
from .._core import clock
from .._core.classes import is_dead_everywhere
from .._core.durations import Duration, ttl_ms
from .._guard.held import Held
from .._handoff import Handoff
from .._hooks import logger
from .._wire import Operation, S3Access
from .._wish import OnLost
from .._words import LockStatus, LossReason
from . import _runtime as runtime
from ._burying import AWAITED_MS, bury
from ._caller import AsyncCaller
from ._leaving import AsyncLeaving
from ._once import once
from ._renewing import UNASKED, renew_now
from ._transfer import transfer
from ._writer import AsyncWriter

T = TypeVar("T")


class AsyncGuard(AsyncWriter):
    """What guards of all kinds have: the token, the signal, the writes."""

    __slots__ = ("__weakref__", "_on_lost", "_on_signal", "_signal")

    def __init__(self, caller: AsyncCaller, held: Held, on_lost: OnLost = "raise") -> None:
        super().__init__(caller, held)
        self._on_lost = on_lost
        self._signal: runtime.Signal | None = None
        self._on_signal: Callable[[], object] | None = None
        held.tell(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {', '.join(self._held.resources)}: {self._held.lease.status}>"

    @property
    def resources(self) -> tuple[str, ...]:
        """What it covers, in byte order."""
        return self._held.resources

    @property
    def token(self) -> str:
        """The fence token, as text of digits, for systems that check it themselves."""
        return self._held.token

    @property
    def id(self) -> str:
        """The lock's id: the key to it. Keep it to yourself."""
        return self._held.id

    @property
    def owner(self) -> str:
        """What the holder calls itself."""
        return self._held.owner

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions of the resources when the lock was granted."""
        return self._held.versions

    @property
    def status(self) -> LockStatus:
        """In what state it is, by the client's clock."""
        return self._held.status()

    @property
    def reason(self) -> LossReason | None:
        """Why it was lost; None: it was not."""
        return self._held.lost_reason()

    @property
    def lost(self) -> Any:
        """An event that is set when the lock is lost, and never cleared; a release does not set it.

        Of an `AsyncFencegate` it is an `asyncio.Event`, of a `Fencegate` a `threading.Event`.
        """
        signal = self._signal
        if signal is None:
            # One for all threads. The loss is looked for once it is there: an earlier one had nobody to tell.
            with self._held.for_signal():
                if self._signal is None:
                    self._signal = runtime.Signal(False)
                signal = self._signal
            if self._held.lost_reason() not in (None, LossReason.TRANSFERRED):
                signal.set()
        return signal.event

    def headers(self) -> dict[str, str]:
        """The headers that show the lock: `X-Fence-Token` and `X-Lock-Id`."""
        return {"X-Fence-Token": self._held.token, "X-Lock-Id": self._held.id}

    def check(self) -> None:
        """That the lock is still held, by all that is known here: raises `LockLost` if not. The gateway judges anew with
        each write."""
        self._held.begin_call()

    async def guarded(self, items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
        """The items one after another, with a `check` before each: raises `LockLost` between two of them."""
        self.check()
        async for item in runtime.each(items):
            yield item
            self.check()

    def _signalled(self, loss: errors.LockLost) -> None:
        """The guard is lost. May be called from any thread."""
        if self._signal is not None:
            self._signal.set()
        if self._on_signal is not None:
            self._on_signal()
        if callable(self._on_lost):
            try:
                self._on_lost(loss)
            except Exception:
                logger.exception("on_lost failed")

    def _forked(self) -> None:
        """This process is a copy: nobody but the event is told."""
        if self._signal is not None:
            self._signal.set_in_copy()


class AsyncLock(AsyncGuard):
    """A lock in hand. It renews itself until it is released or lost.

    Collected, it is given back in the background; `release` waits until it is. As a context manager it is a scope like
    that of `lock`: at its end the lock is given back.
    """

    __slots__ = ("_leaving",)

    def __init__(self, caller: AsyncCaller, held: Held, on_lost: OnLost = "raise") -> None:
        super().__init__(caller, held, on_lost)
        self._leaving: AsyncLeaving | None = None

    @property
    def principal(self) -> str | None:
        """The principal whose it is, where rules of access are in force: the token is good for it and its writers
        alone."""
        return self._held.principal

    @property
    def writers(self) -> tuple[str, ...]:
        """Who else may write under its token: principals, and roles as `role:NAME`."""
        return self._held.writers

    @property
    def s3(self) -> S3Access | None:
        """What S3 tools write with under this lock, as the gateway said when it granted it:
        `boto3.client("s3", **lock.s3.boto3())`.

        The key names this lock's token for ever, so it never changes. None if none of the resources lies in a bucket, or
        if the lock was taken up from its predecessor: then `s3_access(lock.id)` of the client asks for it.
        """
        return self._held.s3

    @property
    def remaining(self) -> timedelta | None:
        """Until the deadline, by the client's clock; None: it does not expire. Zero once it has passed."""
        deadline_ms = self._held.lease.deadline_ms
        return None if deadline_ms is None else timedelta(milliseconds=max(deadline_ms - clock.now_ms(), 0))

    @property
    def ends_at(self) -> datetime | None:
        """When an operator's break takes effect, if one is due."""
        breaks_ms = self._held.lease.breaks_ms
        if breaks_ms is None:
            return None
        return datetime.now(UTC) + timedelta(milliseconds=breaks_ms - clock.now_ms())

    def beat(self) -> None:
        """A sign of life: with `stall_after` renewals stop when none came for so long."""
        self._held.begin_call()

    async def renew(self, ttl: Duration | Literal["infinite"] | None = None) -> None:
        """Renews it now, for instance before something that takes long; with another ttl it keeps that. Renewals go on by
        themselves. Raises `LockLost`, or `Unavailable` if nobody answered in time."""
        await renew_now(self._caller, self._held, UNASKED if ttl is None else ttl_ms(ttl))

    async def release(self) -> bool:
        """Gives it back: waits for writes that are under way, then up to 5 s in all for the gateway's answer; if there
        is none, it goes on in the background. Never fails: a lock that is lost needs no release.

        Gives True if a gateway has confirmed it: no copy of any write of this lock takes effect any more.
        """
        began_ms, held = clock.now_ms(), self._held
        # 1. No renewals any more, and no new writes.
        before = held.release()
        if not held.is_ours:
            return True
        if before is LockStatus.LOST:
            reason = held.lease.reason or LossReason.GONE
            if is_dead_everywhere(reason, len(held.resources)):
                return True
        # The second release waits for what the first could not: that a gateway confirms it.
        if before is LockStatus.LOST or (before is LockStatus.RELEASED and held.numbers.is_idle):
            return await self._bury(AWAITED_MS)
        # 2. What is under way is waited for (CC43). From here on the release goes out even if nobody waits for it.
        if not held.numbers.is_idle:
            try:
                await runtime.called_back(held.numbers.when_idle, AWAITED_MS)
            except BaseException:
                held.shared.engine.bury(held.burial())
                raise
        # 3. The rest of the time is the gateway's.
        return await self._bury(max(AWAITED_MS - (clock.now_ms() - began_ms), 100))

    async def _bury(self, within_ms: int) -> bool:
        held = self._held
        held.is_buried = held.is_buried or await bury(self._caller, held.burial(), within_ms)
        return held.is_buried

    async def transfer(self, owner: str, *, principal: str | None = None) -> Handoff:
        """Hands the lock to a successor that calls itself so, and also to another principal if one is named.

        This guard ends with that, without a signal; if the transfer fails, the guard goes on as before. What was handed
        over by a call of which nobody heard is given back in the background.
        """
        return await transfer(self._caller, self._held, owner, principal)

    async def once(self, key: str, work: Callable[[], Awaitable[T]]) -> T | Operation:
        """Runs `work`, unless a write under `key` took effect before: then it gives that write's `Operation`.

        The *last* write of `work` must carry the key (`idempotency_key=`): it says that the work is done.
        """
        return await once(self._caller, self._held, key, work)

    async def __aenter__(self) -> AsyncLock:
        if self._leaving is not None:
            raise errors.Misuse("the scope of this lock was entered before")
        self._leaving = AsyncLeaving(self, self._on_lost == "ignore", runtime.Interruption(False))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._leaving is not None:
            await self._leaving.leave(error)

    def __del__(self) -> None:
        # A guard that was never made whole has nothing to give back.
        held = getattr(self, "_held", None)
        if held is not None and held.lease.is_live:
            held.dropped()


class AsyncFence(AsyncGuard):
    """The token of a lock that is kept elsewhere. It is not renewed: it is good until somebody raises the fence again."""

    __slots__ = ("version",)

    def __init__(self, caller: AsyncCaller, held: Held, version: int | None) -> None:
        super().__init__(caller, held)
        self.version: int | None = version
        """The version of the resource when the fence was set; None for a token that was lent."""

    def __del__(self) -> None:
        held = getattr(self, "_held", None)
        if held is not None:
            held.shared.remove(held)
