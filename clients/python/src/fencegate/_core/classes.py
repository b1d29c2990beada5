"""What a caller does about an error code (CC58), and why a guard ended (CC33)."""

from __future__ import annotations

from .._words import ErrorClass, LossReason

_CODES: dict[ErrorClass, str] = {
    ErrorClass.LOCK_LOST: """
        fence-token-void fence-token-stale fence-token-released fence-token-broken fence-order-stale
        lock-superseded lock-released lock-broken lock-void lock-breaking lock-hold-exceeded""",
    ErrorClass.BUSY: """
        lock-held lock-wait-elapsed queue-full resource-frozen resource-draining idempotency-in-progress""",
    ErrorClass.CHANGED: "version-mismatch sequence-out-of-order",
    ErrorClass.NOT_FOUND: """
        lock-not-found resource-not-found object-not-found version-not-retained operation-not-found
        upstream-not-found bucket-not-found""",
    ErrorClass.UNAVAILABLE: """
        request-timeout digest-mismatch rate-limited overloaded ledger-unavailable access-unavailable
        resource-busy blobs-unavailable upload-expired mint-unavailable mint-regressed refence-required
        upstream-unreachable shutting-down""",
    ErrorClass.OUTCOME_UNKNOWN: "outcome-unknown upstream-failed upstream-timeout",
    ErrorClass.MISUSE: """
        fence-token-missing fence-token-malformed fence-token-unknown lock-id-mismatch lock-id-missing
        lock-id-conflict resource-protected too-many-objects idempotency-key-reused upstream-path-invalid
        request-malformed
        host-not-served origin-forbidden credentials-conflict body-malformed query-malformed
        resource-name-invalid object-key-invalid route-not-found method-not-allowed payload-too-large
        uri-too-long unsupported-media-type range-not-satisfiable headers-too-large bucket-not-empty
        bucket-depth-differs""",
    ErrorClass.GATEWAY_FAULT: "internal blob-missing",
    ErrorClass.CURSOR_VOID: "events-cursor-void",
    ErrorClass.DENIED: "unauthenticated credential-expired permission-denied quota-exhausted",
}

CLASS_OF: dict[str, ErrorClass] = {code: kind for kind, codes in _CODES.items() for code in codes.split()}
"""The class of each code that this version knows."""

_REASON_OF: dict[str, LossReason] = {
    "fence-token-stale": LossReason.SUPERSEDED,
    "lock-superseded": LossReason.SUPERSEDED,
    "fence-token-released": LossReason.RELEASED_ELSEWHERE,
    "lock-released": LossReason.RELEASED_ELSEWHERE,
    "fence-token-broken": LossReason.BROKEN,
    "lock-broken": LossReason.BROKEN,
    "fence-token-void": LossReason.VOID,
    "lock-void": LossReason.VOID,
    "fence-order-stale": LossReason.ORDER_STALE,
    "lock-hold-exceeded": LossReason.HOLD_EXCEEDED,
    "lock-not-found": LossReason.GONE,
}


def class_of(code: str, status: int, retryable: bool, is_outcome_unknown: bool) -> ErrorClass:
    """The class of an answer of a gateway: an unknown outcome before all else, then the code, then, for a code of a
    newer gateway, its status."""
    if is_outcome_unknown:
        return ErrorClass.OUTCOME_UNKNOWN
    known = CLASS_OF.get(code)
    if known is not None:
        return known
    if status in (401, 403):
        return ErrorClass.DENIED
    if status == 404:
        return ErrorClass.NOT_FOUND
    if status in (409, 423, 429) and retryable:
        return ErrorClass.BUSY
    if status == 412:
        return ErrorClass.LOCK_LOST if code.startswith("fence-") else ErrorClass.CHANGED
    if 400 <= status < 500:
        return ErrorClass.MISUSE
    if 500 <= status < 600 and retryable:
        return ErrorClass.UNAVAILABLE
    return ErrorClass.GATEWAY_FAULT


def loss_of(code: str) -> LossReason | None:
    """Why a guard ended, from the code of an answer to a write or a renewal. None: it has not.

    `lock-breaking` is no end yet (CC34).
    """
    if code in CLASS_OF:
        return _REASON_OF.get(code)
    return LossReason.SUPERSEDED if code.startswith("fence-") else None


def is_dead_everywhere(reason: LossReason, resources: int) -> bool:
    """Whether the token is dead on all of so many resources (CC46).

    A lock that ended on one of several is still there on the others, and one that was held for too long still
    writes until it is released.
    """
    if reason in (LossReason.VOID, LossReason.RELEASED_ELSEWHERE, LossReason.TRANSFERRED, LossReason.FORKED):
        return True
    if reason in (LossReason.SUPERSEDED, LossReason.BROKEN, LossReason.ORDER_STALE):
        return resources == 1
    return False
