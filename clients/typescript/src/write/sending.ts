// Sends a write until its outcome is known, or its deadline has passed. **Safety-critical**: an outcome that is unknown
// is never reported as known (CC24a).

import { Backoff } from "../core/backoff.js";
import {
  classOfProblem,
  detailsOf,
  FenceError,
  LockLost,
  Misuse,
  Unavailable,
  type ErrorDetails,
} from "../core/errors.js";
import { RequestIds } from "../core/ids.js";
import { Settling, type Verdict, type WriteHeard } from "../core/settling.js";
import { Turn } from "../client/turn.js";
import type { Held } from "../guard/held.js";
import type { UnderWay } from "../guard/numbers.js";
import { renewNow } from "../guard/renewing.js";
import { operationOfKey } from "../reading/operations.js";
import { errorOf, floorMs, summary, type Answer, type Failure, type Reply } from "../transport/answer.js";
import type { Operation } from "../wire.js";
import { findApplied, isAbout } from "./finding.js";
import type { Prepared } from "./options.js";
import { OutcomeUnknown } from "./unknown.js";

/** Until the gateway has said how long it keeps keys, nothing is sent again later than this. */
const RESENT_UNASKED_MS = 30_000;
/** How long a look-up may take. */
const ASK_WITHIN_MS = 5_000;

/** That a write took effect: as the answer to it says, or as its record says, which was looked up. */
export type Effect = ({ is: "answered" } & Answered) | { is: "found"; operation: Operation };

/** The answer to a write that took effect. Its headers say enough if a newer gateway has another body. */
export interface Answered {
  readonly operation: string | undefined;
  readonly version: number | undefined;
  readonly etag: string | undefined;
  readonly created: boolean;
  readonly replayed: boolean;
  /** JSON; `undefined` if there is none. */
  readonly body: unknown;
}

/** How a write went, for those who keep histories. */
export interface Receipt {
  /** Its idempotency key. */
  readonly key: string;
  /** Its number among the writes of its guard, if it has one. */
  readonly number: number | undefined;
  /** How many attempts were made. */
  readonly attempts: number;
}

/** What became of a write. */
export type Known =
  | { is: "applied"; operation: string | undefined; version: number | undefined }
  | { is: "not_applied"; error: FenceError };

/** How attempts ended that did not settle it well: nothing took effect, nor will it; or something may have. */
type Ended = { is: "failed"; error: FenceError } | { is: "open"; last: ErrorDetails };

/** One write under way, or whose outcome is unknown. */
export class Writing {
  readonly held: Held;
  readonly prepared: Prepared;
  readonly #turn = new Turn();
  #settling: Settling;
  readonly #ids = new RequestIds();
  #number: number | undefined;
  #underWay: UnderWay | undefined;
  /** When the first attempt was sent. */
  #firstMs: number | undefined;
  #operation: string | undefined;
  /**
   * Once the caller was told that the outcome is unknown, the write never gets another number: it could land on top of
   * what the caller wrote since (CC23).
   */
  #wasToldUnknown = false;
  /** What became of it, once that is known: it is never sent again. */
  #known: Known | undefined;

  constructor(held: Held, prepared: Prepared) {
    this.held = held;
    this.prepared = prepared;
    this.#settling = new Settling(held.isNumbered, prepared.isOwnKey, prepared.condition);
  }

  /** The operation, if a gateway named it. */
  get operation(): string | undefined {
    return this.#operation;
  }

