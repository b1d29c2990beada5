// Objects as streams, which go on where they broke off (CC47).

import type { Course } from "../client/inner.js";
import { Backoff } from "../core/backoff.js";
import { Changed, FenceError, GatewayFault, Misuse, Unavailable } from "../core/errors.js";
import { hex, Sha256 } from "../core/sha256.js";
import { summary, type Answer } from "../transport/answer.js";
import { headOf, isAbsent, type ObjectHead, type ObjectTarget } from "./object.js";

/** How often a stream goes on after a break. */
const RESUMES_MAX = 5;

/** Some of the bytes of an object: from the first, counted from 0, up to and with the last, or to the end. */
export type Range = readonly [first: number, last?: number];

/** Opens an object. */
export async function openObject(
  target: ObjectTarget,
  range: Range | undefined,
  course: Course,
): Promise<ObjectReader> {
  const headers: Record<string, string> = range === undefined ? {} : { range: rangeHeader(range) };
  const answer = await target.inner.call("get", { method: "GET", path: target.path, headers }, course);
  if (answer.status !== 200 && !(answer.status === 206 && range !== undefined)) throw unexpected(answer);
  return new ObjectReader(target, answer, range, course.signal);
}

function rangeHeader([first, last]: Range): string {
  const isNumber = (byte: number): boolean => Number.isSafeInteger(byte) && byte >= 0;
  if (isNumber(first) && (last === undefined || isNumber(last))) return `bytes=${first}-${last ?? ""}`;
  throw new Misuse("a range goes from a byte, counted from 0, to a byte or to the end");
}

function unexpected(answer: Answer): GatewayFault {
  answer.discard();
  return new GatewayFault({ status: answer.status, detail: `an answer that makes no sense here: ${answer.status}` });
}

function changed(): Changed {
  return new Changed("the object changed after its answer had broken off");
}

/** The number of bytes of the whole object, from the answer with a part that begins at `first`. */
function wholeSize(answer: Answer, first: number): string {
  const found = /^bytes ([0-9]+)-[0-9]+\/([0-9]+)$/.exec(answer.header("content-range") ?? "");
  if (found === null || Number(found[1]) !== first) throw unexpected(answer);
  return found[2]!;
}

/**
 * The bytes of an object. Their number is checked at the end, and their SHA-256 if the gateway sent it: bytes are good
 * only once the end has come without an error.
 */
export class ObjectReader {
  readonly head: ObjectHead;
  /** The status of the answer: 200, or 206 for a part. */
  readonly status: number;
  /** What the gateway says of it. */
  readonly headers: Headers;
  readonly #target: ObjectTarget;
  readonly #signal: AbortSignal | undefined;
  readonly #hash: Sha256 | undefined;
  readonly #hasRange: boolean;
  readonly #backoff = new Backoff();
  /** `undefined`: it broke off. */
  #answer: Answer | undefined;
  #broke = "";
  /** Where the next byte lies. */
  #at: number;
  /** Where the last one to be given out ends. */
  readonly #end: number;
  /** How many bytes of this answer are passed over. */
  #skip: number;
  #resumes = 0;

  constructor(target: ObjectTarget, answer: Answer, range: Range | undefined, signal: AbortSignal | undefined) {
    const [first, last] = range ?? [0];
    const isPart = answer.status === 206;
    this.head = headOf(target, answer.headers, isPart ? wholeSize(answer, first) : undefined);
    this.status = answer.status;
    this.headers = answer.headers;
    this.#target = target;
    this.#signal = signal;
    this.#answer = answer;
    this.#hasRange = range !== undefined;
    // That of the whole says nothing of a part.
    this.#hash = this.head.sha256 === undefined || this.#hasRange ? undefined : new Sha256();
    this.#at = first;
    this.#end = Math.min(this.head.size, last === undefined ? Infinity : last + 1);
    this.#skip = isPart ? 0 : first;
  }

  /** How many bytes it gives. */
  get length(): number {
    return Math.max(0, this.#end - this.#at);
  }

  /** The pieces, one after another. */
  async *pieces(): AsyncGenerator<Uint8Array> {
    try {
      while (this.#at < this.#end) {
        const answer = this.#answer ?? (await this.#resume());
        const piece = await answer.next();
        if (piece instanceof Uint8Array) {
          const taken = this.#take(piece);
          if (taken.length > 0) yield taken;
          continue;
        }
        this.#broke = piece === undefined ? "it ended early" : summary(piece);
        this.#answer = undefined;
      }
      if (this.#hash !== undefined && hex(this.#hash.digest()) !== this.head.sha256) {
        throw new GatewayFault("the bytes are not those that the gateway has: their SHA-256 is another");
      }
    } finally {
      this.discard();
    }
  }

  /** The rest is of no interest. */
  discard(): void {
    this.#answer?.discard();
    this.#answer = undefined;
  }

  #take(whole: Uint8Array): Uint8Array {
    const known = Math.min(this.#skip, whole.length);
    this.#skip -= known;
    let piece = whole.subarray(known);
    if (this.#hasRange) piece = piece.subarray(0, this.#end - this.#at);
    this.#at += piece.length;
    if (this.#at > this.head.size) {
      throw new GatewayFault(`the answer has more than the ${this.head.size} bytes of the object`);
    }
    this.#hash?.update(piece);
    return piece;
  }

  /** Asks for the rest, if it is of the same object. */
  async #resume(): Promise<Answer> {
    const { inner, path } = this.#target;
    const { time } = inner;
    if (this.#resumes === RESUMES_MAX || !inner.retries) {
      const attempts = this.#resumes + 1;
      const detail = `the answer broke off, the ${attempts}. time: ${this.#broke}`;
      throw new Unavailable({ detail, attempts, retryable: true });
    }
    this.#resumes += 1;
    inner.tell({ type: "retry", call: "get", attempt: this.#resumes, detail: this.#broke });
    const pauseMs = this.#backoff.next(time.draw(), undefined, Infinity) ?? 0;
    await time.sleepUntil(time.now() + pauseMs, this.#signal);
    const range = rangeHeader(this.#hasRange ? [this.#at, this.#end - 1] : [this.#at]);
    const headers = { range, "if-range": this.head.etag };
    const answer = await this.#askAgain(path, headers);
    if (answer.header("etag") !== this.head.etag) {
      answer.discard();
      throw changed();
    }
    const continues = answer.header("content-range")?.startsWith(`bytes ${this.#at}-`) ?? false;
    if (answer.status === 206 && continues) this.#skip = 0;
    // Something on the way knows no ranges.
    else if (answer.status === 200) this.#skip = this.#at;
    else throw unexpected(answer);
    return (this.#answer = answer);
  }

  async #askAgain(path: string, headers: Record<string, string>): Promise<Answer> {
    try {
      return await this.#target.inner.call("get", { method: "GET", path, headers }, { signal: this.#signal });
    } catch (error) {
      if (error instanceof FenceError && isAbsent(error)) throw changed();
      throw error;
    }
  }
}
