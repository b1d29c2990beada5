"""A body under a lock: it is cancelled when the lock is lost, and the lock is given back when it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from .. import errors
from .._wish import LockOptions, checked_on_lost, wish_of
from . import _runtime as runtime
from ._acquiring import AsyncAcquisition
from ._caller import AsyncCaller
from ._leaving import AsyncLeaving
from ._lock import AsyncLock

P = ParamSpec("P")
R = TypeVar("R")


async def acquire(caller: AsyncCaller, resources: str | Iterable[str], options: LockOptions) -> AsyncLock:
    """Takes a lock."""
    caller.must_not_be_closing()
    on_lost = options.get("on_lost", "raise")
    checked_on_lost(on_lost)
    wish = wish_of(caller.shared, resources, options)
    if _is_held_here(caller, wish.resources):
        raise errors.WouldDeadlock("this task or thread holds the lock already, and locks are not re-entrant")
    return AsyncLock(caller, await AsyncAcquisition(caller, wish).go(), on_lost)


def _is_held_here(caller: AsyncCaller, resources: tuple[str, ...]) -> bool:
    """Whether the task or thread that asks took a lock on one of these, and has it still (CC19a)."""
    here, wanted = runtime.here(), set(resources)
    return any(
        held.where.place == here and held.is_ours and not wanted.isdisjoint(held.resources) and held.is_live()
        for held in caller.shared.guards()
    )


class AsyncLockScope:
    """A scope under a lock, made by `lock`: it takes the lock at its beginning, and gives it back at its end."""

    __slots__ = ("_caller", "_interrupts_main", "_leaving", "_options", "_resources")

    def __init__(
        self,
        caller: AsyncCaller,
        resources: str | Iterable[str],
        options: LockOptions,
        interrupts_main: bool = False,
    ) -> None:
        self._caller = caller
        self._resources = resources
        self._options = options
        self._interrupts_main = interrupts_main
        self._leaving: AsyncLeaving | None = None

    async def __aenter__(self) -> AsyncLock:
        if self._leaving is not None:
            raise errors.Misuse("this scope was entered before: make another")
        # Whoever cannot be interrupted is told before anything is locked.
        interruption = runtime.Interruption(self._interrupts_main)
        lock = await acquire(self._caller, self._resources, self._options)
        self._leaving = AsyncLeaving(lock, self._options.get("on_lost") == "ignore", interruption)
        return lock

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leaving, self._leaving = self._leaving, None
        if leaving is not None:
            await leaving.leave(error)


def locked(
    caller: Callable[[], AsyncCaller],
    resources: str | Iterable[str] | Callable[P, str | Iterable[str]],
    options: LockOptions,
) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R]]]:
    """A decorator: the function runs under a lock, whose resources its arguments may name."""

    def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        @wraps(function)
        async def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
            chosen = resources(*args, **kwargs) if callable(resources) else resources
            async with AsyncLockScope(caller(), chosen, options):
                return await function(*args, **kwargs)

        return under_lock

    return decorate
