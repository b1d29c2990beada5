// The client's clock, its timers and its chance: all of them can be replaced, for tests.

/** What the client needs of its surroundings. Each part can be replaced. */
export interface Surroundings {
  /** Sends requests; by default the platform's own. */
  readonly fetch: typeof fetch;
  /** Milliseconds since some moment, never going back; by default with the time that the machine slept. */
  readonly now: () => number;
  readonly setTimeout: (wake: () => void, ms: number) => unknown;
  readonly clearTimeout: (timer: unknown) => void;
  /** A number from 0 to 1, for jitter. */
  readonly random: () => number;
}

/** A wall clock that runs ahead by more than this tells that the machine slept (CC30). */
const JUMP_MS = 5_000;
/** The longest time that timers of JavaScript take. */
const TIMER_MS_MAX = 2 ** 31 - 1;

/**
 * A monotonic clock. Those of JavaScript stand still while the machine sleeps, so a wall clock that runs ahead by more
 * than 5 s counts as elapsed time.
 */
export function sleepAwareClock(
  monotonic: () => number = () => performance.now(),
  wall: () => number = Date.now,
): () => number {
  let sleptMs = 0;
  let usualMs = wall() - monotonic();
  return () => {
    const at = monotonic();
    const aheadMs = wall() - at;
    if (aheadMs < usualMs) usualMs = aheadMs;
    else if (aheadMs - usualMs > JUMP_MS) {
      sleptMs += aheadMs - usualMs;
      usualMs = aheadMs;
    }
    return Math.floor(at + sleptMs);
  };
}

/** As good as for ever. */
const LONG_MS = 2 ** 40;

/** Ends a timer; again is harmless. */
export type Stop = () => void;

/** Waits and measures. */
export class Time {
  readonly now: () => number;
  readonly draw: () => number;
  readonly #setTimeout: Surroundings["setTimeout"];
  readonly #clearTimeout: Surroundings["clearTimeout"];

  constructor(surroundings: Surroundings) {
    this.now = surroundings.now;
    this.draw = surroundings.random;
    this.#setTimeout = surroundings.setTimeout;
    this.#clearTimeout = surroundings.clearTimeout;
  }

  /** Calls `wake` once the clock shows that time. A timer that is not `alive` does not keep a process of Node's alive. */
  at(atMs: number, wake: () => void, alive = false): Stop {
    let timer: unknown;
    const set = (): void => {
      timer = this.#setTimeout(look, Math.min(TIMER_MS_MAX, Math.max(0, atMs - this.now())));
      if (!alive) (timer as { unref?: () => void } | undefined)?.unref?.();
    };
    // Timers are early at times, and have a longest time.
    const look = (): void => (this.now() >= atMs ? wake() : set());
    set();
    return () => this.#clearTimeout(timer);
  }

  /**
   * Waits until the clock shows that time.
   *
   * @throws The reason of the signal, once that is aborted.
   */
  sleepUntil(atMs: number, signal?: AbortSignal, alive = true): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason as Error);
      const abort = (): void => {
        stop();
        reject(signal?.reason as Error);
      };
      const wake = (): void => {
        signal?.removeEventListener("abort", abort);
        resolve();
      };
      const stop = this.at(atMs, wake, alive);
      signal?.addEventListener("abort", abort, { once: true });
    });
  }

  /** Keeps a process of Node's alive until the function is called that it gives. */
  keepAlive(): Stop {
    return this.at(this.now() + LONG_MS, () => {}, true);
  }

  /** What a promise gives, if it does so in time; else `undefined`. Its failure counts as that, too. */
  within<T>(ms: number, promise: Promise<T>): Promise<T | undefined> {
    return new Promise((resolve) => {
      const stop = this.at(this.now() + ms, () => resolve(undefined), true);
      promise.then(resolve, () => resolve(undefined)).finally(stop);
    });
  }
}
