// SHA-256 piece by piece, which browsers do not have; and the forms in which it is written.

import { concat } from "./sse.js";

/** The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
const K = new Int32Array(64);
/** The same of the square roots of the first eight. */
const BEGIN = new Int32Array(8);

for (let n = 2, count = 0; count < 64; n += 1) {
  let isPrime = true;
  for (let d = 2; d * d <= n && isPrime; d += 1) isPrime = n % d !== 0;
  if (!isPrime) continue;
  const bits = (root: number) => ((root - Math.floor(root)) * 2 ** 32) | 0;
  if (count < 8) BEGIN[count] = bits(Math.sqrt(n));
  K[count] = bits(Math.cbrt(n));
  count += 1;
}

const W = new Int32Array(64);

/** A digest under way. */
export class Sha256 {
  readonly #state = BEGIN.slice();
  readonly #rest = new Uint8Array(64);
  #restBytes = 0;
  #bytes = 0;

  /** Takes more bytes. */
  update(bytes: Uint8Array): this {
    this.#bytes += bytes.length;
    let at = 0;
    if (this.#restBytes > 0) {
      at = Math.min(64 - this.#restBytes, bytes.length);
      this.#rest.set(bytes.subarray(0, at), this.#restBytes);
      this.#restBytes += at;
      if (this.#restBytes < 64) return this;
      this.#block(this.#rest, 0);
      this.#restBytes = 0;
    }
    for (; at + 64 <= bytes.length; at += 64) this.#block(bytes, at);
    this.#rest.set(bytes.subarray(at));
    this.#restBytes = bytes.length - at;
    return this;
  }

  /** The digest of all that was taken: 32 bytes. Nothing can be taken after that. */
  digest(): Uint8Array {
    const bits = this.#bytes * 8;
    const padding = new Uint8Array(this.#restBytes < 56 ? 64 - this.#restBytes : 128 - this.#restBytes);
    padding[0] = 0x80;
    const view = new DataView(padding.buffer);
    view.setUint32(padding.length - 8, Math.floor(bits / 2 ** 32));
    view.setUint32(padding.length - 4, bits >>> 0);
    this.update(padding);
    const digest = new DataView(new ArrayBuffer(32));
    this.#state.forEach((word, at) => digest.setInt32(at * 4, word));
    return new Uint8Array(digest.buffer);
  }

  #block(bytes: Uint8Array, at: number): void {
    for (let i = 0; i < 16; i += 1, at += 4) {
      W[i] = (bytes[at]! << 24) | (bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!;
    }
    for (let i = 16; i < 64; i += 1) {
      const x = W[i - 15]!;
      const y = W[i - 2]!;
      const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
      const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
      W[i] = (W[i - 16]! + s0 + W[i - 7]! + s1) | 0;
    }
    const state = this.#state;
    let a = state[0]!;
    let b = state[1]!;
    let c = state[2]!;
    let d = state[3]!;
    let e = state[4]!;
    let f = state[5]!;
    let g = state[6]!;
    let h = state[7]!;
    for (let i = 0; i < 64; i += 1) {
      const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
      const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i]! + W[i]!) | 0;
      const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
      const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      h = g;
      g = f;
      f = e;
      e = (d + t1) | 0;
      d = c;
      c = b;
      b = a;
      a = (t1 + t2) | 0;
    }
    state[0]! += a;
    state[1]! += b;
    state[2]! += c;
    state[3]! += d;
    state[4]! += e;
    state[5]! += f;
    state[6]! += g;
    state[7]! += h;
  }
}

/** From so many bytes on, what the platform has is quicker, although it answers later. */
const LARGE = 32 << 10;

/** The digest of bytes in memory. */
export async function sha256(bytes: Uint8Array): Promise<Uint8Array> {
  const platform = globalThis.crypto?.subtle;
  if (bytes.length < LARGE || platform === undefined) return new Sha256().update(bytes).digest();
  return new Uint8Array(await platform.digest("SHA-256", bytes as Uint8Array<ArrayBuffer>));
}

/** Bytes as hexadecimal digits. */
export function hex(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += byte.toString(16).padStart(2, "0");
  return text;
}

/** Bytes in base64. */
export function base64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}

/** The bytes of a text in base64; `undefined`: it is none. */
export function fromBase64(text: string): Uint8Array | undefined {
  try {
    return Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  } catch {
    return undefined;
  }
}

/** The value of `Repr-Digest`, as RFC 9530 writes it. */
export function digestHeader(digest: Uint8Array): string {
  return `sha-256=:${base64(digest)}:`;
}

/** The SHA-256 in a value of `Repr-Digest`, in hexadecimal, among others or alone. */
export function sha256OfHeader(header: string | null): string | undefined {
  const found = /(?:^|,)\s*sha-256=:([^:]*):/.exec(header ?? "");
  const bytes = found?.[1] === undefined ? undefined : fromBase64(found[1]);
  return bytes?.length === 32 ? hex(bytes) : undefined;
}

export { concat };
