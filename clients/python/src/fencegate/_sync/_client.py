# Made by scripts/unasync.py out of ../_async/_client.py: change that, and run it again.
"""The client: reads, watches and administers. Writes exist on guards only."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, ParamSpec, TypeVar, Unpack

from .. import errors
from .._body import BodyLike
from .._core import names
from .._core.durations import Duration, whole_ms
from .._handoff import Handoff
from .._jobs import JobOptions, terms_of
from .._leader import Leader
from .._objects import ABSENT, Object, ObjectHead
from .._options import checked_function, checked_options, checked_switch
from .._request import Request
from .._results import Delete, Keep, Written
from .._wire import LockRecord, ObjectEntry, Operation, Readiness, Resource, S3Access, Status, Version, Waiter
from .._wish import KeepOptions, LockOptions
from . import _holding as holding
from ._admin import Admin
from ._base import Base
from ._download import store
from ._electing import elect
from ._events import Events
from ._job import Job
from ._lock import Fence, Lock
from ._object import Reader, look, open_object, read_whole
from ._observe import observe
from ._operations import decoded, operation_of_id, operation_of_key
from ._pages import Listing, checked_prefix
from ._scope import LockScope, acquire, locked

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_WHOLE_BYTES_MAX = 16 << 20


class Fencegate(Base):
    """A client of one or more gateways before the same ledger.

    The client itself reads, watches and administers. Writes exist on guards only: see `lock` and `fence`.
    """

    # Locks.

    def lock(
        self, resources: str | Iterable[str], *, interrupt_main: bool = False, **options: Unpack[LockOptions]
    ) -> LockScope:
        """A scope under a lock on a resource, or on up to 32 of them, all or none.

        At its end the lock is given back. When the lock is lost, the task is cancelled where it waits, and the scope
        raises `LockLost`. The options are those of `LockOptions`.

        Of a `Fencegate` nothing is cancelled: work there looks at `lock.lost`, calls `lock.check()`, or iterates with
        `lock.guarded(...)`. `interrupt_main` raises `KeyboardInterrupt` in the main thread instead, wherever it is: that
        is blunt, and may hit code that does not expect it. It takes a process that handles SIGINT.
        """
        checked_options("lock()", options, LockOptions)
        checked_switch("interrupt_main", interrupt_main)
        return LockScope(self._caller(), resources, options, interrupt_main)

    def acquire(self, resources: str | Iterable[str], **options: Unpack[LockOptions]) -> Lock:
        """Takes a lock, to be given back with `release`. The options are those of `LockOptions`.

        Raises `Busy` (`LockHeld`, `WaitElapsed`, ...): somebody else holds it, or the wait is over. `Unavailable`: nobody
        answered until the deadline; then the id was given up, and nothing is held. `WouldDeadlock`. `Misuse`.
        `TypeError`: an option is none.
        """
        checked_options("acquire()", options, LockOptions)
        return acquire(self._caller(), resources, options)

    def try_lock(self, resources: str | Iterable[str], **options: Unpack[KeepOptions]) -> Lock | None:
        """Takes a lock without waiting, or gives None if somebody else holds it. The options are those of
        `KeepOptions`."""
        checked_options("try_lock()", options, KeepOptions)
        try:
            return acquire(self._caller(), resources, {**options})
        except errors.LockHeld:
            return None

    def locked(
        self, resources: str | Iterable[str] | Callable[P, str | Iterable[str]], **options: Unpack[LockOptions]
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """A decorator: the function runs under a lock. The resources may be a function of its arguments."""
        checked_options("locked()", options, LockOptions)
        return locked(self._caller, resources, options)

    def fence(
        self,
        resource: str,
        *,
        order: int | str | None = None,
        id: str | None = None,
        force: bool = False,
        owner: str | None = None,
    ) -> Fence:
        """A fence for the holder of a lock that is kept elsewhere: in Redis, Consul, Kubernetes, a database.

        - `order`: the number that the lock gave, growing with each holder, from 1. One that does not rise changes
          nothing: `LockLost` (`order_stale`). Without it the last caller wins.
        - `id`: to repeat the call with, if the process may start anew in between. Writes have no numbers then.
        - `force`: fences off the holder of a live lock of the gateway, too.
        """
        return holding.set_fence(self._caller(), resource, order, id, force, owner)

    def adopt(
        self,
        handoff: Handoff | str,
        *,
        numbers: bool = False,
        on_uncertain: Literal["stop", "hold"] = "stop",
    ) -> Lock:
        """Takes up a lock that was handed over (`Lock.transfer`), and renews it at once, which shows that it is good.

        `numbers`: writes have numbers, from 1: only if nobody else writes, or has written, under this token.
        """
        return holding.adopt(self._caller(), handoff, numbers, on_uncertain)

    def lent(self, resources: str | Iterable[str], *, token: str, id: str) -> Fence:
        """A guard for a token that another process holds, such as the parent of this one. It is neither renewed nor given
        back, and its writes have no numbers, since the holder writes, too: a holder that lends its token takes the lock
        with `numbers=False`."""
        return holding.lent(self._caller(), resources, token, id)

    def elect(
        self,
        name: str,
        work: Callable[[Lock], T],
        *,
        rejoin: bool = True,
        stop_grace: Duration = "10s",
        **options: Unpack[KeepOptions],
    ) -> T:
        """Waits for the leadership of this name, runs `work`, and stands again if it is lost.

        When the leadership is lost, the task of `work` is cancelled, and waited for up to `stop_grace`, before anybody
        stands again. If it returns, the leader resigns, and that is the result; if it raises, the caller gets that.
        `rejoin=False` ends with the loss, as `LockLost`. `owner` is shown to all who `observe`: an address, for instance.
        The options are those of `KeepOptions`.
        """
        checked_options("elect()", options, KeepOptions)
        checked_function("work", work)
        checked_switch("rejoin", rejoin)
        waiting: LockOptions = {**options, "wait": "forever"}
        return elect(self._caller(), name, work, waiting, rejoin, whole_ms(stop_grace, "stop_grace"))

    def observe(self, name: str) -> Iterator[Leader | None]:
        """Tells who holds the lock on a resource: at once, and again whenever that changes. None: nobody ever did."""
        return observe(self._caller(), name)

    def shards(self, name: str, count: int) -> Iterator[holding.Shard]:
        """The shards of a name that can be had without waiting, in random order: `count` resources `name@00.16`,
        `name@01.16` and so on, each with its lock."""
        return holding.shards(self._caller(), name, count)

    def job(self, name: str, **options: Unpack[JobOptions]) -> Job:
        """A job each slot of which is done once, on however many hosts it is called: a decorator, or to `run` a function.
        The options are those of `JobOptions`; docs/jobs.md says what is promised and what is kept."""
        return Job(self._caller, terms_of(name, options))

    def update(
        self,
        resource: str,
        key: str,
        change: Callable[[bytes | None], BodyLike | Keep | Delete],
        **options: Unpack[LockOptions],
    ) -> Written | None:
        """Takes the lock, changes one object as `Lock.update` does, and gives the lock back. The options are those of
        `LockOptions`."""
        checked_options("update()", options, LockOptions)
        checked_function("change", change)
        with self.lock(resource, **options) as lock:
            return lock.update(key, change)

    def update_json(
        self,
        resource: str,
        key: str,
        change: Callable[[Any], Any],
        **options: Unpack[LockOptions],
    ) -> Any:
        """The same for a value as JSON."""
        checked_options("update_json()", options, LockOptions)
        checked_function("change", change)
        with self.lock(resource, **options) as lock:
            return lock.update_json(key, change)

    # Reading.

    def get(
        self, resource: str, key: str, *, version: int | None = None, limit: int = _WHOLE_BYTES_MAX
    ) -> Object | None:
        """Reads an object, whole; None if it is not there.

        - `version`: as the write with this version of the resource left it, while that is kept; if it is kept no more,
          that is `NotFound` with the code `version-not-retained`.
        - `limit`: refuses objects of more bytes as `Misuse`; `open` reads any, piece by piece.
        """
        return read_whole(self._caller(), resource, key, limit, version)

    def open(
        self, resource: str, key: str, *, version: int | None = None, range: tuple[int, int | None] | None = None
    ) -> Reader:
        """Reads an object of any size, piece by piece: iterate over it. To be used as a context manager, or closed.

        A connection that breaks is made again, up to five times, and the stream goes on where it was; if the object is
        another by then, that is `Changed`. `range`: only the bytes from the first, counted from 0, to the last, or to
        the end. Raises `NotFound` if the object is not there.
        """
        return open_object(self._caller(), resource, key, version, range)

    def download(
        self, resource: str, key: str, path: str | os.PathLike[str], *, version: int | None = None
    ) -> ObjectHead:
        """Reads an object into a file: into `<path>.part` beside it, which takes the place of `path` once it is whole and
        on disk. If it fails, `path` is as it was."""
        with open_object(self._caller(), resource, key, version, None) as reader:
            return store(reader, path)

    def head(self, resource: str, key: str, *, version: int | None = None) -> ObjectHead | None:
        """Looks at an object without its bytes; None if it is not there."""
        try:
            return look(self._caller(), resource, key, version)
        except errors.NotFound as error:
            if error.code in ABSENT:
                return None
            raise

    def list(self, resource: str, *, prefix: str | None = None, page_size: int = 1_000) -> Listing[ObjectEntry]:
        """The objects of a resource, in byte order of their keys."""
        path = f"{names.resource_path(resource)}/objects"
        prefixed = [("prefix", checked_prefix(prefix))]
        return Listing(self._caller(), "list", ObjectEntry, path, prefixed, page_size)

    def versions(self, resource: str, *, prefix: str | None = None, page_size: int = 1_000) -> Listing[Version]:
        """The history of a resource, newest first: every write that took effect. With a prefix, those of objects whose
        keys begin with it, deletions of all objects, and commits."""
        path = f"{names.resource_path(resource)}/versions"
        prefixed = [("prefix", checked_prefix(prefix))]
        return Listing(self._caller(), "versions", Version, path, prefixed, page_size)

    def resource(self, resource: str) -> Resource | None:
        """A resource and its lock; None if it was never locked."""
        try:
            return decoded(Resource, self._caller().json("resource", Request("GET", names.resource_path(resource))))
        except errors.NotFound as error:
            if error.code == "resource-not-found":
                return None
            raise

    def resources(self, *, prefix: str | None = None, page_size: int = 1_000) -> Listing[Resource]:
        """All resources that were ever locked, in byte order of their names."""
        prefixed = [("prefix", checked_prefix(prefix))]
        return Listing(self._caller(), "resources", Resource, "/resources", prefixed, page_size)

    def locks(
        self, *, prefix: str | None = None, also_ended: bool = False, page_size: int = 1_000
    ) -> Listing[Resource]:
        """All resources whose locks keep others out: held, to be broken soon, or draining.

        - `also_ended`: also those that are held no longer and that nobody took over: those of locks that have expired,
          whose holders may come back and write, and of broken ones.
        """
        asked = [("prefix", checked_prefix(prefix)), ("also_ended", "true" if also_ended else None)]
        return Listing(self._caller(), "locks", Resource, "/locks", asked, page_size)

    def waiters(self, resource: str, *, page_size: int = 1_000) -> Listing[Waiter]:
        """Who waits in line for the lock on a resource, first come first."""
        path = f"{names.resource_path(resource)}/waiters"
        return Listing(self._caller(), "waiters", Waiter, path, [], page_size)

    def events(self, *, after: str | None = None, on_void: Literal["raise", "continue"] = "raise") -> Events:
        """The feed of committed writes of all resources: each once, and those of one resource in the order of their
        versions.

        - `after`: behind the event with this cursor; None: from the beginning; `now`: only what comes from now on.
        - `on_void`: where the place is void since the ledger was re-fenced. `raise`: `CursorVoid`. `continue`: the
          iterator gives a `Void`, and goes on behind it.
        """
        return Events(self._caller(), after, on_void)

    def operation(self, id: str) -> Operation | None:
        """What became of a write, by the id of its operation. None decides nothing: the write may still be under way, or
        it was refused."""
        return operation_of_id(self._caller(), id)

    def operation_by_key(self, resource: str, idempotency_key: str) -> Operation | None:
        """The write on this resource that took effect under this key. None decides nothing as long as one may be under
        way."""
        return operation_of_key(self._caller(), resource, idempotency_key)

    def status(self) -> Status:
        """What a gateway says of itself: its version, what it stands on, and how long its answers may take."""
        return decoded(Status, self._caller().json("status", Request("GET", "/status")))

    def ready(self) -> Readiness:
        """Whether requests should be sent to a gateway, and the state of its parts. One attempt: whoever asks wants to
        know how it is now."""
        return holding.ready(self._caller())

    def lock_record(self, id: str) -> LockRecord:
        """What the gateway knows of a lock of one's own, by its id."""
        path = f"/locks/{holding.checked_lock_id(id)}"
        return decoded(LockRecord, self._caller().json("lock_record", Request("GET", path)))

    def s3_access(self, lock_id: str) -> S3Access:
        """What S3 tools write with under a lock, by its id: always the same key, as long as the lock lasts.

        There is no key for whoever has a resource *now*: it would give a late writer the token of its successor. Raises
        `LockLost` if the lock has ended, and `NotFound` if there is no such lock, or none of its resources lies in a
        bucket.
        """
        path = f"/locks/{holding.checked_lock_id(lock_id)}/s3"
        return decoded(S3Access, self._caller().json("s3_access", Request("GET", path)))

    @property
    def admin(self) -> Admin:
        """What operators do."""
        return Admin(self._caller())
