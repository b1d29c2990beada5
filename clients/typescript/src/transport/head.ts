// How long the head of an answer is waited for (CC9).

import type { Sent } from "./body.js";
import { isServer } from "./runtime.js";
import type { Stop, Time } from "./time.js";

/** What a browser gets for each byte of a body that it sends, since it does not say how far it is. */
const UPLOAD_BYTES_PER_MS = 16;

/** A timer that comes so much too late tells that the loop was blocked: an answer may be there that nobody has read. */
const BLOCKED_MS = 100;
/** How long that answer may take to be read, by the machine's own clock. */
const LAST_LOOK_MS = 50;

/** Waits for the head of an answer: for as long as bytes go out, and a while longer. */
export class HeadTimer {
  isLate = false;
  readonly #time: Time;
  #lastMs: number;
  #stop: Stop;

  constructor(time: Time, headMs: number, late: () => void) {
    this.#time = time;
    this.#lastMs = time.now();
    let wasBlocked = false;
    const wake = (): void => {
      const lateMs = time.now() - (this.#lastMs + headMs);
      if (lateMs < 0) return void (this.#stop = time.at(this.#lastMs + headMs, wake));
      if (lateMs >= BLOCKED_MS && !wasBlocked) {
        wasBlocked = true;
        const timer = setTimeout(wake, LAST_LOOK_MS);
        return void (this.#stop = () => clearTimeout(timer));
      }
      this.isLate = true;
      late();
    };
    this.#stop = time.at(this.#lastMs + headMs, wake);
  }

  /** Bytes went out: no answer is due. */
  note(): void {
    this.#lastMs = this.#time.now();
  }

  stop(): void {
    this.#stop();
  }
}

/** How long a body may take to be sent of which nobody says how far it is. */
export function unseenMs(sent: Sent | string | undefined): number {
  if (isServer || typeof sent !== "object" || sent.body instanceof ReadableStream) return 0;
  const size = sent.body instanceof Uint8Array ? sent.body.length : sent.body.size;
  return Math.floor(size / UPLOAD_BYTES_PER_MS);
}
