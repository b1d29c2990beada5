"""APScheduler: a job that runs on one of many schedulers.

Every scheduler fires, and the one that gets the lock works; the others do nothing. The slot is written under the lock,
so that a scheduler that comes late does not do the work of a slot again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps

from apscheduler.schedulers.background import BackgroundScheduler

from fencegate import Changed, Fencegate, Lock


def once_per_slot(fg: Fencegate, name: str, slot: str) -> Callable[[Callable[[Lock], None]], Callable[[], None]]:
    """The job runs once for each slot, a format of time such as `%Y-%m-%d`, whoever fires it."""

    def decorate(work: Callable[[Lock], None]) -> Callable[[], None]:
        @wraps(work)
        def job() -> None:
            lock = fg.try_lock(f"job:{name}")
            if lock is None:
                return
            with lock:
                try:
                    lock.put(f"slots/{datetime.now(UTC).strftime(slot)}", "begun", if_absent=True)
                except Changed:
                    return
                work(lock)

        return job

    return decorate


def scheduler(fg: Fencegate) -> BackgroundScheduler:
    """A scheduler with one job."""

    @once_per_slot(fg, "nightly", "%Y-%m-%d")
    def nightly(lock: Lock) -> None:
        lock.put("report.txt", "done")

    jobs = BackgroundScheduler(timezone=UTC)
    jobs.add_job(nightly, "cron", hour=3, id="nightly")
    return jobs
