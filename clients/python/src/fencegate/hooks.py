"""The events of which `on_event` is told."""

from __future__ import annotations

from ._hooks import (
    Acquired,
    Breaking,
    Called,
    Ended,
    Event,
    Expiring,
    Hook,
    OutcomeResolved,
    ReleaseFailed,
    Renewed,
    RenewFailed,
    Retry,
    Revived,
    StaleWrite,
)

__all__ = [
    "Event",
    "Hook",
    "Acquired",
    "Ended",
    "Renewed",
    "RenewFailed",
    "Expiring",
    "Breaking",
    "Revived",
    "Retry",
    "Called",
    "OutcomeResolved",
    "StaleWrite",
    "ReleaseFailed",
]
