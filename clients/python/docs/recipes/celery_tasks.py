"""Celery: a task that runs once at a time for its arguments.

The lock lasts 30 s and is renewed while the task runs: a worker that is killed blocks the next one for 30 s, not for
hours. A task that finds the lock taken is tried again later, and never acknowledged as done.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from typing import Any

from celery import Celery, Task

from fencegate import Busy, Fencegate, Lock, LockLost

app = Celery("invoices")


@cache
def gateway() -> Fencegate:
    """One client for each worker process, made after it was forked."""
    return Fencegate.from_env()


class LockedTask(Task):
    """A task under a lock of its name and arguments. Inside, `self.lock` is the guard."""

    abstract = True
    lock: Lock

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        text = json.dumps([args, kwargs], sort_keys=True, default=str)
        resource = f"task:{self.name}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        try:
            with gateway().lock(resource, ttl="30s") as self.lock:
                return super().__call__(*args, **kwargs)
        except (Busy, LockLost) as error:
            raise self.retry(exc=error, countdown=5) from error


@app.task(base=LockedTask, bind=True, max_retries=None)
def close_month(self: LockedTask, month: str) -> str:
    """Closes the books of a month."""
    self.lock.put("state.txt", f"closing {month}")
    return f"{month} is closed"
