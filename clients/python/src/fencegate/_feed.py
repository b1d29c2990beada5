"""Places in the feed of writes, and what it says where one is void."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PLACE = re.compile(r"g([0-9]{1,19})-([0-9]{1,19})")


@dataclass(frozen=True, slots=True)
class Void:
    """The place in the feed was void, and it goes on behind another: writes that were told before may have been lost, so
    whatever was built from them is to be checked."""

    begin_after: str
    """Where it goes on."""

    @property
    def cursor(self) -> str:
        """The place to go on behind."""
        return self.begin_after


def is_told(place: str | None, event: str) -> bool:
    """Whether an event lies at or before a place, where both can be read: `g0-17`."""
    here = None if place is None else _PLACE.fullmatch(place)
    there = _PLACE.fullmatch(event)
    return here is not None and there is not None and here[1] == there[1] and int(there[2]) <= int(here[2])
