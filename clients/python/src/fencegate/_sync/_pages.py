# Made by scripts/unasync.py out of ../_async/_pages.py: change that, and run it again.
"""Lists: item by item as the pages come, or page by page (CC47)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from .. import errors
from .._core import clock, names
from .._core.backoff import Backoff
from .._objects import Page
from .._options import checked_number
from .._request import Request
from .._wire import NotOfThisForm, decode
from . import _runtime as runtime
from ._caller import Caller

T = TypeVar("T")

_PAGE_SIZE_MAX = 1_000
_PREFIX_BYTES_MAX = 1_024
_FOLLOWED_MS = 25_000
"""For how long a gateway is asked to wait for the next record."""


class Listing(Generic[T]):
    """A list that is read as it is needed: iterate over it, or take it page by page."""

    def __init__(
        self,
        caller: Caller,
        call: str,
        kind: type[T],
        path: str,
        parameters: list[tuple[str, str | None]],
        page_size: int,
    ) -> None:
        checked_number("page_size", page_size, 1, _PAGE_SIZE_MAX)
        self._caller = caller
        self._call = call
        self._kind = kind
        self._path = path
        self._parameters = [*parameters, ("limit", str(page_size))]

    def __iter__(self) -> Iterator[T]:
        cursor: str | None = None
        while True:
            page = self.page(cursor)
            for item in page.items:
                yield item
            if page.next_cursor is None:
                return
            if page.next_cursor == cursor:
                raise errors.GatewayFault("a list that leads to the same page again")
            cursor = page.next_cursor

    def all(self) -> list[T]:
        """All items. For lists that are known to be short."""
        return [item for item in self]

    def page(self, cursor: str | None = None) -> Page[T]:
        """One page: the first, or with the `next_cursor` of a page the one behind it."""
        return self._ask([("cursor", cursor)], 0)

    def follow(self) -> Iterator[T]:
        """What is recorded from now on, oldest first and without an end: of the audit and of rejections. A gateway that
        is away for a while is asked again."""
        after, backoff = "now", Backoff()
        while not self._caller.shared.is_closed:
            began_ms = clock.now_ms()
            try:
                page = self._ask([("after", after), ("wait", f"{_FOLLOWED_MS}ms")], _FOLLOWED_MS)
            except errors.Unavailable:
                page = None
            if page is not None and (page.items or page.next_cursor not in (None, after)):
                after, backoff = page.next_cursor or after, Backoff()
                for item in page.items:
                    yield item
            elif page is None or clock.now_ms() - began_ms < _FOLLOWED_MS // 2:
                pause_ms = backoff.next(clock.draw(), None, None) or 0
                runtime.sleep_until_ms(clock.now_ms() + pause_ms)

    def _ask(self, more: list[tuple[str, str | None]], wait_ms: int) -> Page[T]:
        request = Request("GET", self._path + names.query([*self._parameters, *more]), wait_ms=wait_ms)
        answer: Any = self._caller.json(self._call, request)
        try:
            items = [decode(self._kind, item) for item in answer["items"]]
            next_cursor = answer.get("next_cursor")
        except (NotOfThisForm, KeyError, TypeError, AttributeError) as error:
            raise errors.GatewayFault(f"an answer that is not the gateway's: {error}") from None
        return Page(tuple(items), next_cursor if isinstance(next_cursor, str) else None)


def checked_prefix(prefix: str | None) -> str | None:
    """The beginning of names that are looked for."""
    if prefix is not None:
        is_plain = prefix.isprintable() or not any(ord(character) < 32 or ord(character) == 127 for character in prefix)
        if len(prefix.encode("utf-8", "replace")) > _PREFIX_BYTES_MAX or not is_plain:
            raise errors.Misuse(f"a prefix has at most {_PREFIX_BYTES_MAX} bytes and no control characters")
    return prefix
