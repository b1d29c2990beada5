// One connection to the feed of writes: a stream of events, or a call that waits for the next ones (CC48).

import type { Inner } from "../client/inner.js";
import { Busy, FenceError, GatewayFault, Unavailable } from "../core/errors.js";
import { RequestIds } from "../core/ids.js";
import { query } from "../core/names.js";
import { SseParser, type SseItem } from "../core/sse.js";
import { errorOf, floorMs, summary, type Answer, type Failure } from "../transport/answer.js";
import { STREAM_IDLE_MS } from "../transport/request.js";
import type { Page, WriteEvent } from "../wire.js";

/** A stream says where it begins at once. One of which nothing is heard for so long is held back on the way. */
const SILENCE_MS = 5_000;
/** For how long a call waits for events. Load balancers cut calls of 30 s or 60 s. */
export const WAIT_MS = 25_000;
/** The longest pause that anybody on the way may ask for. */
const FLOOR_MS_MAX = 60_000;

/** A call or stream that came to nothing; another attempt, after a pause, may do better. */
export class Passing extends Error {
  readonly floorMs: number | undefined;

  constructor(detail: string, floorMs?: number) {
    super(detail);
    this.floorMs = floorMs === undefined ? undefined : Math.min(floorMs, FLOOR_MS_MAX);
  }
}

/** What to throw for a failure: that it may pass, or the error. */
function thrown(failure: Failure): Error {
  const error = errorOf(failure, 1);
  return isPassing(error) ? new Passing(summary(failure), floorMs(failure)) : error;
}

/**
 * Whether what failed may do better later, although nothing here is changed: nobody answered, or nobody could, or there
 * were too many.
 */
export function isPassing(error: unknown): boolean {
  if (!(error instanceof FenceError)) return false;
  const status = error.status ?? 0;
  return error instanceof Unavailable || error instanceof Busy || status >= 500 || status === 408 || status === 429;
}

/** What a stream says: where it stands, a write, or how long to wait before the next connection. */
export type Said = { is: "place"; place: string } | { is: "write"; write: WriteEvent } | { is: "retry"; ms: number };

/** A stream of events. */
export class Connection {
  readonly openedMs: number;
  readonly #answer: Answer;
  readonly #letGo: () => void;
  readonly #parser = new SseParser();
  #items: SseItem[] = [];

  private constructor(answer: Answer, openedMs: number, letGo: () => void) {
    this.#answer = answer;
    this.openedMs = openedMs;
    this.#letGo = letGo;
  }

  /**
   * Opens a stream behind this place, and waits until it has said something. `undefined`: it is held back on the way, or
   * there is none to be had now.
   */
  static async open(inner: Inner, after: string | undefined, signal: AbortSignal): Promise<Connection | undefined> {
    const give = inner.takeStream();
    if (give === undefined) return undefined;
    const silent = new AbortController();
    const abort = (): void => silent.abort(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
    const letGo = (): void => {
      signal.removeEventListener("abort", abort);
      give();
    };
    const stop = inner.time.at(inner.time.now() + SILENCE_MS, () => silent.abort());
    let connection: Connection | undefined;
    try {
      const headers = { accept: "text/event-stream" };
      const request = { method: "GET", path: place(after), headers, idleMs: STREAM_IDLE_MS } as const;
      const reply = await inner.transport.attempt(request, new RequestIds().next(), silent.signal);
      if (reply.is !== "done") throw thrown(reply);
      if (!(reply.header("content-type") ?? "").startsWith("text/event-stream")) {
        reply.discard();
        return undefined;
      }
      const opened = new Connection(reply, inner.time.now(), letGo);
      await opened.#read();
      return (connection = opened);
    } catch (error) {
      if (silent.signal.aborted && !signal.aborted) return undefined;
      throw error;
    } finally {
      stop();
      if (connection === undefined) letGo();
    }
  }

  /**
   * What it says next.
   *
   * @throws Passing: the stream broke off. GatewayFault: it is none.
   */
  async next(): Promise<Said> {
    for (;;) {
      const item = this.#items.shift();
      if (item === undefined) await this.#read();
      else if (item.is === "event" && item.event === "write") return { is: "write", write: eventIn(item.data) };
      // Events of another kind are a newer gateway's.
      else if (item.is === "id") return { is: "place", place: item.id };
      else if (item.is === "retry") return { is: "retry", ms: Math.min(item.ms, FLOOR_MS_MAX) };
      else if (item.is === "too-long") throw new GatewayFault("a stream of events without events");
    }
  }

  /** Ends it. */
  close(): void {
    this.#answer.discard();
    this.#letGo();
  }

  async #read(): Promise<void> {
    const piece = await this.#answer.next();
    if (piece === undefined) throw new Passing("the stream ended");
    if (!(piece instanceof Uint8Array)) throw new Passing(summary(piece));
    this.#items.push(...this.#parser.push(piece));
  }
}

function eventIn(data: string): WriteEvent {
  try {
    const event = JSON.parse(data) as WriteEvent | null;
    if (typeof event?.event === "string") return event;
  } catch {
    // It is no event, as is told below.
  }
  throw new GatewayFault("an event that is none");
}

/** Asks for the events behind this place, and waits for the first of them for a while. */
export async function poll(inner: Inner, after: string | undefined, signal: AbortSignal): Promise<Page<WriteEvent>> {
  const path = place(after, { limit: 1000, wait: `${WAIT_MS}ms` });
  const request = { method: "GET", path, waitMs: WAIT_MS } as const;
  const reply = await inner.transport.attempt(request, new RequestIds().next(), signal);
  if (reply.is !== "done") throw thrown(reply);
  const read = await reply.json<Page<WriteEvent>>();
  if (read.is !== "read") throw thrown(read);
  return read.value;
}

function place(after: string | undefined, more: Record<string, string | number> = {}): string {
  return `/events${query({ after, ...more })}`;
}
