// Who leads (CC52): whose lock it is, told anew whenever that changes.

import type { CallOptions, Inner } from "../client/inner.js";
import { anySignal } from "../client/signals.js";
import { Backoff, portion } from "../core/backoff.js";
import { FenceError } from "../core/errors.js";
import { query } from "../core/names.js";
import type { LockRecord, Resource } from "../wire.js";
import { isPassing, WAIT_MS } from "./connection.js";

/** How often a gateway is asked that cannot tell of changes, or where nobody was yet. */
const POLL_MS = 2_000;

/** Whose lock it is. */
export interface Leader {
  /** The name that the holder gave itself. */
  readonly owner: string;
  /** Since when, as RFC 3339 text. */
  readonly since: string;
  readonly state: LockRecord["state"];
  /**
   * Whether it leads still: a lock that was released or broken leads no more. One that has expired is nobody else's yet,
   * so that its holder may still write.
   */
  readonly leads: boolean;
}

/** Who holds the lock: at once, and again whenever that changes. `undefined`: nobody ever did. */
export async function* observe(
  inner: Inner,
  path: string,
  options: CallOptions,
): AsyncGenerator<Leader | undefined, void, undefined> {
  const { signal, done } = anySignal(options.signal, inner.closed.signal);
  const observer = new Observer(inner, path, signal);
  try {
    for (;;) yield await observer.next();
  } catch (error) {
    // A client that was closed ends it.
    if (!inner.closed.signal.aborted || options.signal?.aborted) throw error;
  } finally {
    done();
  }
}

class Observer {
  readonly #inner: Inner;
  readonly #path: string;
  readonly #signal: AbortSignal;
  /** Who was told last, as text; `undefined`: nothing was told yet. */
  #told: string | undefined;
  #tag: string | undefined;
  #backoff = new Backoff();
  #dueMs = 0;
  #last: Leader | undefined;

  constructor(inner: Inner, path: string, signal: AbortSignal) {
    this.#inner = inner;
    this.#path = path;
    this.#signal = signal;
  }

  async next(): Promise<Leader | undefined> {
    for (;;) {
      await this.#inner.time.sleepUntil(this.#dueMs, this.#signal);
      try {
        const leader = await this.#look();
        const shown = JSON.stringify(leader ?? null);
        if (shown === this.#told) continue;
        this.#told = shown;
        this.#last = leader;
        return leader;
      } catch (error) {
        this.#signal.throwIfAborted();
        if (!isPassing(error)) throw error;
        this.#rest();
      }
    }
  }

  /** One call: waits for a change if the gateway can. */
  async #look(): Promise<Leader | undefined> {
    const { time } = this.#inner;
    const beganMs = time.now();
    const since = this.#tag;
    this.#tag = undefined;
    const waits = since === undefined ? {} : { since, wait: `${WAIT_MS}ms` };
    const waitMs = since === undefined ? undefined : WAIT_MS;
    const request = { method: "GET", path: this.#path + query(waits), waitMs } as const;
    try {
      const { owner, acquired_at, state, state_tag } = await this.#inner.json<
        Partial<Resource> & Pick<Resource, "owner">
      >("observe", request, { signal: this.#signal });
      const leads = state !== "released" && state !== "broken";
      const leader = { owner, since: acquired_at ?? "", state: state ?? "leased", leads };
      this.#tag = state_tag;
      const hasWaited = beganMs + WAIT_MS / 2 <= time.now();
      if (state_tag === undefined) this.#dueMs = time.now() + POLL_MS;
      else if (hasWaited || JSON.stringify(leader) !== this.#told) this.#backoff = new Backoff();
      // What changed may be of no interest here, and may change again at once.
      else this.#rest();
      return leader;
    } catch (error) {
      const code = error instanceof FenceError ? error.code : undefined;
      if (code === "resource-not-found") {
        this.#dueMs = time.now() + POLL_MS / 2 + portion(POLL_MS, time.draw());
        return undefined;
      }
      // This gateway is an older one than that which gave the tag.
      if (code !== "query-malformed" || since === undefined) throw error;
      this.#dueMs = time.now() + POLL_MS;
      return this.#last;
    }
  }

  #rest(): void {
    const { time } = this.#inner;
    this.#dueMs = time.now() + (this.#backoff.next(0.5 + time.draw() / 2, undefined, Infinity) ?? 0);
  }
}
