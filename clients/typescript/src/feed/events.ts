// The feed of committed writes as an iterator that goes on across broken connections (CC48).

import { CALL, type CallOptions, type Inner } from "../client/inner.js";
import { anySignal } from "../client/signals.js";
import { Backoff } from "../core/backoff.js";
import { CursorVoid } from "../core/errors.js";
import type { Names } from "../core/options.js";
import type { WriteEvent } from "../wire.js";
import { Connection, Passing, poll, WAIT_MS } from "./connection.js";

/** For how long the feed is asked call by call, where streams are held back, before one is tried again. */
const POLLS_MS = 300_000;
/** A stream that was open for so long was a good one, although nothing came. */
const GOOD_MS = 10_000;

/** Options of the feed. */
export interface EventsOptions extends CallOptions {
  /** Behind the event with this cursor; by default from the beginning; `now`: what is committed from now on. */
  readonly after?: string | undefined;
  /**
   * What to do where the place in the feed is void, since the ledger was re-fenced: `raise`, the default: it ends as
   * `CursorVoid`. `continue`: it says so, and goes on behind it.
   */
  readonly onVoid?: "raise" | "continue" | undefined;
}

/** The names of options of the feed. */
export const EVENTS_NAMES: Names<EventsOptions> = {
  ...CALL,
  after: "text",
  onVoid: { raise: true, continue: true },
};

/** Something in the feed. Keep its `cursor` once the event was dealt with. */
export type FeedEvent =
  /** A committed write. */
  | { readonly type: "write"; readonly cursor: string; readonly write: WriteEvent }
  /**
   * The place in the feed was void, and it goes on behind another: writes that were told before may have been lost, so
   * whatever was built from them is to be checked.
   */
  | { readonly type: "void"; readonly cursor: string };

/** Each committed write, once. What breaks off is asked for again, for ever; a definite refusal is an error. */
export async function* events(inner: Inner, options: EventsOptions): AsyncGenerator<FeedEvent, void, undefined> {
  const { signal, done } = anySignal(options.signal, inner.closed.signal);
  const following = new Following(inner, options, signal);
  try {
    for (;;) yield await following.next();
  } catch (error) {
    // A client that was closed ends it.
    if (!inner.closed.signal.aborted || options.signal?.aborted) throw error;
  } finally {
    following.close();
    done();
  }
}

/** Follows the feed from connection to connection: where it stands, what it tries next, and when it rests. */
class Following {
  readonly #inner: Inner;
  readonly #signal: AbortSignal;
  readonly #onVoid: "raise" | "continue";
  #place: string | undefined;
  #connection: Connection | undefined;
  /** What was found and not given out yet. */
  #found: WriteEvent[] = [];
  /** Until when no stream is tried. */
  #pollsUntilMs = -Infinity;
  /** The pause that the stream asks for before the next. */
  #retryMs: number | undefined;
  #backoff = new Backoff();
  #attempts = 0;

  constructor(inner: Inner, options: EventsOptions, signal: AbortSignal) {
    this.#inner = inner;
    this.#signal = signal;
    this.#onVoid = options.onVoid ?? "raise";
    this.#place = options.after;
  }

  close(): void {
    this.#connection?.close();
    this.#connection = undefined;
  }

  async next(): Promise<FeedEvent> {
    for (;;) {
      this.#signal.throwIfAborted();
      for (let write = this.#found.shift(); write !== undefined; write = this.#found.shift()) {
        if (this.#place !== undefined && isTold(this.#place, write.event)) continue;
        this.#place = write.event;
        this.#progress();
        return { type: "write", cursor: write.event, write };
      }
      try {
        await this.#step();
      } catch (error) {
        this.#signal.throwIfAborted();
        if (error instanceof Passing) await this.#rest(error.message, error.floorMs);
        else return await this.#void(error);
      }
    }
  }

  #step(): Promise<void> {
    if (this.#connection !== undefined) return this.#listen(this.#connection);
    return this.#inner.time.now() < this.#pollsUntilMs ? this.#ask() : this.#connect();
  }

  /** The last step towards the next event did good. */
  #progress(): void {
    this.#backoff = new Backoff();
    this.#attempts = 0;
  }

  async #listen(connection: Connection): Promise<void> {
    try {
      const said = await connection.next();
      if (said.is === "write") this.#found.push(said.write);
      else if (said.is === "retry") this.#retryMs = said.ms;
      else this.#standAt(said.place);
    } catch (error) {
      if (connection.openedMs + GOOD_MS <= this.#inner.time.now()) this.#progress();
      this.close();
      throw error;
    }
  }

  /** Moves the place where nothing was told, never back. */
  #standAt(place: string): void {
    if (place !== "" && !(this.#place !== undefined && isTold(this.#place, place))) this.#place = place;
  }

  async #connect(): Promise<void> {
    this.#connection = await Connection.open(this.#inner, this.#place, this.#signal);
    if (this.#connection === undefined) this.#pollsUntilMs = this.#inner.time.now() + POLLS_MS;
  }

  /** One call that waits. If it fails, it was perhaps not the stream's fault, either: the next is one. */
  async #ask(): Promise<void> {
    const { time } = this.#inner;
    const beganMs = time.now();
    try {
      const page = await poll(this.#inner, this.#place, this.#signal);
      const isNew = (write: WriteEvent): boolean => this.#place === undefined || !isTold(this.#place, write.event);
      this.#found.push(...page.items.filter(isNew));
      if (this.#found.length > 0) return;
      this.#standAt(page.next_cursor ?? "");
    } catch (error) {
      this.#pollsUntilMs = -Infinity;
      throw error;
    }
    if (beganMs + WAIT_MS / 2 > time.now()) {
      throw new Passing("an answer without events that did not wait for any");
    }
    this.#progress();
  }

  /** A pause, longer each time until something good comes. */
  async #rest(detail: string, floorMs: number | undefined): Promise<void> {
    const { time } = this.#inner;
    this.#attempts += 1;
    this.#inner.tell({ type: "retry", call: "events", attempt: this.#attempts, detail });
    const leastMs = Math.max(floorMs ?? 0, this.#retryMs ?? 0);
    const pauseMs = this.#backoff.next(0.5 + time.draw() / 2, leastMs, Infinity) ?? 0;
    await time.sleepUntil(time.now() + pauseMs, this.#signal);
  }

  async #void(error: unknown): Promise<FeedEvent> {
    const isPassedOver = error instanceof CursorVoid && this.#onVoid === "continue";
    if (!isPassedOver || error.beginAfter === undefined) throw error;
    this.#place = error.beginAfter;
    await this.#rest("the place in the feed is void", undefined);
    return { type: "void", cursor: error.beginAfter };
  }
}

/** Whether an event lies at or before a place, where both can be read: `g0-17`. */
export function isTold(place: string, event: string): boolean {
  const [here, there] = [place, event].map((text) => /^g([0-9]+)-([0-9]+)$/.exec(text));
  if (here == null || there == null || here[1] !== there[1]) return false;
  return BigInt(there[2]!) <= BigInt(here[2]!);
}
