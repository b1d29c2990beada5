// When the next attempt of a call starts (CC10).

const BASE_MS = 50;
const MOST_MS = 2_000;

/** This part of so many milliseconds. */
export function portion(ms: number, draw: number): number {
  return Math.min(ms, Math.floor(ms * Math.min(1, Math.max(0, draw))));
}

/** Pauses between the attempts of one call: a random part of a bound that doubles. */
export class Backoff {
  #attempts = 0;

  /**
   * The pause before the next attempt: `draw` (0 to 1) of the bound, at least `floorMs`, which the gateway asked for,
   * and at most `leftMs`, which are left until the deadline. `undefined`: the deadline has passed.
   */
  next(draw: number, floorMs: number | undefined, leftMs: number): number | undefined {
    if (leftMs <= 0) return undefined;
    const boundMs = Math.min(MOST_MS, BASE_MS * 2 ** Math.min(this.#attempts, 10));
    this.#attempts += 1;
    return Math.min(leftMs, Math.max(portion(boundMs, draw), floorMs ?? 0));
  }
}
