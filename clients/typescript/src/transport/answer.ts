// What came back: an answer of a gateway, of somebody in between, or none.

import { classOfForeign, isPassingStatus } from "../core/classes.js";
import {
  classOfProblem,
  Denied,
  errorOfProblem,
  GatewayFault,
  Unavailable,
  type FenceError,
  type Problem,
} from "../core/errors.js";
import { concat } from "../core/sse.js";
import type { Time } from "./time.js";

/** The longest answer that is read whole, unless a call says otherwise. */
export const JSON_BYTES_MAX = 16 << 20;
/** Answers up to this size are read in one go. */
const SHORT_BYTES = 64 << 10;

/** A gateway refused, or could not. */
export interface Refusal {
  readonly is: "problem";
  readonly problem: Problem;
}

/** Something answered that is no gateway, or not as one should. */
export interface Foreign {
  readonly is: "foreign";
  readonly status: number;
  readonly detail: string;
  readonly retryAfterMs?: number | undefined;
}

/** Nothing came back. */
export interface Nothing {
  readonly is: "nothing";
  /** Whether any of it may have reached a gateway. */
  readonly wasSent: boolean;
  /** Whether it was the time for an answer that ran out. */
  readonly timedOut: boolean;
  /** Whether no wait can mend it. */
  readonly lasts?: boolean;
  readonly detail: string;
}

/** Nothing was sent, and another attempt would fail in the same way. */
export interface Unsendable {
  readonly is: "unsendable";
  readonly error: FenceError;
}

/** What became of an attempt that did not do what was asked. */
export type Failure = Refusal | Foreign | Nothing | Unsendable;
/** What became of an attempt. */
export type Reply = Answer | Failure;
/** What was read of an answer, or why that came to nothing. */
export type Read<T> = { readonly is: "read"; readonly value: T } | Failure;

/** No answer. */
export function nothing(wasSent: boolean, timedOut: boolean, detail: string): Nothing {
  return { is: "nothing", wasSent, timedOut, detail };
}

/** What keeps an answer from standing still for ever, and lets go of it. */
export interface Watch {
  readonly time: Time;
  /** The longest pause between two pieces of the body. */
  readonly idleMs: number;
  /** The caller's own signal. */
  readonly signal: AbortSignal | undefined;
  /** Ends the request. */
  readonly abort: () => void;
  /** Lets go of the caller's signal. */
  readonly done: () => void;
}

/** A good answer whose body is yet to be read, or to be discarded. */
export class Answer {
  readonly is = "done";
  readonly status: number;
  readonly headers: Headers;
  readonly #response: Response;
  readonly #watch: Watch;
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;

  constructor(response: Response, watch: Watch) {
    this.status = response.status;
    this.headers = response.headers;
    this.#response = response;
    this.#watch = watch;
  }

  /** A header, if it is there. */
  header(name: string): string | undefined {
    return this.headers.get(name) ?? undefined;
  }

  /**
   * The next piece of the body; `undefined` at its end.
   *
   * @throws The reason of the caller's signal.
   */
  async next(): Promise<Uint8Array | undefined | Nothing> {
    this.#reader ??= this.#response.body?.getReader();
    const reader = this.#reader;
    if (reader === undefined) return this.#ended(undefined);
    const read = await this.#timed(reader.read());
    if ("is" in read) return read;
    return read.done ? this.#ended(undefined) : read.value;
  }

  /** The body, whole. It may have broken off, be longer than that, or have stood still for too long. */
  async bytes(limit = JSON_BYTES_MAX): Promise<Read<Uint8Array>> {
    const size = Number(this.header("content-length") ?? NaN);
    if (size <= Math.min(limit, SHORT_BYTES)) {
      const read = await this.#timed(this.#response.arrayBuffer());
      return "is" in read ? read : { is: "read", value: this.#ended(new Uint8Array(read)) };
    }
    const pieces: Uint8Array[] = [];
    let bytes = 0;
    for (;;) {
      const piece = await this.next();
      if (piece === undefined) return { is: "read", value: concat(pieces) };
      if ("is" in piece) return piece;
      pieces.push(piece);
      bytes += piece.length;
      if (bytes > limit) {
        this.discard();
        return nothing(true, false, `the answer is longer than ${limit} bytes`);
      }
    }
  }

  /** The body, as JSON. What is none is no gateway's answer. */
  async json<T>(): Promise<Read<T>> {
    const read = await this.bytes();
    if (read.is !== "read") return read;
    try {
      return { is: "read", value: JSON.parse(decoder.decode(read.value)) as T };
    } catch {
      return { is: "foreign", status: this.status, detail: "an answer that is not the JSON of a gateway" };
    }
  }

  /** The body is of no interest. */
  discard(): void {
    this.#watch.done();
    const body = this.#reader ?? this.#response.body;
    body?.cancel().catch(() => {});
  }

  #ended<T>(value: T): T {
    this.#watch.done();
    return value;
  }

  /** What a part of the body gives, unless that stands still or breaks off. */
  async #timed<T extends object>(part: Promise<T>): Promise<T | Nothing> {
    const { time, idleMs, signal, abort } = this.#watch;
    let isLate = false;
    const stop = time.at(time.now() + idleMs, () => {
      isLate = true;
      abort();
    });
    try {
      return await part;
    } catch (error) {
      this.#watch.done();
      if (signal?.aborted) throw signal.reason;
      const detail = isLate ? "the answer stood still" : `the answer broke off: ${causes(error)}`;
      return nothing(true, isLate, detail);
    } finally {
      stop();
    }
  }
}

const decoder = new TextDecoder();

/** The error of a failure, for calls that may simply be made again. */
export function errorOf(failure: Failure, attempts: number): FenceError {
  switch (failure.is) {
    case "problem":
      return errorOfProblem(failure.problem, attempts);
    case "foreign":
      return errorOfForeign(failure, attempts);
    case "nothing":
      return new Unavailable({ detail: failure.detail, attempts, retryable: true });
    case "unsendable":
      return failure.error;
  }
}

function errorOfForeign(foreign: Foreign, attempts: number): FenceError {
  const cls = classOfForeign(foreign.status);
  const { status, detail } = foreign;
  const details = { status, detail, attempts, retryable: cls === "Unavailable", retryAfterMs: foreign.retryAfterMs };
  if (cls === "Denied") return new Denied(details);
  return cls === "Unavailable" ? new Unavailable(details) : new GatewayFault(details);
}

/** Whether a call without effects, or with the same effect each time, is made again (CC11). */
export function isRetried(failure: Failure): boolean {
  if (failure.is === "problem") {
    const cls = classOfProblem(failure.problem);
    return cls === "Unavailable" || cls === "OutcomeUnknown" || failure.problem.code === "idempotency-in-progress";
  }
  return failure.is === "nothing" || (failure.is === "foreign" && isPassingStatus(failure.status));
}

/** For how long the gateway asks to be left alone. */
export function floorMs(failure: Failure): number | undefined {
  if (failure.is === "problem") return failure.problem.retry_after_ms ?? undefined;
  return failure.is === "foreign" ? failure.retryAfterMs : undefined;
}

/** A failure in a few words, for logs and hooks. */
export function summary(failure: Failure): string {
  if (failure.is === "problem") return failure.problem.code;
  return failure.is === "unsendable" ? failure.error.message : failure.detail;
}

/** An error and what caused it, in one line. */
export function causes(error: unknown): string {
  const texts: string[] = [];
  for (let next = error; next instanceof Error && texts.length < 5; next = next.cause) texts.push(next.message);
  return texts.join(": ") || String(error);
}
