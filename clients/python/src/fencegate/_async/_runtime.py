"""Waiting, as asyncio does it. Written by hand, once for asyncio and once for threads."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeVar

from .._core import clock
from .._core.turn import Turn
from .._credential import ASKED_WITHIN_S, Ask, bearer
from .._guard.held import Where
from ..errors import Denied, Misuse

T = TypeVar("T")


async def sleep_until_ms(at_ms: int) -> None:
    """Sleeps until the clock shows that; at once if it is past."""
    while (left_ms := at_ms - clock.now_ms()) > 0:
        # In slices, since timers stand still while the machine is suspended, and the clock does not.
        await asyncio.sleep(min(left_ms, 5_000) / 1000)


def where() -> Where:
    """Where the caller is."""
    return Where(place=asyncio.current_task())


def here() -> object:
    """What tells this place from others (CC19a)."""
    return asyncio.current_task()


async def called_back(register: Callable[[Callable[[], object]], object], within_ms: int) -> bool:
    """Waits until the function that it registers is called, but not longer than that. Gives whether it was."""
    loop = asyncio.get_running_loop()
    called = asyncio.Event()
    register(lambda: loop.call_soon_threadsafe(called.set))
    try:
        async with asyncio.timeout(within_ms / 1000):
            await called.wait()
    except TimeoutError:
        return False
    return True


async def take(turn: Turn) -> None:
    """Waits until the turn is one's own."""
    loop = asyncio.get_running_loop()
    called = asyncio.Event()

    def told() -> None:
        loop.call_soon_threadsafe(called.set)

    if turn.ask(told):
        return
    try:
        await called.wait()
    except BaseException:
        turn.give_up(told)
        raise


async def within(work: Callable[[], Awaitable[object]], within_ms: int) -> bool:
    """Does something that may take so long. Gives whether it was done by then."""
    try:
        async with asyncio.timeout(within_ms / 1000):
            await work()
    except TimeoutError:
        return False
    return True


class TooLong(Exception):
    """What was to be done was ended since it took too long."""


async def limited(work: Callable[[], Awaitable[T]], most_ms: int | None) -> T:
    """Does something that may take so long, and cancels it then: raises `TooLong`."""
    limit = asyncio.timeout(None if most_ms is None else most_ms / 1000)
    try:
        async with limit:
            value = await given(work())
        # Whatever it gives that was cancelled: it may have stopped half-way.
        if not limit.expired():
            return value
    except TimeoutError:
        # It may be the work's own.
        if not limit.expired():
            raise
    raise TooLong


async def side_by_side(count: int, work: Callable[[], Awaitable[object]]) -> None:
    """Does the same so many times at once."""
    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(_awaited(work))


async def _awaited(work: Callable[[], Awaitable[object]]) -> None:
    await work()


async def in_thread(work: Callable[[], T]) -> T:
    """Does what blocks, without holding the loop up."""
    return await asyncio.to_thread(work)


async def credential(ask: Ask) -> bytes:
    """What the caller's function gives as a credential."""
    try:
        async with asyncio.timeout(ASKED_WITHIN_S):
            token = ask()
            if inspect.isawaitable(token):
                token = await token
    except TimeoutError:
        raise Denied("the credential was not there in time") from None
    except Exception as error:
        raise Denied(f"no credential: {error}") from error
    return bearer(token, Denied)


async def given(value: Any) -> Any:
    """What a caller's function gives, which may be awaited."""
    return await value if inspect.isawaitable(value) else value


async def each(items: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    """One item after another."""
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


class Signal:
    """An event that is set from anywhere, and waited for on the loop."""

    __slots__ = ("_event", "_loop")

    def __init__(self, is_set: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        if is_set:
            self._event.set()

    @property
    def event(self) -> asyncio.Event:
        """For the caller."""
        return self._event

    def set(self) -> None:
        """Sets it, for good."""
        try:
            is_here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            is_here = False
        try:
            if not is_here:
                self._loop.call_soon_threadsafe(self._event.set)
                return
        except RuntimeError:
            # The loop is closed: nobody waits there any more, and it is set here.
            pass
        try:
            self._event.set()
        except RuntimeError:
            # Whoever waited ended with the loop. It is set before they are told.
            pass

    def set_in_copy(self) -> None:
        """Sets it in a process that is a copy, whose loop is not there."""
        self._event.set()


class Interruption:
    """Ends the body of a scope by the cancellation of its task, as `asyncio.timeout` does."""

    def __init__(self, interrupts_main: bool) -> None:
        if interrupts_main:
            raise Misuse("interrupt_main is for threads: a task is cancelled anyway")
        task = asyncio.current_task()
        if task is None:
            raise Misuse("a scope is entered in a task")
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._cancelling = task.cancelling()
        self._is_over = False
        self._is_sent = False

    def interrupt(self) -> None:
        """Ends the body where it waits, soon: never in the middle of its own code."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        # Once: whoever leaves takes back one cancellation.
        if not self._is_over and not self._is_sent:
            self._is_sent = True
            self._task.cancel("the lock is lost")

    def leave(self, error: BaseException | None) -> bool:
        """The body has ended. Gives whether it was ended by us, and by nobody else."""
        self._is_over = True
        if not self._is_sent:
            return False
        return self._task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError)


def is_cancelled(error: BaseException) -> bool:
    """Whether a body was cancelled from outside."""
    return isinstance(error, asyncio.CancelledError)
