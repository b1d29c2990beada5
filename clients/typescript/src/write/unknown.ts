// An outcome that is unknown, and how to find it out (CC24, CC25).

import { CALL, type CallOptions, type Inner } from "../client/inner.js";
import { durationMs, type Duration } from "../core/durations.js";
import { FenceError, Unavailable, type ErrorDetails } from "../core/errors.js";
import { checked, type Names } from "../core/options.js";
import { operationOfId } from "../reading/operations.js";
import type { Operation } from "../wire.js";
import type { Known, Writing } from "./sending.js";

/** For how long an outcome is looked for, unless the caller says otherwise. */
const WITHIN_MS = 30_000;

/** What became of a write whose outcome was unknown. */
export type Settled =
  /** It took effect, once; `version` is absent for a delete of nothing. */
  | { readonly outcome: "applied"; readonly operation: string | undefined; readonly version: number | undefined }
  /** It took no effect and never will, for this reason. */
  | { readonly outcome: "not_applied"; readonly error: FenceError };

/** Options of the search for an outcome. */
export interface ResolveOptions extends CallOptions {
  /** For how long; by default 30 s. */
  readonly within?: Duration | undefined;
}

const NAMES: Names<ResolveOptions> = { ...CALL, within: "value" };

/** A write of objects, which can be sent again under its key; or a request to an upstream, which never is. */
type How = { is: "write"; writing: Writing } | { is: "forward"; inner: Inner };

/** A write that may have taken effect or not: nobody knows by now. `resolve` finds out; assume nothing. */
export class OutcomeUnknown extends FenceError {
  readonly class = "OutcomeUnknown";
  override readonly name: string = "OutcomeUnknown";
  /** The idempotency key; a request to an upstream has none. */
  readonly key: string | undefined;
  /** The operation, if a gateway named it. */
  readonly operation: string | undefined;
  readonly #how: How;
  readonly #last: ErrorDetails;

  private constructor(how: How, resource: string, operation: string | undefined, last: ErrorDetails) {
    super({ ...last, resource }, `the outcome of the write on ${resource} is unknown: `);
    this.#how = how;
    this.#last = last;
    this.operation = operation;
    this.key = how.is === "write" ? how.writing.prepared.key : undefined;
    if (how.is === "write") this.write = { key: how.writing.prepared.key, number: how.writing.receipt.number };
  }

  /** @internal */
  static ofWrite(writing: Writing, last: ErrorDetails): OutcomeUnknown {
    return new OutcomeUnknown({ is: "write", writing }, writing.prepared.resource, writing.operation, last);
  }

  /** @internal */
  static ofForward(inner: Inner, resource: string, operation: string | undefined, last: ErrorDetails): OutcomeUnknown {
    return new OutcomeUnknown({ is: "forward", inner }, resource, operation, last);
  }

  /**
   * Finds out what became of it: looks it up, and sends it again under its key and number as long as the gateway surely
   * knows the key. A request to an upstream is only looked up.
   *
   * @throws OutcomeUnknown: it is unknown still.
   */
  async resolve(options: ResolveOptions = {}): Promise<Settled> {
    checked("resolve()", options, NAMES);
    const withinMs = durationMs(options.within ?? WITHIN_MS, "within");
    if (this.#how.is === "write") return settled(await this.#how.writing.goOn(withinMs, options.signal));
    return this.#lookUp(this.#how.inner, withinMs, options.signal);
  }

  /**
   * Gives the lock back, so that no copy of the write takes effect any more, and asks then: the answer is final. The
   * guard is released by this, whatever comes of it. What went to an upstream is only looked up: a release does not
   * reach it.
   *
   * @throws OutcomeUnknown: no gateway could be asked.
   */
  async abandon(options: ResolveOptions = {}): Promise<Settled> {
    checked("abandon()", options, NAMES);
    if (this.#how.is === "forward") return this.resolve(options);
    const { writing } = this.#how;
    const isBuried = await writing.held.bury(durationMs(options.within ?? WITHIN_MS, "within"));
    const known = isBuried ? await writing.askFinally() : undefined;
    if (known === undefined) throw this.#still();
    return settled(known);
  }

  async #lookUp(inner: Inner, withinMs: number, signal: AbortSignal | undefined): Promise<Settled> {
    const { time } = inner;
    const untilMs = time.now() + withinMs;
    if (this.operation === undefined) throw this.#still();
    for (let pauseMs = 100; ; pauseMs = Math.min(2_000, pauseMs * 2)) {
      const found = await operationOfId(inner, this.operation, { untilMs, signal }).catch(() => undefined);
      signal?.throwIfAborted();
      const known = found && settledForward(found);
      if (known !== undefined) return known;
      if (time.now() + pauseMs >= untilMs) throw this.#still();
      await time.sleepUntil(time.now() + pauseMs, signal);
    }
  }

  #still(): OutcomeUnknown {
    return new OutcomeUnknown(this.#how, this.resource ?? "", this.operation, this.#last);
  }
}

function settled(known: Known): Settled {
  if (known.is === "not_applied") return { outcome: "not_applied", error: known.error };
  return { outcome: "applied", operation: known.operation, version: known.version };
}

/** What the record of a forwarded request decides, if it does. */
function settledForward({ outcome, operation, version }: Operation): Settled | undefined {
  if (outcome === "applied") return { outcome: "applied", operation, version: version ?? undefined };
  if (outcome !== "not_applied") return undefined;
  return { outcome: "not_applied", error: new Unavailable("the gateway's record says that it took no effect") };
}