  /** How it went so far. */
  get receipt(): Receipt {
    return { key: this.prepared.key, number: this.#number, attempts: this.#ids.attempts };
  }

  /** Sends the write until it is settled. */
  async go(): Promise<Effect> {
    const { held, prepared } = this;
    const { inner } = held;
    const { signal } = prepared;
    const beganMs = inner.time.now();
    signal?.throwIfAborted();
    // 1. Locally: is the guard good (CC21)?
    held.check();
    held.learn({ on: "beat" });
    await held.inOrder?.take();
    try {
      // 2. A large body: a stale holder learns it for a hundred bytes (CC27).
      if (prepared.body?.isLarge && held.lease.isStaleForUpload(inner.time.now())) await this.#renewFirst(signal);
      held.check();
      this.#underWay = held.numbers.begin();
      // 3. Attempts, until something settles it; or else: did it take effect?
      const result = await this.#attempts(beganMs + prepared.withinMs, signal);
      const effect = "is" in result && result.is === "open" ? await this.#askOrGiveUp(result.last) : result;
      if (effect.is === "failed") throw effect.error;
      inner.called(prepared.call, beganMs, this.#ids.attempts);
      return effect;
    } catch (error) {
      if (error instanceof FenceError) error.write ??= { key: prepared.key, number: this.#number };
      inner.called(prepared.call, beganMs, this.#ids.attempts, error);
      throw error;
    } finally {
      this.#underWay?.end();
      this.#underWay = undefined;
      this.#noteSettled();
      held.inOrder?.give();
    }
  }

  /** Goes on with a write whose outcome was unknown, for so long (CC25). */
  goOn(withinMs: number, signal: AbortSignal | undefined): Promise<Known> {
    return this.#turn.with(async () => {
      if (this.#known !== undefined) return this.#known;
      const untilMs = this.held.inner.time.now() + withinMs;
      // First what costs nothing: is there a record of it?
      const result = (await this.#ask()) ?? (await this.#attempts(untilMs, signal));
      const settled = result.is === "open" ? await this.#askOrGiveUp(result.last) : result;
      this.#noteSettled();
      if (settled.is === "failed" && settled.error instanceof OutcomeUnknown) throw settled.error;
      return (this.#known = knownOf(settled));
    });
  }

  /**
   * Once a gateway has buried the lock, no copy of the write takes effect any more: no record means that none has, as
   * long as the gateway still remembers the key. `undefined`: that cannot be said.
   */
  askFinally(): Promise<Known | undefined> {
    return this.#turn.with(async () => {
      if (this.#known !== undefined) return this.#known;
      const askedMs = this.held.inner.time.now();
      const found = await this.#ask();
      if (found !== undefined) this.#known = knownOf(found);
      else if (await this.#isNowhere(askedMs)) {
        const error = new Unavailable("the lock is over, and no write has this key");
        this.#known = { is: "not_applied", error };
      }
      if (this.#known !== undefined) {
        this.#settling.isOpen = false;
        this.#noteSettled();
      }
      return this.#known;
    });
  }

  /** Its number is done with, if no copy of it can land any more. */
  #noteSettled(): void {
    if (this.#number !== undefined && !this.#settling.isOpen) this.held.numbers.settled(this.#number);
  }

  /** Whether a gateway says that no write has the key, at a time when it would know it if one had. */
  async #isNowhere(askedMs: number): Promise<boolean> {
    const { inner } = this.held;
    if (this.#firstMs === undefined) return true;
    const keptMs = (await inner.statusNow())?.keys_kept_ms ?? 0;
    const remembers = askedMs - this.#firstMs < Math.min(keptMs, this.prepared.keptMs) / 2;
    const { resource, key } = this.prepared;
    const untilMs = inner.time.now() + ASK_WITHIN_MS;
    const found = await operationOfKey(inner, resource, key, { untilMs }).catch(() => "not told" as const);
    return remembers && found === undefined;
  }

  async #renewFirst(signal: AbortSignal | undefined): Promise<void> {
    try {
      await renewNow(this.held, undefined, signal);
    } catch (error) {
      // A guard that nobody confirms may still be good: the gateway judges the write.
      if (!(error instanceof Unavailable)) throw error;
    }
  }

  /** Attempts, with pauses, until an answer settles the write or the deadline has passed. */
  async #attempts(untilMs: number, signal: AbortSignal | undefined): Promise<Effect | Ended> {
    const { inner } = this.held;
    const { time } = inner;
    const backoff = new Backoff();
    let last: ErrorDetails = { detail: "no attempt was made" };
    for (;;) {
      // 1. Is there time for an attempt, and does the gateway still know the key?
      if (time.now() >= untilMs || !(await this.#maySend())) return this.#ended(last);
      // 2. The attempt, and its answer, judged for all attempts alike.
      const reply = await this.#attempt(signal);
      const verdict = this.#judge(reply);
      if (verdict === "done" && reply.is === "done") {
        const effect = await this.#effect(reply);
        if (effect.is === "answered") return effect;
        // It took effect, and the answer that says so was cut off: again, for all of it.
        last = this.#details(effect);
        await inner.noteSlowness(effect);
      } else if (reply.is !== "done") {
        if (verdict === "refused") return { is: "failed", error: this.#refused(reply) };
        last = this.#details(reply);
        if (reply.is === "unsendable") return this.#ended(last, reply.error);
        // It took no effect under its number, nor will it: the next, after a while.
        if (verdict === "renumber") this.#giveNumberUp();
        await inner.noteSlowness(reply);
      }
      if (!this.prepared.retries) return this.#ended(last);
      // 3. A pause. One that would reach the deadline is not made.
      const leftMs = untilMs - time.now();
      const pauseMs = backoff.next(time.draw(), last.retryAfterMs, leftMs);
      if (pauseMs === undefined || pauseMs >= leftMs) return this.#ended(last);
      inner.tell({ type: "retry", call: this.prepared.call, attempt: this.#ids.attempts, detail: last.detail });
      await time.sleepUntil(time.now() + pauseMs, signal);
    }
  }

  async #attempt(signal: AbortSignal | undefined): Promise<Reply> {
    const { held, prepared } = this;
    const { inner } = held;
    // Nothing was sent by this attempt: it takes no number and opens nothing.
    signal?.throwIfAborted();
    let { request } = prepared;
    if (held.isNumbered) {
      this.#number ??= held.numbers.next();
      request = { ...request, headers: { ...request.headers, "x-fence-seq": String(this.#number) } };
    }
    this.#firstMs ??= inner.time.now();
    // Until it is answered it counts as open: a caller that gives up here leaves it so.
    const wasOpen = this.#settling.isOpen;
    this.#settling.isOpen = true;
    const reply = await inner.transport.attempt(request, this.#ids.next(), signal);
    this.#settling.isOpen = wasOpen;
    const operation = reply.is === "done" ? reply.header("x-operation-id") : operationIn(reply);
    this.#operation = operation ?? this.#operation;
    return reply;
  }

  #judge(reply: Reply): Verdict {
    const { numbers } = this.held;
    const beside = {
      overlapped: !this.#wasToldUnknown && (this.#underWay?.overlapped() ?? false),
      earlierIsOpen: this.#number !== undefined && numbers.isEarlierOpen(this.#number),
    };
    return this.#settling.judge(this.#heard(reply), beside);
  }

  #heard(reply: Reply): WriteHeard {
    switch (reply.is) {
      case "done":
        return { is: "done" };
      case "problem": {
        const { problem } = reply;
        const cls = classOfProblem(problem);
        if (cls === "LockLost") this.held.refused(problem);
        const isRiddenOut = this.prepared.ridesOut && cls === "Busy";
        return { is: "problem", code: problem.code, class: isRiddenOut ? "Unavailable" : cls };
      }
      case "foreign":
        return { is: "foreign", status: reply.status };
      case "nothing":
        return { is: reply.wasSent ? "unanswered" : "unsent" };
      case "unsendable":
        return { is: "unsent" };
    }
  }

  #giveNumberUp(): void {
    if (this.#number !== undefined) this.held.numbers.settled(this.#number);
    this.#number = undefined;
  }

  #refused(reply: Failure): FenceError {
    const error = errorOf(reply, this.#ids.attempts);
    if (error instanceof LockLost) {
      this.held.inner.tell({ type: "stale_write", resource: this.prepared.resource, reason: error.reason });
    }
    return error;
  }

  #details(reply: Failure): ErrorDetails {
    const attempts = this.#ids.attempts;
    if (reply.is === "problem") return detailsOf(reply.problem, attempts);
    const status = reply.is === "foreign" ? reply.status : undefined;
    return { status, attempts, detail: summary(reply), retryable: true, retryAfterMs: floorMs(reply) };
  }

  #ended(last: ErrorDetails, error?: FenceError): Ended {
    if (this.#settling.isOpen) return { is: "open", last };
    return { is: "failed", error: error ?? new Unavailable(last) };
  }

  /**
   * Whether the gateway surely still knows the key of the first attempt: nothing is sent later than half of the time
   * for which it is kept (CC20).
   */
  async #maySend(): Promise<boolean> {
    if (this.#firstMs === undefined) return true;
    const { inner } = this.held;
    const sinceMs = inner.time.now() - this.#firstMs;
    if (inner.keysKeptMs === undefined && sinceMs >= RESENT_UNASKED_MS) await inner.statusNow();
    const keptMs = inner.keysKeptMs === undefined ? 2 * RESENT_UNASKED_MS : inner.keysKeptMs;
    return sinceMs < Math.min(keptMs, this.prepared.keptMs) / 2;
  }

  /** Looks the write up; if that decides nothing, its outcome is unknown. */
  async #askOrGiveUp(last: ErrorDetails): Promise<Effect | { is: "failed"; error: FenceError }> {
    const found = await this.#ask();
    if (found !== undefined) return found;
    this.#wasToldUnknown = true;
    return { is: "failed", error: OutcomeUnknown.ofWrite(this, last) };
  }

  /**
   * Looks the write up: by its operation, or else by its key (CC24). `undefined`: that decides nothing. A record that
   * one attempt took no effect decides nothing either: a proxy may have made two of it.
   */
  async #ask(): Promise<Effect | { is: "failed"; error: FenceError } | undefined> {
    const finding = findApplied(this.held.inner, this.prepared, this.#operation, ASK_WITHIN_MS);
    const operation = await this.held.inner.time.within(ASK_WITHIN_MS, finding);
    if (operation === undefined) return undefined;
    this.#settling.isOpen = false;
    if (this.prepared.isOwnKey || isAbout(this.prepared, operation)) return { is: "found", operation };
    const error = new Misuse(`The idempotency key was used for another payload: by ${operation.operation}`);
    return { is: "failed", error };
  }

  /** Reads the answer to a write that took effect. */
  async #effect(answer: Answer): Promise<({ is: "answered" } & Answered) | Failure> {
    const { status } = answer;
    let body: unknown;
    if (status === 204) answer.discard();
    else {
      this.#settling.isOpen = true;
      const read = await answer.json<unknown>();
      if (read.is !== "read") return read;
      this.#settling.isOpen = false;
      body = read.value;
    }
    const version = answer.header("x-resource-version");
    return {
      is: "answered",
      operation: answer.header("x-operation-id"),
      version: version === undefined ? undefined : Number(version),
      etag: answer.header("etag"),
      created: status === 201,
      replayed: answer.header("idempotent-replayed") === "true",
      body,
    };
  }
}

function operationIn(failure: Failure): string | undefined {
  return failure.is === "problem" ? (failure.problem.operation ?? undefined) : undefined;
}

function knownOf(effect: Effect | { is: "failed"; error: FenceError }): Known {
  if (effect.is === "failed") return { is: "not_applied", error: effect.error };
  if (effect.is === "answered") return { is: "applied", operation: effect.operation, version: effect.version };
  const { operation, version } = effect.operation;
  return { is: "applied", operation, version: version ?? undefined };
}
