"""What happens to clients in a process that is a copy of another: all guards are lost there, and nobody is told."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """A client."""

    def _forked(self) -> list[object]:
        """This process is a copy. Gives what must not be touched any more: it is shared with the first process."""
        ...


_clients: weakref.WeakSet[Forkable] = weakref.WeakSet()
# Kept for ever, so that nothing of it is ever closed here: that would reach into the first process.
_untouchable: list[object] = []


def register(client: Forkable) -> None:
    """This client is told of forks."""
    _clients.add(client)


def _after_in_child() -> None:
    for client in list(_clients):
        _untouchable.extend(client._forked())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_in_child)
