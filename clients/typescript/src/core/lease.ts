// The guard and its clock (CC30 to CC38): in what state it is, when to renew, when to give the signal.
//
//   held ──deadline──> uncertain ──(onUncertain: stop)──> lost (unconfirmed)
//     └──the gateway says so──> lost (reason)      released <── release, from any state but lost

import { portion } from "./backoff.js";
import type { LossReason } from "./classes.js";

/** In what state a guard is. `lost` and `released` are final. */
export type GuardState = "held" | "uncertain" | "lost" | "released";

/** How a guard is to behave. */
export interface Terms {
  /** After its deadline: it is lost, or it holds on until the gateway says that it is lost. */
  readonly onUncertain: "stop" | "hold";
  /** Without a sign of life for so long, renewals stop; `undefined`: for as long as one likes. */
  readonly stallAfterMs?: number | undefined;
  /** Whether it is renewed at all. */
  readonly isRenewed: boolean;
}

/** What is left of a lock and its ttl, in milliseconds; `null`: for ever. */
export interface Times {
  readonly leftMs: number | null;
  readonly ttlMs: number | null;
}

/** What is told to hooks, and not to the work (CC36). */
export type Warning =
  { is: "expiring"; leftMs: number } | { is: "breaking"; leftMs: number } | { is: "revived"; lapsedMs: number };

/** What follows from an input: the signal, once in the life of a guard (CC35), and warnings for the hooks. */
export interface Effects {
  signal?: LossReason;
  warning?: Warning;
}

/** Something that a guard learns. */
export type LeaseInput =
  | ({ on: "renewed"; sentMs: number } & Times)
  | { on: "failed" }
  | { on: "lost"; reason: LossReason }
  /** An operator's break is due so long after the time at which that was asked. */
  | { on: "breaking"; sentMs: number; leftMs: number }
  | { on: "release" }
  | { on: "beat" };

/** What is taken off the ttl, for clocks that do not run alike (CC30): a hundredth, at least 20 ms. */
function marginMs(ttlMs: number): number {
  return Math.max(20, Math.floor(ttlMs / 100));
}

/** The least of those that are there. */
function least(...times: (number | null | undefined)[]): number | null {
  let found: number | null = null;
  for (const time of times) {
    if (time != null && (found === null || time < found)) found = time;
  }
  return found;
}

/** The state of one guard. It has no clock: the time comes with each call. */
export class Lease {
  readonly #terms: Terms;
  #state: GuardState = "held";
  #reason: LossReason | undefined;
  #ttlMs: number | null = null;
  /** `null`: it does not expire. */
  #deadlineMs: number | null = null;
  #confirmedMs: number;
  #dueMs: number | null = null;
  #breaksMs: number | null = null;
  /** A ttl that was asked for and may be in force or not: nothing longer counts. */
  #capMs: number | null = null;
  #beatMs: number;
  #hasWarned = false;

  /** A guard whose grant was asked for at `sentMs`. `draw` (0 to 1) is the jitter of the first renewal. */
  constructor(nowMs: number, sentMs: number, times: Times, terms: Terms, draw: number) {
    this.#terms = terms;
    this.#confirmedMs = sentMs;
    this.#beatMs = nowMs;
    this.#confirm(sentMs, times, draw);
  }

  /**
   * A guard that is not given out before it was renewed: its time begins with that, and nothing is lost until then.
   * Nobody works under it yet, so that no sign of life is missed before the first.
   */
  static unproven(nowMs: number, ttlMs: number | null, terms: Terms, draw: number): Lease {
    const lease = new Lease(nowMs, nowMs, { leftMs: 60_000, ttlMs }, terms, draw);
    lease.#beatMs = Infinity;
    return lease;
  }

