"""Who leads (CC52): whose lock it is, told anew whenever that changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from .. import errors
from .._core import clock, names
from .._core.backoff import Backoff, portion
from .._json import members
from .._leader import Leader
from .._request import Request
from .._words import LockState
from . import _runtime as runtime
from ._caller import AsyncCaller
from ._connection import WAIT_MS, is_passing

_POLL_MS = 2_000
"""How often a gateway is asked that cannot tell of changes, or where nobody was yet."""


async def observe(caller: AsyncCaller, resource: str) -> AsyncIterator[Leader | None]:
    """Tells who holds the lock on a resource: at once, and again whenever that changes."""
    observer = AsyncObserver(caller, names.resource_path(resource))
    while not caller.shared.is_closed:
        await runtime.sleep_until_ms(observer.due_ms)
        try:
            is_new = await observer.look()
        except errors.FenceError as error:
            if not is_passing(error):
                raise
            observer.rest()
            continue
        if is_new:
            yield observer.leader


class AsyncObserver:
    """Looks at a resource again and again, and waits for changes where the gateway can tell of them."""

    def __init__(self, caller: AsyncCaller, path: str) -> None:
        self._caller = caller
        self._path = path
        self._tag: str | None = None
        self._has_told = False
        self._backoff = Backoff()
        self.leader: Leader | None = None
        """Who led when it looked last; None: nobody ever did."""
        self.due_ms = 0
        """When to ask next."""

    async def look(self) -> bool:
        """One call: waits for a change if the gateway can. Gives whether there is something new to tell."""
        began_ms, tag = clock.now_ms(), self._tag
        self._tag = None
        wait_ms = 0 if tag is None else WAIT_MS
        query = names.query([("since", tag), ("wait", None if tag is None else f"{WAIT_MS}ms")])
        try:
            seen: Any = await self._caller.json("observe", Request("GET", self._path + query, wait_ms=wait_ms))
        except errors.NotFound as error:
            if error.code != "resource-not-found":
                raise
            self.due_ms = clock.now_ms() + _POLL_MS // 2 + portion(_POLL_MS, clock.draw())
            return self._is_new(None)
        except errors.Misuse as error:
            # This gateway is an older one than that which gave the tag.
            if tag is None or error.code != "query-malformed":
                raise
            self.due_ms = clock.now_ms() + _POLL_MS
            return False
        is_new = self._is_new(_leader(seen))
        found = members(seen).get("state_tag")
        self._tag = found if isinstance(found, str) else None
        if self._tag is None:
            self.due_ms = clock.now_ms() + _POLL_MS
        elif is_new or clock.now_ms() - began_ms >= WAIT_MS // 2:
            self._backoff = Backoff()
        else:
            # What changed is of no interest here, and may change again at once.
            self.rest()
        return is_new

    def _is_new(self, leader: Leader | None) -> bool:
        is_new = not self._has_told or leader != self.leader
        self._has_told, self.leader = True, leader
        return is_new

    def rest(self) -> None:
        """A pause, longer each time."""
        self.due_ms = clock.now_ms() + (self._backoff.next(0.5 + clock.draw() / 2, None, None) or 0)


def _leader(seen: Any) -> Leader:
    try:
        since = datetime.fromisoformat(seen["acquired_at"])
        return Leader(str(seen["owner"]), since, LockState(seen["state"]))
    except (KeyError, TypeError, ValueError) as error:
        raise errors.GatewayFault(f"an answer that is not the gateway's: {error}") from None
