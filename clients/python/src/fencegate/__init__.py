"""Client of Fencegate: a Python program under a fenced lock, whose late writes bounce.

    from fencegate import Fencegate

    with Fencegate("http://localhost:8080") as fg, fg.lock("invoices:2026", wait="1m") as lock:
        lock.put("total.txt", "total: 110")

- The lock is waited for in line; it renews itself in the background, together with all others of the client; it is given
  back on every path out.
- When it is lost, the task of an `AsyncFencegate` is cancelled, `lock.lost` is set, and the scope raises `LockLost`.
- Writes exist on guards only. Each is sent until its outcome is known, and takes effect once or not at all. What stays
  unknown is named so: `OutcomeUnknown`.
- Errors say what to do: catch their classes.
"""

from __future__ import annotations

from ._async._client import AsyncFencegate
from ._async._commit import AsyncCommit
from ._async._events import AsyncEvents
from ._async._holding import AsyncShard
from ._async._job import AsyncCheckpoint, AsyncJob, AsyncRun
from ._async._lock import AsyncFence, AsyncLock
from ._async._object import AsyncReader
from ._async._pages import AsyncListing
from ._async._scope import AsyncLockScope
from ._body import Body, BodyLike
from ._core.durations import Duration
from ._feed import Void
from ._handoff import Handoff
from ._jobs import JobEnd, JobOptions, JobState, RunRecord, RunStatus
from ._leader import Leader
from ._objects import Object, ObjectHead, Page
from ._results import (
    DELETE,
    KEEP,
    Applied,
    Committed,
    Deleted,
    NotApplied,
    Receipt,
    Settled,
    UpstreamAnswer,
    Written,
)
from ._sync._client import Fencegate
from ._sync._commit import Commit
from ._sync._events import Events
from ._sync._holding import Shard
from ._sync._job import Checkpoint, Job, Run
from ._sync._lock import Fence, Lock
from ._sync._object import Reader
from ._sync._pages import Listing
from ._sync._scope import LockScope
from ._version import VERSION as __version__
from ._wire import (
    AuditEntry,
    CommitResult,
    CommittedResource,
    DoubtEntry,
    ForwardRecord,
    IntentEntry,
    LockRecord,
    ObjectEntry,
    Operation,
    PartState,
    Readiness,
    RejectionEntry,
    Resource,
    S3Access,
    Status,
    StatusCounts,
    Version,
    Waiter,
    WriteEvent,
)
from ._wish import KeepOptions, LockOptions
from ._words import (
    AuditAction,
    ErrorClass,
    Kind,
    LockState,
    LockStatus,
    LossReason,
    OperationOutcome,
    Supersession,
)
from .errors import (
    Busy,
    Changed,
    CursorVoid,
    Denied,
    FenceError,
    GatewayFault,
    InProgress,
    LockHeld,
    LockLost,
    Misuse,
    NoFence,
    NotFound,
    OutcomeUnknown,
    QueueFull,
    ResourceDraining,
    ResourceFrozen,
    Unavailable,
    WaitElapsed,
    WouldDeadlock,
)

__all__ = [
    "Fencegate",
    "AsyncFencegate",
    "Lock",
    "AsyncLock",
    "LockScope",
    "AsyncLockScope",
    "LockOptions",
    "KeepOptions",
    "Fence",
    "AsyncFence",
    "Commit",
    "AsyncCommit",
    "Body",
    "BodyLike",
    "Duration",
    "DELETE",
    "KEEP",
    "Written",
    "Deleted",
    "Committed",
    "CommitResult",
    "CommittedResource",
    "Receipt",
    "UpstreamAnswer",
    "Settled",
    "Applied",
    "NotApplied",
    "Object",
    "ObjectHead",
    "Reader",
    "AsyncReader",
    "Listing",
    "AsyncListing",
    "Page",
    "Events",
    "AsyncEvents",
    "WriteEvent",
    "Void",
    "Leader",
    "Handoff",
    "Shard",
    "AsyncShard",
    "Job",
    "AsyncJob",
    "JobOptions",
    "Run",
    "AsyncRun",
    "Checkpoint",
    "AsyncCheckpoint",
    "JobEnd",
    "RunRecord",
    "RunStatus",
    "JobState",
    "Resource",
    "ObjectEntry",
    "Version",
    "Waiter",
    "Operation",
    "ForwardRecord",
    "LockRecord",
    "S3Access",
    "Status",
    "StatusCounts",
    "Readiness",
    "PartState",
    "AuditEntry",
    "RejectionEntry",
    "IntentEntry",
    "DoubtEntry",
    "FenceError",
    "LockLost",
    "Busy",
    "LockHeld",
    "WaitElapsed",
    "QueueFull",
    "ResourceFrozen",
    "ResourceDraining",
    "InProgress",
    "Changed",
    "NotFound",
    "Unavailable",
    "OutcomeUnknown",
    "Misuse",
    "WouldDeadlock",
    "NoFence",
    "GatewayFault",
    "CursorVoid",
    "Denied",
    "ErrorClass",
    "LossReason",
    "LockStatus",
    "LockState",
    "Kind",
    "OperationOutcome",
    "Supersession",
    "AuditAction",
    "__version__",
]
