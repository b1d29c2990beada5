"""Words of the API and of the client. A word that this version does not know is kept as it came (CC7)."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Word(StrEnum):
    """A word of the API; `Word("new")` gives a word of that text although it is not listed."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        word = str.__new__(cls, value)
        word._name_ = value
        word._value_ = value
        return word


class ErrorClass(StrEnum):
    """What the caller does about an error."""

    LOCK_LOST = "LockLost"
    BUSY = "Busy"
    CHANGED = "Changed"
    NOT_FOUND = "NotFound"
    UNAVAILABLE = "Unavailable"
    OUTCOME_UNKNOWN = "OutcomeUnknown"
    MISUSE = "Misuse"
    GATEWAY_FAULT = "GatewayFault"
    CURSOR_VOID = "CursorVoid"
    DENIED = "Denied"


class LossReason(StrEnum):
    """Why a guard is no longer good."""

    SUPERSEDED = "superseded"
    """Somebody else holds it now."""
    BROKEN = "broken"
    """An operator broke it."""
    VOID = "void"
    """The ledger was re-fenced."""
    RELEASED_ELSEWHERE = "released_elsewhere"
    """Somebody else who knows its id gave it back."""
    HOLD_EXCEEDED = "hold_exceeded"
    """It was held for as long as it may be."""
    GONE = "gone"
    """The gateway does not know it any more."""
    ORDER_STALE = "order_stale"
    """The order of a fence did not rise: a later holder of your own lock was here before."""
    UNCONFIRMED = "unconfirmed"
    """Its deadline passed before a renewal was answered."""
    STALLED = "stalled"
    """The work gave no sign of life within `stall_after`."""
    TRANSFERRED = "transferred"
    """It was handed to a successor."""
    RELEASED = "released"
    """This program gave it back."""
    CLOSED = "closed"
    """The client was closed."""
    FORKED = "forked"
    """This process is a copy of the one that holds it."""


class LockStatus(StrEnum):
    """In what state a guard is, by the client's clock."""

    HELD = "held"
    """Its deadline lies ahead."""
    UNCERTAIN = "uncertain"
    """Its deadline has passed, and nobody has said that it is lost."""
    LOST = "lost"
    """Lost for good."""
    RELEASED = "released"
    """Given back."""


class LockState(Word):
    """How a lock stands at the gateway."""

    LEASED = "leased"
    BREAKING = "breaking"
    DRAINING = "draining"
    BROKEN = "broken"
    EXPIRED = "expired"
    RELEASED = "released"


class GrantEnd(Word):
    """How a grant ended on a resource; ``lapsed``: its time was over when the next was granted."""

    RELEASED = "released"
    BROKEN = "broken"
    TRANSFERRED = "transferred"
    FENCED = "fenced"
    LAPSED = "lapsed"
    VOID = "void"


class LockEnd(Word):
    """How a lock ended."""

    SUPERSEDED = "superseded"
    RELEASED = "released"
    BROKEN = "broken"
    VOID = "void"


class Supersession(Word):
    """What put a newer token in the place of an older one."""

    GRANT = "grant"
    TRANSFER = "transfer"
    FENCE = "fence"


class Kind(Word):
    """What a write did."""

    PUT = "put"
    DELETE = "delete"
    DELETE_ALL = "delete_all"
    COMMIT = "commit"
    FORWARD = "forward"


class CommitVerb(Word):
    """What one operation of a commit did."""

    PUT = "put"
    DELETE = "delete"


class OperationOutcome(Word):
    """What became of a write."""

    APPLIED = "applied"
    NOT_APPLIED = "not_applied"
    UNKNOWN = "unknown"


class ForwardState(Word):
    """How far a request to an upstream is."""

    OPEN = "open"
    ANSWERED = "answered"
    UNSENT = "unsent"
    RESOLVED = "resolved"
    ELAPSED = "elapsed"


class AuditAction(Word):
    """What was done, in the audit."""

    GRANT = "grant"
    TRANSFER = "transfer"
    BREAK = "break"
    BROKEN = "broken"
    FREEZE = "freeze"
    UNFREEZE = "unfreeze"
    PROTECT = "protect"
    UNPROTECT = "unprotect"
    FENCE = "fence"
    RESOLVE = "resolve"
    REFENCE = "refence"
    EPOCH = "epoch"
    ADOPT = "adopt"
    AGREE = "agree"
    ACCESS = "access"
    DENIED = "denied"
    AUTH_FAILED = "auth-failed"
    FORK = "fork"


class Part(Word):
    """A part of a gateway."""

    GATEWAY = "gateway"
    LEDGER = "ledger"
    MINT = "mint"
    BLOBS = "blobs"
    SETTINGS = "settings"
    WRITES = "writes"
    GRANTS = "grants"


class LedgerKind(Word):
    """What a gateway's ledger is."""

    POSTGRES = "postgres"
    SQLITE = "sqlite"
    MEMORY = "memory"


class MintKind(Word):
    """What gives a gateway its numbers."""

    ETCD = "etcd"
    EMBEDDED = "embedded"
    MEMORY = "memory"


class BlobsKind(Word):
    """Where a gateway keeps large objects."""

    FOLDER = "folder"
    S3 = "s3"
    AZURE = "azure"
    NONE = "none"
    MEMORY = "memory"
