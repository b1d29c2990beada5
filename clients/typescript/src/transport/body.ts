// What a write sends: bytes in memory, or a stream that is begun anew for each attempt (CC26, CC27).

import { Misuse } from "../core/errors.js";
import { digestHeader, sha256, Sha256 } from "../core/sha256.js";
import { isServer } from "./runtime.js";

/** Pieces of bytes, one after another. */
export type ByteStream = ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

/** Something whose bytes can be read again and again: a `Blob`, a file, or your own function. */
export interface Replayable {
  /** Begins anew, always with the same bytes. */
  stream(): ByteStream | Promise<ByteStream>;
  /** The number of bytes, if it is known. */
  readonly size?: number | undefined;
  /** Their SHA-256, if it is cheap to know. */
  sha256?(): Promise<Uint8Array | undefined>;
}

/**
 * The bytes of an object. All but a stream can be sent again. A stream alone, which can be read once, is sent once:
 * its outcome is unknown as soon as that goes without an answer, so prefer any other.
 */
export type BodyInput = string | ArrayBuffer | ArrayBufferView | Blob | Replayable | ByteStream;

/** What one attempt hands to `fetch`. */
export interface Sent {
  readonly body: Uint8Array | Blob | ReadableStream<Uint8Array>;
  /** The number of bytes, where that has to be said beside them. */
  readonly size?: number | undefined;
  /** Closes what is read for it, also if nothing was read so far. */
  readonly close?: () => Promise<void>;
}

/** Bodies in memory that are larger are sent in pieces, to see how far they got. */
const PIECE_BYTES = 64 << 10;
/** Bodies of this size and more are worth a renewal before they are sent (CC27). */
const LARGE_BYTES = 1 << 20;
/** Files up to this size are read once before, for their digest. */
const DIGEST_BYTES_MAX = 64 << 20;

const encoder = new TextEncoder();

/** The bytes of an object, as the library keeps them. */
export class Body {
  /** The bytes, if they are in memory. */
  readonly bytes: Uint8Array | undefined;
  /** The number of bytes, if it is known. */
  readonly size: number | undefined;
  /** Whether a second attempt can send the same bytes. */
  readonly isReplayable: boolean = true;
  #source: Replayable | undefined;
  #once: ByteStream | undefined;
  #digest: Promise<string | undefined> | undefined;

  constructor(input: BodyInput) {
    if (typeof input === "string") this.bytes = encoder.encode(input);
    else if (input instanceof Uint8Array) this.bytes = input;
    else if (input instanceof ArrayBuffer) this.bytes = new Uint8Array(input);
    else if (ArrayBuffer.isView(input)) this.bytes = new Uint8Array(input.buffer, input.byteOffset, input.byteLength);
    else if (typeof (input as Replayable | undefined)?.stream === "function") this.#source = input as Replayable;
    else if (isByteStream(input)) {
      this.#once = input;
      this.isReplayable = false;
    } else throw new Misuse("a body is text, bytes, a Blob, a file, a stream, or something with a function `stream`");
    this.size = this.bytes?.length ?? this.#source?.size;
  }

  /** Whether a stale holder should learn it for some hundred bytes instead. */
  get isLarge(): boolean {
    return this.size === undefined || this.size >= LARGE_BYTES;
  }

  /** The value of `Repr-Digest`, if it is cheap to know. */
  digest(): string | undefined | Promise<string | undefined> {
    if (this.bytes !== undefined && this.bytes.length <= PIECE_BYTES / 2) {
      return digestHeader(new Sha256().update(this.bytes).digest());
    }
    return (this.#digest ??= this.#slowDigest());
  }

  async #slowDigest(): Promise<string | undefined> {
    const source = this.#source;
    if (this.bytes !== undefined) return digestHeader(await sha256(this.bytes));
    if (source?.sha256 !== undefined) {
      const digest = await source.sha256();
      return digest && digestHeader(digest);
    }
    if (!isBlob(source) || source.size > DIGEST_BYTES_MAX) return undefined;
    const hash = new Sha256();
    for await (const piece of pieces(source.stream())) hash.update(piece);
    return digestHeader(hash.digest());
  }

