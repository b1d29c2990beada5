"""Django: a management command that runs once at a time, on whichever host cron starts it.

A project has it as `management/commands/close_books.py`.
"""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from fencegate import Busy, Fencegate, Lock, LockLost


class LockedCommand(BaseCommand):
    """A command under a lock. Subclasses name the resource, and have `work` instead of `handle`."""

    resource: str
    wait: str | None = None

    def handle(self, *args: Any, **options: Any) -> str | None:
        """Takes the lock, works, gives it back."""
        try:
            with Fencegate.from_env() as fg, fg.lock(self.resource, wait=self.wait) as lock:
                return self.work(lock, *args, **options)
        except Busy as busy:
            raise CommandError(f"{self.resource} is busy: {busy}", returncode=75) from busy
        except LockLost as lost:
            raise CommandError(f"{self.resource} was lost: {lost.reason}", returncode=121) from lost

    def work(self, lock: Lock, *args: Any, **options: Any) -> str | None:
        """What the command does."""
        raise NotImplementedError


class Command(LockedCommand):
    """Closes the books."""

    help = "Closes the books."
    resource = "books"

    def work(self, lock: Lock, *args: Any, **options: Any) -> str | None:
        """Writes that they are closed."""
        lock.put("state.txt", "closed")
        return "the books are closed"
