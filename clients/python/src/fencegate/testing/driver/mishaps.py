"""What happens to a process: it stands still, it is copied, it forgets a guard. For chaos, in real time."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

from ... import LockLost, LossReason

MISHAPS = ["block", "fork", "drop"]
"""The features of a driver that lets all of it happen."""


def is_refused_in_copy(reason: Callable[[], LossReason | None], write: Callable[[], None]) -> bool:
    """Copies the process, and lets the copy write. Gives whether the guard refused that before anything was sent: it is
    lost in the copy from the beginning, as `forked` or, if it was lost before, for the reason that it had."""
    copy = os.fork()
    if copy == 0:
        # Nothing of the copy may come back from here: it has the files, and what they hold, of the first process.
        refused, known = False, reason()
        try:
            write()
        except LockLost as lost:
            refused = lost.reason is known
        finally:
            os._exit(0 if refused else 1)
    _, status = os.waitpid(copy, 0)
    return status == 0


def collect() -> None:
    """What nobody has any more is given back."""
    gc.collect()
