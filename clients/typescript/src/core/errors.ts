// Errors by what the caller does about them: check with `instanceof`, not by codes (CC58).

import { classOfAnswer, lossReasonOf, REASON_TEXT, type ErrorClass, type LossReason } from "./classes.js";

/** What a gateway says of a call that it refused, or could not do (RFC 9457). */
export interface Problem {
  readonly code: string;
  readonly status: number;
  readonly title: string;
  readonly detail: string;
  readonly retryable: boolean;
  readonly request_id?: string | null;
  readonly resource?: string | null;
  readonly reason?: string | null;
  readonly outcome?: string | null;
  readonly operation?: string | null;
  readonly retry_after_ms?: number | null;
  readonly holder?: string | null;
  readonly holder_age_ms?: number | null;
  readonly position?: number | null;
  readonly index?: number | null;
  readonly version?: number | null;
  readonly etag?: string | null;
  readonly superseded_by?: string | null;
  readonly superseded_at?: string | null;
  readonly begin_after?: string | null;
}

/** What is known of a call that failed, whatever its class. */
export interface ErrorDetails {
  /** The gateway's error code; absent if no gateway answered, or nothing was sent. */
  readonly code?: string | undefined;
  /** The HTTP status of the answer. */
  readonly status?: number | undefined;
  /** What happened, for people. */
  readonly detail: string;
  /** The resource that it is about. */
  readonly resource?: string | undefined;
  /** The request, as in the gateway's log. */
  readonly requestId?: string | undefined;
  /** Whether the gateway says that the same may succeed later. */
  readonly retryable?: boolean | undefined;
  /** How many attempts were made. */
  readonly attempts?: number | undefined;
  /** When to try again, in milliseconds, if the gateway said so. */
  readonly retryAfterMs?: number | undefined;
  /** An operator's words on why. */
  readonly operatorReason?: string | undefined;
}

/** Any error of this library. Its `name` is that of its class. */
export abstract class FenceError extends Error implements ErrorDetails {
  /** What the caller does about it, in one word that is the same in all clients. */
  abstract readonly class: ErrorClass | "WouldDeadlock";
  readonly code: string | undefined;
  readonly status: number | undefined;
  readonly detail: string;
  readonly resource: string | undefined;
  readonly requestId: string | undefined;
  readonly retryable: boolean;
  readonly attempts: number;
  readonly retryAfterMs: number | undefined;
  readonly operatorReason: string | undefined;
  /** The idempotency key of the write that failed, and its number, if it is one. */
  write?: { readonly key: string; readonly number: number | undefined };

  constructor(details: string | ErrorDetails, before = "") {
    const known: ErrorDetails = typeof details === "string" ? { detail: details } : details;
    const code = known.code === undefined ? "" : ` [${known.code}]`;
    const attempts = known.attempts ?? 0;
    const words = known.operatorReason ? `: ${known.operatorReason}` : "";
    super(`${before}${known.detail}${words}${code}${attempts > 1 ? ` after ${attempts} attempts` : ""}`);
    this.code = known.code;
    this.status = known.status;
    this.detail = known.detail;
    this.resource = known.resource;
    this.requestId = known.requestId;
    this.retryable = known.retryable ?? false;
    this.attempts = attempts;
    this.retryAfterMs = known.retryAfterMs;
    this.operatorReason = known.operatorReason;
    // Until it is first read, a stack of V8 refers to the objects of its calls: an error that somebody keeps would keep
    // its guard, which would be renewed for ever (CC38). Not read at once: the class has yet to set the name.
    queueMicrotask(() => void this.stack);
  }
}

/** Stop, forget what you read, take the lock again, read again. */
export class LockLost extends FenceError {
  readonly class = "LockLost";
  override readonly name: string = "LockLost";
  /** Why, in one word. */
  readonly reason: LossReason;
  /** What put a newer token in its place, if the gateway said so. */
  readonly supersededBy: string | undefined;
  /** When, as RFC 3339 text. */
  readonly supersededAt: string | undefined;

  constructor(reason: LossReason, details?: ErrorDetails, problem?: Problem, operatorReason?: string) {
    super(details ?? { detail: REASON_TEXT[reason], operatorReason }, "the lock is lost: ");
    this.reason = reason;
    this.supersededBy = problem?.superseded_by ?? undefined;
    this.supersededAt = problem?.superseded_at ?? undefined;
  }
}

/** What is in the way. */
export type BusyKind =
  "LockHeld" | "WaitElapsed" | "QueueFull" | "ResourceFrozen" | "ResourceDraining" | "InProgress" | "Other";

const BUSY: Record<string, BusyKind> = {
  "lock-held": "LockHeld",
  "lock-wait-elapsed": "WaitElapsed",
  "queue-full": "QueueFull",
  "resource-frozen": "ResourceFrozen",
  "resource-draining": "ResourceDraining",
  "idempotency-in-progress": "InProgress",
};

