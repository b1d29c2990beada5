// What all guards and calls of one client share, and calls that may simply be made again.

import { Backoff } from "../core/backoff.js";
import type { FenceError } from "../core/errors.js";
import { RequestIds } from "../core/ids.js";
import type { Names } from "../core/options.js";
import type { Registry } from "../guard/registry.js";
import { tellSafely, type ClientEvent, type Hook } from "../hooks.js";
import { errorOf, floorMs, isRetried, summary, type Answer, type Failure, type Read } from "../transport/answer.js";
import { isReplayable, type Request } from "../transport/request.js";
import type { Platform } from "./platform.js";
import type { Time } from "../transport/time.js";
import type { Transport } from "../transport/transport.js";

/** The most streams of events of one client: a gateway gives no more to one peer (CC39). */
const STREAMS_MAX = 16;
/** How long a question about the gateway itself may take. */
const STATUS_WITHIN_MS = 5_000;

/** Options of every call. */
export interface CallOptions {
  /** Ends the call; it fails with the signal's reason then. */
  readonly signal?: AbortSignal | undefined;
}

/** The names of options of every call. */
export const CALL: Names<CallOptions> = { signal: "signal" };

/** How a call goes on. */
export interface Course extends CallOptions {
  /** Until when it is attempted; by default as long as the client says. */
  readonly untilMs?: number | undefined;
}

/** What calls need of `GET /status`. */
interface GatewayTimes {
  readonly answer_within_ms?: number;
  readonly keys_kept_ms?: number;
}

/** What a client is made of. */
export interface InnerOptions {
  readonly time: Time;
  readonly transport: Transport;
  readonly guards: Registry;
  readonly owner: string;
  /** The ttl of locks that do not say theirs; `null`: infinite. */
  readonly ttlMs: number | null;
  readonly callWithinMs: number;
  readonly writeWithinMs: number;
  readonly retries: boolean;
  readonly hook: Hook | undefined;
  readonly platform: Platform;
}

/** What all guards and calls of one client share. */
export class Inner {
  readonly time: Time;
  readonly transport: Transport;
  readonly guards: Registry;
  readonly owner: string;
  readonly ttlMs: number | null;
  readonly callWithinMs: number;
  readonly writeWithinMs: number;
  readonly retries: boolean;
  readonly platform: Platform;
  readonly #hook: Hook | undefined;
  /** No new locks are taken. */
  readonly closing = new AbortController();
  /** Nobody goes on with anything. */
  readonly closed = new AbortController();
  /** For how long gateways keep keys at least; `undefined`: not asked yet. */
  keysKeptMs: number | undefined;
  /** Until when no stream of the events of a lock is opened, since one was refused (CC39). */
  streamsRefusedUntilMs = 0;
  #streams = 0;
  readonly #background = new Set<Promise<unknown>>();

  constructor(options: InnerOptions) {
    this.time = options.time;
    this.transport = options.transport;
    this.guards = options.guards;
    this.owner = options.owner;
    this.ttlMs = options.ttlMs;
    this.callWithinMs = options.callWithinMs;
    this.writeWithinMs = options.writeWithinMs;
    this.retries = options.retries;
    this.platform = options.platform;
    for (const { signal } of [this.closing, this.closed]) this.platform.allowListeners(signal);
    this.#hook = options.hook;
  }

  /** Tells the hook. */
  tell(event: ClientEvent): void {
    if (this.#hook !== undefined) tellSafely(this.#hook, event);
  }

  /** Until when a call that begins now goes on. */
  callUntilMs(): number {
    return this.time.now() + this.callWithinMs;
  }

  /** Goes on with something that nobody waits for. */
  inBackground<T>(work: Promise<T>): Promise<T | undefined> {
    const going = work.catch(() => undefined);
    this.#background.add(going);
    void going.then(() => this.#background.delete(going));
    return going;
  }

  /** Waits for what goes on in the background. */
  async backgroundEnds(): Promise<void> {
    while (this.#background.size > 0) await Promise.all(this.#background);
  }

  /** One of the streams that a client may have; `undefined`: all are taken. The function gives it back. */
  takeStream(): (() => void) | undefined {
    if (this.#streams >= STREAMS_MAX) return undefined;
    this.#streams += 1;
    let isTaken = true;
    return () => {
      if (isTaken) this.#streams -= 1;
      isTaken = false;
    };
  }

  /** Makes a call, again and again until its deadline (CC10, CC11), and gives the answer. */
  call(call: string, request: Request, course: Course = {}): Promise<Answer> {
    return this.#callAnd(call, request, course, async (answer) => ({ is: "read", value: answer }));
  }

  /** The same, for an answer in JSON. */
  json<T>(call: string, request: Request, course: Course = {}): Promise<T> {
    return this.#callAnd(call, request, course, (answer) => answer.json<T>());
  }

  async #callAnd<T>(
    call: string,
    request: Request,
    { signal, untilMs = this.callUntilMs() }: Course,
    read: (answer: Answer) => Promise<Read<T>>,
  ): Promise<T> {
    const { time } = this;
    const beganMs = time.now();
    const ids = new RequestIds();
    const backoff = new Backoff();
    for (;;) {
      const reply = await this.transport.attempt(request, ids.next(), signal);
      const result = reply.is === "done" ? await read(reply) : reply;
      if (result.is === "read") {
        this.called(call, beganMs, ids.attempts);
        return result.value;
      }
      await this.noteSlowness(result);
      const leftMs = untilMs - time.now();
      const again = isRetried(result) && this.retries && isReplayable(request);
      const pauseMs = again ? backoff.next(time.draw(), floorMs(result), leftMs) : undefined;
      // A pause that would reach the deadline is not made: the last answer counts.
      if (pauseMs === undefined || pauseMs >= leftMs) {
        const error = errorOf(result, ids.attempts);
        this.called(call, beganMs, ids.attempts, error);
        throw error;
      }
      this.tell({ type: "retry", call, attempt: ids.attempts, detail: summary(result) });
      await time.sleepUntil(time.now() + pauseMs, signal);
    }
  }

  /** Tells the hook how a call ended. */
  called(call: string, beganMs: number, attempts: number, error?: unknown): void {
    if (this.#hook === undefined) return;
    const cls = (error as FenceError | undefined)?.class;
    this.tell({ type: "called", call, class: cls, attempts, tookMs: this.time.now() - beganMs });
  }

  /** After an answer that did not come in time: how long may they take here (CC9)? */
  async noteSlowness(failure: Failure): Promise<void> {
    if (failure.is === "nothing" && failure.timedOut) await this.statusNow();
  }

  /** Asks a gateway for its times, once, and keeps what calls need of them. */
  async statusNow(): Promise<GatewayTimes | undefined> {
    const request: Request = { method: "GET", path: "/status", withinMs: STATUS_WITHIN_MS };
    const asking = this.transport.attempt(request, new RequestIds().next()).then(async (reply) => {
      const read = reply.is === "done" ? await reply.json<GatewayTimes | null>() : undefined;
      return read?.is === "read" ? (read.value ?? undefined) : undefined;
    });
    const times = await this.time.within(STATUS_WITHIN_MS, asking);
    if (typeof times?.answer_within_ms === "number") this.transport.learnAnswerWithin(times.answer_within_ms);
    if (typeof times?.keys_kept_ms === "number") this.keysKeptMs = Math.max(1, times.keys_kept_ms);
    return times;
  }
}
