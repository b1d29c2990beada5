// Ids that nobody else makes: UUIDs of version 7, and those of the attempts of one call (CC8).

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));
/** Random bytes are asked for in bulk: asking costs more than making them. */
const pool = new Uint8Array(1024);
let used = pool.length;
let fill = (bytes: Uint8Array<ArrayBuffer>): unknown => globalThis.crypto.getRandomValues(bytes);

/** Takes random bytes from elsewhere, where the platform's usual source is missing. */
export function useRandomSource(source: (bytes: Uint8Array<ArrayBuffer>) => unknown): void {
  fill = source;
}

/** So many random bytes, as hexadecimal digits. */
export function randomHex(bytes: number): string {
  if (used + bytes > pool.length) {
    fill(pool);
    used = 0;
  }
  let text = "";
  for (; bytes > 0; bytes -= 1) text += HEX[pool[used++]!];
  return text;
}

/** A UUID of version 7: the time in milliseconds, then 74 random bits. */
export function uuidv7(): string {
  const time = Date.now().toString(16).padStart(12, "0");
  const random = randomHex(10);
  const variant = HEX[(parseInt(random.slice(4, 6), 16) & 0x3f) | 0x80];
  const tail = `${variant}${random.slice(6, 8)}-${random.slice(8)}`;
  return `${time.slice(0, 8)}-${time.slice(8)}-7${random.slice(0, 3)}-${tail}`;
}

/** Whether a text is the id of a lock: a UUID. */
export function isUuid(text: string): boolean {
  return /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text);
}

/** The ids of the attempts of one call: `<id>`, then `<id>.2`, and so on, so that a log shows them together. */
export class RequestIds {
  readonly #first = uuidv7();
  /** How many attempts have been made. */
  attempts = 0;

  next(): string {
    this.attempts += 1;
    return this.attempts === 1 ? this.#first : `${this.#first}.${this.attempts}`;
  }
}