  /**
   * The bytes of one attempt; `progress` is called as they are taken.
   *
   * @throws Misuse: they cannot be had.
   */
  async begin(progress: () => void): Promise<Sent> {
    if (this.bytes !== undefined) {
      const isWhole = !isServer || this.bytes.length <= PIECE_BYTES;
      return isWhole ? { body: this.bytes } : { body: streamed(slices(this.bytes), progress), size: this.size };
    }
    if (!isServer) {
      if (isBlob(this.#source)) return { body: this.#source };
      throw new Misuse("browsers cannot stream what they send to a gateway: give bytes, text, a Blob or a File");
    }
    const stream = this.#source === undefined ? this.#takeOnce() : await begun(this.#source);
    const source = exactly(pieces(stream), this.size);
    const close = async (): Promise<void> => {
      // A generator that was not begun closes nothing.
      const { destroy, cancel } = stream as { destroy?: () => void; cancel?: () => Promise<void> };
      destroy?.call(stream);
      await cancel?.call(stream).catch(() => {});
      await source.return(undefined);
    };
    return { body: streamed(source, progress, close), size: this.size, close };
  }

  /** The pieces of the bytes, for a body that has this one among others. */
  async *pieces(): AsyncGenerator<Uint8Array> {
    if (this.bytes !== undefined) yield this.bytes;
    else yield* exactly(pieces(this.#source === undefined ? this.#takeOnce() : await begun(this.#source)), this.size);
  }

  #takeOnce(): ByteStream {
    const stream = this.#once;
    this.#once = undefined;
    if (stream === undefined) throw new Misuse("the stream has been sent already");
    return stream;
  }
}

async function begun(source: Replayable): Promise<ByteStream> {
  try {
    return await source.stream();
  } catch (cause) {
    throw new Misuse(`the body cannot be read: ${cause instanceof Error ? cause.message : String(cause)}`);
  }
}

function isBlob(value: unknown): value is Blob {
  return typeof Blob === "function" && value instanceof Blob;
}

function isByteStream(value: unknown): value is ByteStream {
  if (typeof value !== "object" || value === null) return false;
  return Symbol.asyncIterator in value || typeof (value as ReadableStream).getReader === "function";
}

/** The pieces of a stream, also where streams cannot be iterated. */
export async function* pieces(stream: ByteStream): AsyncGenerator<Uint8Array> {
  if (Symbol.asyncIterator in stream) {
    yield* stream as AsyncIterable<Uint8Array>;
    return;
  }
  const reader = (stream as ReadableStream<Uint8Array>).getReader();
  try {
    for (let read = await reader.read(); !read.done; read = await reader.read()) yield read.value;
  } finally {
    await reader.cancel().catch(() => {});
  }
}

async function* slices(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += PIECE_BYTES) yield bytes.subarray(at, at + PIECE_BYTES);
}

/** A stream that gives more or less than was promised breaks the request. */
async function* exactly(stream: AsyncIterable<Uint8Array>, size: number | undefined): AsyncGenerator<Uint8Array> {
  let left = size ?? Infinity;
  for await (const piece of stream) {
    left -= piece.length;
    if (left < 0) throw new Misuse("the body is longer than its size");
    yield piece;
  }
  if (size !== undefined && left > 0) throw new Misuse("the body is shorter than its size");
}

function streamed(
  source: AsyncGenerator<Uint8Array>,
  progress: () => void,
  close: () => Promise<unknown> = () => source.return(undefined),
): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const next = await source.next();
        progress();
        if (next.done) controller.close();
        else controller.enqueue(next.value);
      },
      async cancel() {
        await close();
      },
    },
    { highWaterMark: 0 },
  );
}
