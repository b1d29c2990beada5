// What an acquire does after each answer (CC14 to CC19).

import type { ErrorClass } from "./classes.js";
import { isPassingStatus } from "./classes.js";

/** The longest wait of one call: load balancers cut calls at 30 s or a minute. */
const WAIT_MS = 25_000;

/** What came of an attempt to take a lock. */
export type AcquireHeard =
  | { is: "granted" | "draining" | "unsent" | "unanswered" | "unsendable" }
  | { is: "problem"; code: string; class: ErrorClass; retryAfterMs?: number | undefined }
  | { is: "foreign"; status: number };

/**
 * What follows: the lock is ours; the same call at once with the rest of the wait; the same call after a pause; the
 * same under a new id after a pause; the same after 1 s to 5 s, since the line is full; or the answer is the result.
 */
export type AcquireNext =
  { do: "take" | "wait-on" | "anew" | "later" | "give-up" } | { do: "again"; floorMs?: number | undefined };

/** Codes that say that the id was granted, that the answer was lost, and that the lock has ended since (CC17). */
const ENDED = new Set([
  "lock-released",
  "lock-superseded",
  "lock-broken",
  "lock-void",
  "lock-hold-exceeded",
  "lock-not-found",
]);

/** So many grants of one acquire may come to nothing. */
const WASTED_MAX = 3;

/** What is known of one acquire. */
export class Acquiring {
  /** How long the caller waits: 0 not at all, `Infinity` for ever. */
  readonly #waitMs: number;
  #mayBeLeft = false;
  /** The same before the attempt under way. */
  #wasLeft = false;
  /** How many grants came to nothing. */
  #wasted = 0;

  constructor(waitMs: number) {
    this.#waitMs = waitMs;
  }

  /** Whether something of the id may be left at the gateway, so that giving up has to bury it (CC18). */
  get mayBeLeft(): boolean {
    return this.#mayBeLeft;
  }

  /** What the next call waits, with so much left until the caller's deadline; `undefined`: it does not. */
  waitMs(leftMs: number): number | undefined {
    return this.#waitMs === 0 ? undefined : Math.min(WAIT_MS, leftMs);
  }

  /** An attempt goes out. */
  sent(): void {
    this.#wasLeft = this.#mayBeLeft;
    this.#mayBeLeft = true;
  }

  /** The id is done with: it was buried, or a guard has it. */
  forget(): void {
    this.#mayBeLeft = false;
  }

  /**
   * A grant came to nothing (CC19): it was over before it was renewed, or too little of it was left. Another one is
   * asked for, but not for ever: where answers take too long for the ttl, each ends so.
   */
  wasted(): "anew" | "give-up" {
    this.#wasted += 1;
    return this.#wasted < WASTED_MAX ? "anew" : "give-up";
  }

  /** Judges the answer to an attempt. */
  judge(heard: AcquireHeard): AcquireNext {
    switch (heard.is) {
      case "granted":
        return { do: "take" };
      case "draining":
        return { do: this.#waitMs === 0 ? "give-up" : "wait-on" };
      case "unsent":
        this.#mayBeLeft = this.#wasLeft;
        return { do: "again" };
      case "unanswered":
        return { do: "again" };
      case "unsendable":
        return this.#refused();
      case "foreign":
        return { do: isPassingStatus(heard.status) ? "again" : "give-up" };
      case "problem":
        return this.#problem(heard.code, heard.class, heard.retryAfterMs);
    }
  }

  #problem(code: string, cls: ErrorClass, floorMs: number | undefined): AcquireNext {
    const waits = this.#waitMs > 0;
    // The place in line is kept for a while: giving up frees it.
    if (code === "lock-wait-elapsed") return { do: waits ? "wait-on" : "give-up" };
    if (code === "queue-full" && this.#waitMs === Infinity) return { do: "later" };
    // The lock is sealed already, and only waits for the effects of older tokens.
    if (code === "resource-draining") return waits ? { do: "again", floorMs } : { do: "give-up" };
    if (ENDED.has(code)) {
      this.#mayBeLeft = false;
      return { do: "anew" };
    }
    if (cls === "Unavailable" || cls === "OutcomeUnknown") return { do: "again", floorMs };
    // It failed somewhere, and nobody says where.
    if (cls === "GatewayFault") return { do: "give-up" };
    return this.#refused();
  }

  /** A definite refusal leaves nothing of its own attempt. */
  #refused(): AcquireNext {
    this.#mayBeLeft = this.#wasLeft;
    return { do: "give-up" };
  }
}
