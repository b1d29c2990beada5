// What settles a write whose attempts went without an answer (CC23, CC24, CC24a).
//
// Once an attempt was sent and not answered, a copy of it may still arrive. From then on only an answer that holds for
// every copy ends the write with a certain result.

import type { ErrorClass } from "./classes.js";

/**
 * What the write demands of what it finds: nothing; `If-Match` with tags, which never recur; or that something is not
 * there, or a version, which may be so again later.
 */
export type Condition = "none" | "tags" | "absence";

/** An answer to an attempt. */
export type WriteHeard =
  | { is: "done" | "unsent" | "unanswered" }
  | { is: "problem"; code: string; class: ErrorClass }
  | { is: "foreign"; status: number };

/** What else the guard writes. */
export interface Beside {
  /** Another write was under way since this one began, and the caller was not yet told that this one is unknown. */
  readonly overlapped: boolean;
  /** A write with a lower number is under way, or its outcome is unknown. */
  readonly earlierIsOpen: boolean;
}

/**
 * What follows: it took effect, once; it took none and never will; the same again after a pause; or the same under the
 * next number (CC23): it took no effect, but overlapped another write.
 */
export type Verdict = "done" | "refused" | "again" | "renumber";

/** The same bytes are malformed in every copy. */
const BYTES_ARE_WRONG = new Set([
  "fence-token-missing",
  "fence-token-malformed",
  "lock-id-mismatch",
  "body-malformed",
  "query-malformed",
]);

/** What is known of one write. */
export class Settling {
  readonly #isNumbered: boolean;
  readonly #isOwnKey: boolean;
  readonly #condition: Condition;
  /** Whether a copy of an attempt may still take effect, or has. */
  isOpen = false;

  /** A write of which nothing was sent. `isOwnKey`: the client made its key, so that nobody else has used it. */
  constructor(isNumbered: boolean, isOwnKey: boolean, condition: Condition) {
    this.#isNumbered = isNumbered;
    this.#isOwnKey = isOwnKey;
    this.#condition = condition;
  }

  /** Judges the answer to an attempt, beside the other writes of the guard. */
  judge(heard: WriteHeard, beside: Beside): Verdict {
    switch (heard.is) {
      case "done":
        return this.#settled("done");
      case "unsent":
        return "again";
      case "unanswered":
        return this.#open();
      case "foreign":
        // A proxy that wants to know who asks has passed nothing on. Of all else that stands in between, nobody knows
        // what it did before it answered.
        return !this.isOpen && (heard.status === 401 || heard.status === 407) ? "refused" : this.#open();
      case "problem":
        return heard.class === "OutcomeUnknown" ? this.#open() : this.#problem(heard.code, heard.class, beside);
    }
  }

  #problem(code: string, cls: ErrorClass, beside: Beside): Verdict {
    // An attempt of ours that we know nothing of is under way: the key is ours alone.
    if (code === "idempotency-in-progress") return this.#open();
    // The key is looked up before the token is judged, and the token is dead for every copy.
    if (cls === "LockLost") return this.#settled("refused");
    // Every copy has that number.
    if (code === "sequence-out-of-order" && this.#isNumbered) {
      return this.#settled(beside.overlapped ? "renumber" : "refused");
    }
    if (code === "version-mismatch") return this.#mismatch(beside);
    // Under a key that is ours alone, the other bytes are of an attempt of ours, which took effect.
    if (code === "idempotency-key-reused") return this.#isOwnKey ? this.#open() : this.#settled("refused");
    if (BYTES_ARE_WRONG.has(code)) return this.#settled("refused");
    if (cls === "Unavailable") return "again";
    // Limits, names, rights, marks: another gateway, or a later moment, may see it otherwise.
    return this.#unlessOpen();
  }

  #mismatch(beside: Beside): Verdict {
    if (this.#condition === "tags") return this.#settled("refused");
    // A later write of ours that could make it true outnumbers the copy, and another holder's makes it stale. Only an
    // earlier one of ours that is open could still land before the copy.
    const isFinal = this.#condition === "absence" && this.#isNumbered && !beside.earlierIsOpen;
    return isFinal ? this.#settled("refused") : this.#unlessOpen();
  }

  /** The answer is the result if it was the only attempt; else it says nothing of the others. */
  #unlessOpen(): Verdict {
    return this.isOpen ? "again" : "refused";
  }

  #settled(verdict: Verdict): Verdict {
    this.isOpen = false;
    return verdict;
  }

  #open(): Verdict {
    this.isOpen = true;
    return "again";
  }
}
