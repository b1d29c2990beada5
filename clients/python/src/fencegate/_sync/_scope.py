# Made by scripts/unasync.py out of ../_async/_scope.py: change that, and run it again.
"""A body under a lock: it is cancelled when the lock is lost, and the lock is given back when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from .. import errors
from .._wish import LockOptions, checked_on_lost, wish_of
from . import _runtime as runtime
from ._acquiring import Acquisition
from ._caller import Caller
from ._leaving import Leaving
from ._lock import Lock

P = ParamSpec("P")
R = TypeVar("R")


def acquire(caller: Caller, resources: str | Iterable[str], options: LockOptions) -> Lock:
    """Takes a lock."""
    caller.must_not_be_closing()
    on_lost = options.get("on_lost", "raise")
    checked_on_lost(on_lost)
    wish = wish_of(caller.shared, resources, options)
    if _is_held_here(caller, wish.resources):
        raise errors.WouldDeadlock("this task or thread holds the lock already, and locks are not re-entrant")
    return Lock(caller, Acquisition(caller, wish).go(), on_lost)


def _is_held_here(caller: Caller, resources: tuple[str, ...]) -> bool:
    """Whether the task or thread that asks took a lock on one of these, and has it still (CC19a)."""
    here, wanted = runtime.here(), set(resources)
    return any(
        held.where.place == here and held.is_ours and not wanted.isdisjoint(held.resources) and held.is_live()
        for held in caller.shared.guards()
    )


class LockScope:
    """A scope under a lock, made by `lock`: it takes the lock at its beginning, and gives it back at its end."""

    __slots__ = ("_caller", "_interrupts_main", "_leaving", "_options", "_resources")

    def __init__(
        self,
        caller: Caller,
        resources: str | Iterable[str],
        options: LockOptions,
        interrupts_main: bool = False,
    ) -> None:
        self._caller = caller
        self._resources = resources
        self._options = options
        self._interrupts_main = interrupts_main
        self._leaving: Leaving | None = None

    def __enter__(self) -> Lock:
        if self._leaving is not None:
            raise errors.Misuse("this scope was entered before: make another")
        # Whoever cannot be interrupted is told before anything is locked.
        interruption = runtime.Interruption(self._interrupts_main)
        lock = acquire(self._caller, self._resources, self._options)
        self._leaving = Leaving(lock, self._options.get("on_lost") == "ignore", interruption)
        return lock

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leaving, self._leaving = self._leaving, None
        if leaving is not None:
            leaving.leave(error)


def locked(
    caller: Callable[[], Caller],
    resources: str | Iterable[str] | Callable[P, str | Iterable[str]],
    options: LockOptions,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: the function runs under a lock, whose resources its arguments may name."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def under_lock(*args: P.args, **kwargs: P.kwargs) -> R:
            chosen = resources(*args, **kwargs) if callable(resources) else resources
            with LockScope(caller(), chosen, options):
                return function(*args, **kwargs)

        return under_lock

    return decorate
