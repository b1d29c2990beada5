// Virtual time: it moves in small steps, and everything that can run does so in between. And the attempts under way,
// without which a scenario could not know when to move it.

import type { Surroundings } from "../../transport/time.js";
import { Machine } from "./machine.js";

/** A step. */
const STEP_MS = 50;
/** Time for the network in what needs no time, given a few times over. */
const BREATH_MS = 1;
/** Count of looks in a row at which nothing had happened, after which all is quiet. */
const QUIET = 2;

interface Timer {
  readonly dueMs: number;
  readonly wake: () => void;
}

/** Time, of the driver's own or the machine's, and the attempts that are under way. */
export class DriverTime {
  readonly isVirtual: boolean;
  readonly #machine: Machine | undefined;
  readonly #timers = new Set<Timer>();
  readonly #beganMs = performance.now();
  readonly #waiting = new Set<{ readonly id: string }>();
  #nowMs = 0;
  #begun = 0;

  constructor(isVirtual: boolean) {
    this.isVirtual = isVirtual;
    this.#machine = isVirtual ? new Machine() : undefined;
  }

  /** Milliseconds since the driver began. */
  now(): number {
    return this.isVirtual ? this.#nowMs : Math.floor(performance.now() - this.#beganMs);
  }

  /** What the client gets in the place of its surroundings. */
  surroundings(send: typeof fetch): Partial<Surroundings> {
    const counted: typeof fetch = async (input, init) => {
      const attempt = { id: new Headers(init?.headers).get("x-request-id") ?? "" };
      this.#begun += 1;
      this.#waiting.add(attempt);
      try {
        return await send(input, init);
      } finally {
        this.#waiting.delete(attempt);
      }
    };
    if (!this.isVirtual) return { fetch: counted };
    return {
      fetch: counted,
      now: () => this.#nowMs,
      random: () => 0.5,
      setTimeout: (wake, ms) => {
        const timer = { dueMs: this.#nowMs + Math.max(0, ms), wake };
        this.#timers.add(timer);
        if (ms <= 0) setImmediate(() => this.#fire());
        return timer;
      },
      clearTimeout: (timer) => this.#timers.delete(timer as Timer),
    };
  }

  /** Moves the clock, at most until an attempt is begun; with `leap` the whole time at once. */
  async advance(ms: number, leap: boolean): Promise<{ advanced: number; waiting: string[] }> {
    const beforeMs = this.#nowMs;
    if (leap) {
      this.#nowMs += ms;
      await this.#turns();
    } else {
      await this.#settle();
      const begun = this.#begun;
      for (let leftMs = ms; leftMs > 0 && this.#begun === begun; leftMs -= STEP_MS) {
        const { news } = this.#machine!;
        this.#nowMs += Math.min(STEP_MS, leftMs);
        await this.#turns();
        if (this.#machine!.news !== news) await this.#settle();
      }
    }
    await this.#settle();
    return { advanced: this.#nowMs - beforeMs, waiting: [...this.#waiting].map(({ id }) => id) };
  }

  /** Wakes what is due, the earliest first. */
  #fire(): void {
    for (;;) {
      let next: Timer | undefined;
      for (const timer of this.#timers) {
        if (timer.dueMs <= this.#nowMs && (next === undefined || timer.dueMs < next.dueMs)) next = timer;
      }
      if (next === undefined) return;
      this.#timers.delete(next);
      next.wake();
    }
  }

  async #turns(): Promise<void> {
    for (let turn = 0; turn < 3; turn += 1) {
      this.#fire();
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  /** Lets everything run that needs no time. */
  async #settle(): Promise<void> {
    const machine = this.#machine!;
    for (let quiet = 0; quiet < QUIET;) {
      const { news } = machine;
      await this.#turns();
      await new Promise((resolve) => setTimeout(resolve, BREATH_MS));
      quiet = machine.news === news && !machine.isBusy ? quiet + 1 : 0;
    }
  }
}
