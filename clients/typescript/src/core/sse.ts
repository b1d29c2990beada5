// Server-sent events, as the HTML standard has them (CC48): bytes in, events out, however they are cut.

/** The longest line, and the most data of one event, in bytes. What is longer is no event of a gateway. */
const BYTES_MAX = 1 << 20;
const CR = 13;
const LF = 10;

/** What a stream says: an event; an id alone, which is where the stream stands; a time to wait; or too much. */
export type SseItem =
  | { is: "event"; event: string; data: string; id: string }
  | { is: "id"; id: string }
  | { is: "retry"; ms: number }
  /** A line or an event beyond all measure. Nothing comes after this. */
  | { is: "too-long" };

/** Reads a stream of events, piece by piece. What is not complete at the end of the stream is no event. */
export class SseParser {
  readonly #bytesMax: number;
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  #line: Uint8Array[] = [];
  #lineBytes = 0;
  /** The last byte was CR: an LF right behind it belongs to it. */
  #afterCr = false;
  #isFirstLine = true;
  #event = "";
  #data: string[] = [];
  #dataBytes = 0;
  #hasId = false;
  #lastId = "";
  #isOver = false;

  constructor(bytesMax = BYTES_MAX) {
    this.#bytesMax = bytesMax;
  }

  /** Takes the next bytes, and gives what they complete. */
  push(bytes: Uint8Array): SseItem[] {
    const items: SseItem[] = [];
    let from = 0;
    for (let at = 0; at < bytes.length && !this.#isOver; at += 1) {
      const byte = bytes[at];
      const wasCr = this.#afterCr;
      this.#afterCr = byte === CR;
      if (byte !== CR && byte !== LF) continue;
      if (byte === LF && wasCr) {
        from = at + 1;
        continue;
      }
      this.#keep(bytes.subarray(from, at), items);
      from = at + 1;
      if (!this.#isOver) this.#takeLine(this.#wholeLine(), items);
    }
    if (!this.#isOver) this.#keep(bytes.subarray(from).slice(), items);
    return items;
  }

  #keep(part: Uint8Array, items: SseItem[]): void {
    this.#lineBytes += part.length;
    if (this.#lineBytes > this.#bytesMax) this.#giveUp(items);
    else if (part.length > 0) this.#line.push(part);
  }

  #wholeLine(): string {
    const only = this.#line.length === 1 ? this.#line[0] : undefined;
    const whole = only ?? concat(this.#line);
    this.#line = [];
    this.#lineBytes = 0;
    return this.#decoder.decode(whole);
  }

  #giveUp(items: SseItem[]): void {
    this.#isOver = true;
    items.push({ is: "too-long" });
  }

  #takeLine(line: string, items: SseItem[]): void {
    if (this.#isFirstLine && line.startsWith("\uFEFF")) line = line.slice(1);
    this.#isFirstLine = false;
    if (line === "") return this.#endEvent(items);
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    // A comment, whose field is empty, and fields that are not known say nothing.
    if (field === "event") this.#event = value;
    else if (field === "data") {
      this.#dataBytes += value.length + 1;
      if (this.#dataBytes > this.#bytesMax) return this.#giveUp(items);
      this.#data.push(value);
    } else if (field === "id" && !value.includes("\0")) {
      this.#lastId = value;
      this.#hasId = true;
    } else if (field === "retry" && /^[0-9]+$/.test(value) && Number(value) <= Number.MAX_SAFE_INTEGER) {
      items.push({ is: "retry", ms: Number(value) });
    }
  }

  #endEvent(items: SseItem[]): void {
    const id = this.#lastId;
    if (this.#data.length > 0) {
      items.push({ is: "event", event: this.#event || "message", data: this.#data.join("\n"), id });
    } else if (this.#hasId) items.push({ is: "id", id });
    this.#event = "";
    this.#data = [];
    this.#dataBytes = 0;
    this.#hasId = false;
  }
}

/** Several pieces as one. */
export function concat(pieces: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}