/** Come back later; nothing is wrong. `kind` says what is in the way. */
export class Busy extends FenceError {
  readonly class = "Busy";
  override readonly name: string = "Busy";
  readonly kind: BusyKind;
  /** Who holds the lock, by the name it gave itself. */
  readonly holder: string | undefined;
  /** For how long already, in milliseconds. */
  readonly holderAgeMs: number | undefined;
  /** The place in line that was reached, from 1. */
  readonly position: number | undefined;

  constructor(details: ErrorDetails, problem?: Problem, kind?: BusyKind) {
    super(details);
    this.kind = kind ?? BUSY[details.code ?? ""] ?? "Other";
    this.holder = problem?.holder ?? undefined;
    this.holderAgeMs = problem?.holder_age_ms ?? undefined;
    this.position = problem?.position ?? undefined;
  }
}

/** Read again, redo, send again; the token is good. */
export class Changed extends FenceError {
  readonly class = "Changed";
  override readonly name: string = "Changed";
  /** Of a commit: the operation, from 0, that could not be done. */
  readonly index: number | undefined;
  /** The version of the resource as it is now. */
  readonly version: number | undefined;
  /** The tag of the object as it is now. */
  readonly etag: string | undefined;

  constructor(details: string | ErrorDetails, problem?: Problem) {
    super(details);
    this.index = problem?.index ?? undefined;
    this.version = problem?.version ?? undefined;
    this.etag = problem?.etag ?? undefined;
  }
}

/** It is not there: decide. */
export class NotFound extends FenceError {
  readonly class = "NotFound";
  override readonly name: string = "NotFound";
}

/** The gateway could not be asked until the deadline. Nothing was applied, and nothing is on its way. */
export class Unavailable extends FenceError {
  readonly class = "Unavailable";
  override readonly name: string = "Unavailable";
}

/** The call is wrong: mend it, or the settings. Sent again it fails again. */
export class Misuse extends FenceError {
  readonly class: "Misuse" | "WouldDeadlock" = "Misuse";
  override readonly name: string = "Misuse";
  /** Of a commit: the operation, from 0, that is wrong. */
  readonly index: number | undefined;

  constructor(details: string | ErrorDetails, problem?: Problem) {
    super(details);
    this.index = problem?.index ?? undefined;
  }
}

/** The scope that asks holds the lock already: it would wait for itself. */
export class WouldDeadlock extends Misuse {
  override readonly class = "WouldDeadlock";
  override readonly name: string = "WouldDeadlock";
}

/** Something between here and the ledger does what it should not: tell the operator, with the request id. */
export class GatewayFault extends FenceError {
  readonly class = "GatewayFault";
  override readonly name: string = "GatewayFault";
}

/** The place in the feed is void: begin behind `beginAfter`, and check what was built since. */
export class CursorVoid extends FenceError {
  readonly class = "CursorVoid";
  override readonly name: string = "CursorVoid";
  /** Where to begin again. */
  readonly beginAfter: string | undefined;

  constructor(details: ErrorDetails, problem?: Problem) {
    super(details);
    this.beginAfter = problem?.begin_after ?? undefined;
  }
}

/** Get the right to do this, or a credential that is good. */
export class Denied extends FenceError {
  readonly class = "Denied";
  override readonly name: string = "Denied";
}

/** The class of a problem. */
export function classOfProblem(problem: Problem): ErrorClass {
  return classOfAnswer(problem.code, problem.status, problem.retryable, problem.outcome === "unknown");
}

/** What a problem says, as errors carry it. */
export function detailsOf(problem: Problem, attempts: number): ErrorDetails {
  return {
    code: problem.code,
    status: problem.status,
    detail: `${problem.title}: ${problem.detail}`,
    resource: problem.resource ?? undefined,
    requestId: problem.request_id ?? undefined,
    retryable: problem.retryable,
    attempts,
    retryAfterMs: problem.retry_after_ms ?? undefined,
    operatorReason: problem.reason ?? undefined,
  };
}

/** The error of a problem. Not for writes of unknown outcome, which can be resolved. */
export function errorOfProblem(problem: Problem, attempts: number): FenceError {
  const details = detailsOf(problem, attempts);
  switch (classOfProblem(problem)) {
    case "LockLost":
      return new LockLost(lossReasonOf(problem.code) ?? "broken", details, problem);
    case "Busy":
      return new Busy(details, problem);
    case "Changed":
      return new Changed(details, problem);
    case "NotFound":
      return new NotFound(details);
    case "Misuse":
      return new Misuse(details, problem);
    case "GatewayFault":
      return new GatewayFault(details);
    case "CursorVoid":
      return new CursorVoid(details, problem);
    case "Denied":
      return new Denied(details);
    // A call that is no write can be made again: what is not known of it is not available.
    case "Unavailable":
    case "OutcomeUnknown":
      return new Unavailable(details);
  }
}
