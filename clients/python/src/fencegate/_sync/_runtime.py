"""Waiting, as threads do it. Written by hand, once for asyncio and once for threads."""

from __future__ import annotations

import _thread
import inspect
import signal
import threading
import time
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from .._core import clock
from .._core.turn import Turn
from .._credential import Ask, bearer
from .._guard.held import Where
from ..errors import Denied, Misuse

T = TypeVar("T")


def sleep_until_ms(at_ms: int) -> None:
    """Sleeps until the clock shows that; at once if it is past."""
    while (left_ms := at_ms - clock.now_ms()) > 0:
        # In slices, since timers stand still while the machine is suspended, and the clock does not.
        time.sleep(min(left_ms, 5_000) / 1000)


def where() -> Where:
    """Where the caller is."""
    thread = threading.current_thread()
    return Where(place=thread, thread=thread)


def here() -> object:
    """What tells this place from others (CC19a)."""
    return threading.current_thread()


def called_back(register: Callable[[Callable[[], object]], object], within_ms: int) -> bool:
    """Waits until the function that it registers is called, but not longer than that. Gives whether it was."""
    called = threading.Event()
    register(called.set)
    return called.wait(within_ms / 1000)


def take(turn: Turn) -> None:
    """Waits until the turn is one's own."""
    called = threading.Event()
    if turn.ask(called.set):
        return
    try:
        called.wait()
    except BaseException:
        turn.give_up(called.set)
        raise


def within(work: Callable[[], object], within_ms: int) -> bool:
    """Does something, however long it takes: a thread cannot be interrupted, and sockets have times of their own."""
    work()
    return True


class TooLong(Exception):
    """What was to be done was ended since it took too long. A thread cannot be."""


def limited(work: Callable[[], T], most_ms: int | None) -> T:
    """Does something, however long it takes."""
    done = work()
    if inspect.iscoroutine(done):
        done.close()
        raise Misuse("a Fencegate runs nothing asynchronous: use an AsyncFencegate")
    return done


def side_by_side(count: int, work: Callable[[], object]) -> None:
    """Does the same so many times at once, in as many threads."""
    if count == 1:
        work()
        return
    with ThreadPoolExecutor(count) as pool:
        for one in [pool.submit(work) for _ in range(count)]:
            one.result()


def in_thread(work: Callable[[], T]) -> T:
    """Does what blocks."""
    return work()


def credential(ask: Ask) -> bytes:
    """What the caller's function gives as a credential."""
    try:
        token = ask()
    except Exception as error:
        raise Denied(f"no credential: {error}") from error
    if inspect.iscoroutine(token):
        token.close()
        raise Denied("no credential: a Fencegate asks no asynchronous functions")
    return bearer(token, Denied)


def given(value: Any) -> Any:
    """What a caller's function gives."""
    return value


def each(items: Iterable[T] | AsyncIterable[T]) -> Iterator[T]:
    """One item after another."""
    if isinstance(items, AsyncIterable):
        raise Misuse("a Fencegate iterates over nothing asynchronous: use an AsyncFencegate")
    yield from items


class Signal:
    """An event that is set from anywhere, and waited for by threads."""

    __slots__ = ("_event",)

    def __init__(self, is_set: bool) -> None:
        self._event = threading.Event()
        if is_set:
            self._event.set()

    @property
    def event(self) -> threading.Event:
        """For the caller."""
        return self._event

    def set(self) -> None:
        """Sets it, for good."""
        self._event.set()

    def set_in_copy(self) -> None:
        """Sets it in a process that is a copy, where whoever held its lock is not there."""
        reinit = getattr(self._event, "_at_fork_reinit", None)
        if reinit is not None:
            reinit()
        self._event.set()


class Interruption:
    """Ends the body of a scope by a signal to the main thread, if the caller wants that: a thread cannot be ended."""

    def __init__(self, interrupts_main: bool) -> None:
        if interrupts_main and threading.current_thread() is not threading.main_thread():
            raise Misuse("interrupt_main is for scopes in the main thread")
        if interrupts_main and signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, signal.SIG_DFL, None):
            raise Misuse("interrupt_main needs a handler of SIGINT, which a process in the background may not have")
        self._interrupts_main = interrupts_main
        self._is_over = False
        self._is_sent = False

    def interrupt(self) -> None:
        """Raises `KeyboardInterrupt` in the main thread, wherever it is."""
        if self._interrupts_main and not self._is_over and threading.current_thread() is not threading.main_thread():
            self._is_sent = True
            _thread.interrupt_main()

    def leave(self, error: BaseException | None) -> bool:
        """The body has ended. Gives whether it was ended by us."""
        self._is_over = True
        return self._is_sent and isinstance(error, KeyboardInterrupt)


def is_cancelled(error: BaseException) -> bool:
    """Whether a body was cancelled from outside: threads are not."""
    return False