  /**
   * Whether there is time to begin work under it (CC19): more than the holder needs to end before the deadline, and than
   * two more answers take that come as slowly as the last one.
   */
  canBegin(nowMs: number, graceMs = 0): boolean {
    const { deadlineMs } = this;
    const neededMs = graceMs + 2 * Math.max(0, nowMs - this.#confirmedMs);
    return deadlineMs === null || deadlineMs - nowMs > neededMs;
  }

  /** The state, as of the last call. */
  get state(): GuardState {
    return this.#state;
  }

  /** Whether it is held or uncertain. */
  get isLive(): boolean {
    return this.#state === "held" || this.#state === "uncertain";
  }

  /** Why it is lost. */
  get reason(): LossReason | undefined {
    return this.#reason;
  }

  /** Until when it is surely held; `null`: it does not expire. */
  get deadlineMs(): number | null {
    return least(this.#deadlineMs, this.#breaksMs);
  }

  /** The lock's ttl; `null`: for ever. */
  get ttlMs(): number | null {
    return this.#ttlMs;
  }

  /** When an operator's break is due. */
  get breaksMs(): number | null {
    return this.#breaksMs;
  }

  /** When the next renewal is due; `null`: none is. */
  get dueMs(): number | null {
    return this.isLive ? this.#dueMs : null;
  }

  /** How long one renewal may take (CC31). */
  get attemptMs(): number {
    return this.#ttlMs === null ? 5_000 : Math.min(5_000, Math.floor(this.#ttlMs / 4));
  }

  /** Whether another's renewal takes this guard along (CC32). */
  joins(nowMs: number): boolean {
    return this.dueMs !== null && this.#ttlMs !== null && nowMs - this.#confirmedMs >= Math.floor(this.#ttlMs / 12);
  }

  /** Whether a large upload is worth a renewal first (CC27). */
  isStaleForUpload(nowMs: number): boolean {
    return this.dueMs !== null && this.#ttlMs !== null && nowMs - this.#confirmedMs > Math.floor(this.#ttlMs / 6);
  }

  /** A renewal is under way: the next is due when this one must be over. */
  renewalBegan(nowMs: number): void {
    if (this.#dueMs !== null) this.#dueMs = nowMs + 2 * this.attemptMs + 1;
  }

  /** Renewals are refused from now on: an operator is about to break the lock. */
  stopRenewing(): void {
    this.#dueMs = null;
  }

  /**
   * The holder asks for another ttl by a renewal sent at `sentMs`. Until that is answered, and if it never is, the
   * shorter of the two counts.
   */
  ttlAsked(sentMs: number, ttlMs: number | null): void {
    if (ttlMs === null) return;
    this.#capMs = least(this.#capMs, ttlMs);
    this.#deadlineMs = least(this.#deadlineMs, sentMs + ttlMs - marginMs(ttlMs));
    // Nearer, it has to be renewed sooner.
    const isRenewed = this.#terms.isRenewed && this.#breaksMs === null;
    if (isRenewed) this.#dueMs = least(this.#dueMs, sentMs + Math.floor(ttlMs / 3));
  }

  /** The gateway has answered with the ttl that was asked for: it is in force. */
  ttlKnown(ttlMs: number | null): void {
    const isStillShorter = this.#capMs !== null && ttlMs !== null && this.#capMs < ttlMs;
    if (!isStillShorter) this.#capMs = null;
  }

  /** When to look again, at the latest, if nothing happens; `null`: never. */
  get wakeMs(): number | null {
    if (this.#state === "held") return least(this.deadlineMs, this.#dueMs, this.#stallsMs, this.#warnsMs);
    return this.#state === "uncertain" ? least(this.#dueMs, this.#stallsMs, this.#breaksMs) : null;
  }

  /** What follows from the time alone. It comes first after each wake-up (CC37). */
  tick(nowMs: number): Effects {
    if (!this.isLive) return {};
    const isPast = (ms: number | null) => ms !== null && ms <= nowMs;
    if (isPast(this.#breaksMs)) return this.#lose("broken");
    if (isPast(this.#stallsMs)) return this.#lose("stalled");
    if (isPast(this.#deadlineMs)) {
      if (this.#terms.onUncertain === "stop") return this.#lose("unconfirmed");
      this.#state = "uncertain";
    } else if (isPast(this.#warnsMs)) {
      this.#hasWarned = true;
      return { warning: { is: "expiring", leftMs: (this.#deadlineMs ?? nowMs) - nowMs } };
    }
    return {};
  }

  /** What follows from something that was learnt. `draw` (0 to 1) is the jitter of the next renewal. */
  on(nowMs: number, input: LeaseInput, draw: number): Effects {
    // The clock comes first: what is over by now does not come back.
    const effects = this.tick(nowMs);
    if (!this.isLive) return effects;
    switch (input.on) {
      case "renewed":
        return { ...effects, ...this.#renewed(nowMs, input.sentMs, input, draw) };
      case "failed":
        this.#again(nowMs, draw);
        return effects;
      case "lost":
        return { ...effects, ...this.#lose(input.reason) };
      case "breaking":
        return { ...effects, ...this.#breaking(nowMs, input.sentMs + input.leftMs) };
      case "release":
        this.#state = "released";
        return effects;
      case "beat":
        this.#beatMs = nowMs;
        return effects;
    }
  }

  #breaking(nowMs: number, breaksMs: number): Effects {
    // Of several answers, the soonest time counts: the latest may be the oldest.
    this.#breaksMs = Math.min(this.#breaksMs ?? breaksMs, breaksMs);
    this.#dueMs = null;
    return { warning: { is: "breaking", leftMs: Math.max(0, this.#breaksMs - nowMs) } };
  }

  #renewed(nowMs: number, sentMs: number, times: Times, draw: number): Effects {
    // An answer that was overtaken by a later one says nothing new.
    if (sentMs < this.#confirmedMs) {
      this.#again(nowMs, draw);
      return {};
    }
    const endedMs = this.#deadlineMs;
    this.#confirm(sentMs, times, draw);
    // Answered too late: what it says is over already.
    if (this.#deadlineMs !== null && this.#deadlineMs <= nowMs) {
      const effects = this.tick(nowMs);
      this.#again(nowMs, draw);
      return effects;
    }
    if (this.#state !== "uncertain") return {};
    this.#state = "held";
    return { warning: { is: "revived", lapsedMs: Math.max(0, nowMs - (endedMs ?? nowMs)) } };
  }

  #confirm(sentMs: number, times: Times, draw: number): void {
    const leftMs = least(times.leftMs, this.#capMs);
    const margin = marginMs(least(times.ttlMs, this.#capMs) ?? 60_000);
    this.#ttlMs = times.ttlMs;
    this.#confirmedMs = sentMs;
    this.#deadlineMs = leftMs === null ? null : sentMs + Math.max(0, leftMs - margin);
    this.#hasWarned = false;
    this.#dueMs = null;
    const shortestMs = least(leftMs, times.ttlMs);
    if (shortestMs === null || !this.#terms.isRenewed || this.#breaksMs !== null) return;
    // A third of what is there, a tenth more or less.
    const thirdMs = Math.floor(shortestMs / 3);
    this.#dueMs = sentMs + thirdMs - Math.floor(thirdMs / 10) + portion(Math.floor(thirdMs / 5), draw);
  }

  /** After an attempt that failed: again soon (CC31). */
  #again(nowMs: number, draw: number): void {
    if (this.#dueMs === null) return;
    const everyMs = this.#ttlMs === null ? 2_000 : Math.min(2_000, Math.floor(this.#ttlMs / 10));
    this.#dueMs = nowMs + Math.floor(everyMs / 2) + portion(everyMs, draw);
  }

  get #stallsMs(): number | null {
    return this.#terms.stallAfterMs === undefined ? null : this.#beatMs + this.#terms.stallAfterMs;
  }

  /** A third of the ttl before the deadline, once after each confirmation (CC36). */
  get #warnsMs(): number | null {
    const isOff = this.#hasWarned || !this.#terms.isRenewed || this.#deadlineMs === null || this.#ttlMs === null;
    return isOff ? null : Math.max(0, this.#deadlineMs! - Math.floor(this.#ttlMs! / 3));
  }

  #lose(reason: LossReason): Effects {
    this.#state = "lost";
    this.#reason = reason;
    // Whoever hands a lock over knows that it is gone (CC50).
    return reason === "transferred" ? {} : { signal: reason };
  }
}
