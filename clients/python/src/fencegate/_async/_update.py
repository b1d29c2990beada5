"""Read, change, write: again from the reading, if somebody else changed it in between (CC41)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import errors
from .._body import json_bytes
from .._core import clock, names
from .._core.backoff import Backoff
from .._results import DELETE, KEEP, Delete, Keep, Written
from . import _runtime as runtime
from ._object import read_whole

if TYPE_CHECKING:
    from ._writer import AsyncWriter

ROUNDS_MAX = 16
"""How often a round is made."""
_SIZE_MAX = 16 << 20


async def update(writer: AsyncWriter, resource: str, key: str, change: Callable[[Any], Any]) -> Written | None:
    """Changes an object."""
    return await _update(writer, resource, key, change, None)


async def update_json(writer: AsyncWriter, resource: str, key: str, change: Callable[[Any], Any]) -> Any:
    """Changes a value as JSON."""
    value: Any = None

    async def changed(old: bytes | None) -> bytes | Keep | Delete:
        nonlocal value
        try:
            before = None if old is None else json.loads(old)
        except ValueError as error:
            raise errors.Misuse(f"{key!r} is not JSON: {error}") from error
        value = await runtime.given(change(before))
        if value is KEEP:
            value = before
            return KEEP
        if value is DELETE:
            value = None
            return DELETE
        return json_bytes(value)

    await _update(writer, resource, key, changed, "application/json")
    return value


async def _update(
    writer: AsyncWriter, resource: str, key: str, change: Callable[[Any], Any], content_type: str | None
) -> Written | None:
    names.object_path(resource, key)
    held, caller = writer._held, writer._caller
    backoff = Backoff()
    for number in range(1, ROUNDS_MAX + 1):
        held.check()
        old = await read_whole(caller, resource, key, _SIZE_MAX)
        new = await runtime.given(change(None if old is None else old.body))
        try:
            if isinstance(new, Keep):
                return None
            if isinstance(new, Delete):
                if old is not None:
                    await writer.delete(key, resource=resource, if_match=old.etag)
                return None
            if old is None:
                return await writer.put(key, new, resource=resource, if_absent=True, content_type=content_type)
            kept = content_type or old.content_type
            return await writer.put(key, new, resource=resource, if_match=old.etag, content_type=kept)
        except errors.Changed:
            if number == ROUNDS_MAX:
                raise
            pause_ms = backoff.next(clock.draw(), None, None) or 0
            await runtime.sleep_until_ms(clock.now_ms() + pause_ms)
    return None
