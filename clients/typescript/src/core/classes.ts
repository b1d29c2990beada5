// What a caller does about an answer: the class of each error code, and why a guard is lost (CC58).

/** What the caller does about an error. */
export type ErrorClass =
  | "LockLost"
  | "Busy"
  | "Changed"
  | "NotFound"
  | "Unavailable"
  | "OutcomeUnknown"
  | "Misuse"
  | "GatewayFault"
  | "CursorVoid"
  | "Denied";

/** Why a guard is not good any more. */
export type LossReason =
  | "superseded"
  | "broken"
  | "void"
  | "released_elsewhere"
  | "hold_exceeded"
  | "gone"
  | "order_stale"
  | "unconfirmed"
  | "stalled"
  | "transferred"
  | "released"
  | "closed";

const CODES: Record<ErrorClass, string> = {
  LockLost:
    "fence-token-void fence-token-stale fence-token-released fence-token-broken fence-order-stale lock-superseded " +
    "lock-released lock-broken lock-void lock-breaking lock-hold-exceeded",
  Busy: "lock-held lock-wait-elapsed queue-full resource-frozen resource-draining idempotency-in-progress",
  Changed: "version-mismatch sequence-out-of-order",
  NotFound:
    "lock-not-found resource-not-found object-not-found version-not-retained operation-not-found upstream-not-found " +
    "bucket-not-found",
  Unavailable:
    "request-timeout digest-mismatch rate-limited overloaded ledger-unavailable access-unavailable resource-busy " +
    "blobs-unavailable upload-expired mint-unavailable mint-regressed refence-required upstream-unreachable " +
    "shutting-down",
  OutcomeUnknown: "outcome-unknown upstream-failed upstream-timeout",
  Misuse:
    "fence-token-missing fence-token-malformed fence-token-unknown lock-id-mismatch lock-id-missing lock-id-conflict " +
    "resource-protected too-many-objects idempotency-key-reused upstream-path-invalid request-malformed host-not-served " +
    "origin-forbidden credentials-conflict body-malformed query-malformed resource-name-invalid object-key-invalid " +
    "route-not-found method-not-allowed payload-too-large uri-too-long unsupported-media-type range-not-satisfiable " +
    "headers-too-large bucket-not-empty bucket-depth-differs",
  GatewayFault: "internal blob-missing",
  CursorVoid: "events-cursor-void",
  Denied: "unauthenticated credential-expired permission-denied quota-exhausted",
};

/** The class of each code that this version knows. */
export const CLASS_OF_CODE: ReadonlyMap<string, ErrorClass> = new Map(
  Object.entries(CODES).flatMap(([name, codes]) => codes.split(" ").map((code) => [code, name as ErrorClass])),
);

/** The class of an answer of a gateway: an unknown outcome, then the code, then the status of a newer gateway. */
export function classOfAnswer(code: string, status: number, retryable: boolean, isOutcomeUnknown: boolean): ErrorClass {
  if (isOutcomeUnknown) return "OutcomeUnknown";
  const known = CLASS_OF_CODE.get(code);
  if (known !== undefined) return known;
  if (status === 401 || status === 403) return "Denied";
  if (status === 404) return "NotFound";
  if (retryable && (status === 409 || status === 423 || status === 429)) return "Busy";
  if (status === 412) return code.startsWith("fence-") ? "LockLost" : "Changed";
  if (status >= 400 && status < 500) return "Misuse";
  return retryable && status >= 500 ? "Unavailable" : "GatewayFault";
}

/** Whether an answer that is no gateway's is worth another attempt. */
export function isPassingStatus(status: number): boolean {
  return status >= 500 || status === 429;
}

/** The class of an answer that is no gateway's, to a call that may be made again. */
export function classOfForeign(status: number): ErrorClass {
  if (status === 401 || status === 403 || status === 407) return "Denied";
  return isPassingStatus(status) ? "Unavailable" : "GatewayFault";
}

const REASONS: Record<string, LossReason> = {
  "fence-token-stale": "superseded",
  "lock-superseded": "superseded",
  "fence-token-released": "released_elsewhere",
  "lock-released": "released_elsewhere",
  "fence-token-broken": "broken",
  "lock-broken": "broken",
  "fence-token-void": "void",
  "lock-void": "void",
  "fence-order-stale": "order_stale",
  "lock-hold-exceeded": "hold_exceeded",
  "lock-not-found": "gone",
};

/** Why a guard ended, from a code (CC33); `undefined`: it has not. `lock-breaking` is no end yet (CC34). */
export function lossReasonOf(code: string): LossReason | undefined {
  const reason = REASONS[code];
  if (reason !== undefined || CLASS_OF_CODE.has(code)) return reason;
  return code.startsWith("fence-") ? "superseded" : undefined;
}

/**
 * Whether the token is dead on all of so many resources. A lock that ended on one of several is still there on the
 * others, and one that was held for too long still writes until it is released (CC46).
 */
export function isDeadEverywhere(reason: LossReason, resources: number): boolean {
  if (reason === "void" || reason === "released_elsewhere" || reason === "transferred") return true;
  const ended = reason === "superseded" || reason === "broken" || reason === "order_stale";
  return ended && resources === 1;
}

/** The reason in words. */
export const REASON_TEXT: Record<LossReason, string> = {
  superseded: "somebody else holds it now",
  broken: "an operator broke it",
  void: "the ledger was re-fenced",
  released_elsewhere: "it was released elsewhere",
  hold_exceeded: "it was held for as long as it may be",
  gone: "the gateway does not know it any more",
  order_stale: "the order of the fence did not rise",
  unconfirmed: "its deadline passed before a renewal was answered",
  stalled: "the work gave no sign of life",
  transferred: "it was handed over",
  released: "it was released",
  closed: "the client was closed",
};
