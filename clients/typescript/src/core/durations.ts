// Durations as callers give them: a number of milliseconds, or text such as `30s` (CC5).

import { Misuse } from "./errors.js";
import { shown } from "./options.js";

/** Milliseconds as a whole number, or text: a whole number and one of `ms`, `s`, `m`, `h`, `d`, such as `"30s"`. */
export type Duration = number | string;

const UNITS: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const DAY_MS = 86_400_000;

/** The milliseconds of a duration; `undefined`: it is none. */
export function parseDuration(given: Duration): number | undefined {
  if (typeof given === "number") return Number.isSafeInteger(given) && given >= 0 ? given : undefined;
  // What merely reads as text, such as a list with one, is none.
  const found = typeof given === "string" ? /^(0|[1-9][0-9]*)(ms|s|m|h|d)$/.exec(given) : null;
  if (found === null) return undefined;
  const ms = Number(found[1]) * (UNITS[found[2] ?? ""] ?? NaN);
  return Number.isSafeInteger(ms) ? ms : undefined;
}

/** The milliseconds of a duration that lies between these. */
export function durationMs(given: Duration, what: string, leastMs = 0, mostMs = Number.MAX_SAFE_INTEGER): number {
  const ms = parseDuration(given);
  if (ms !== undefined && ms >= leastMs && ms <= mostMs) return ms;
  const bounds = mostMs < Number.MAX_SAFE_INTEGER ? `${leastMs} ms to ${mostMs} ms` : `${leastMs} ms or more`;
  throw new Misuse(
    `${what} ${shown(given)} is no duration from ${bounds}: milliseconds as a number, or text such as "30s"`,
  );
}

/** The ttl of a lock: `1s` to `24h`; `null` for `infinite`. */
export function ttlMs(given: Duration): number | null {
  return given === "infinite" ? null : durationMs(given, "ttl", 1_000, DAY_MS);
}

/** How long a lock may be held in all: `1s` to `30d`. */
export function maxHoldMs(given: Duration): number {
  return durationMs(given, "maxHold", 1_000, 30 * DAY_MS);
}

/** How long to wait for a lock; `Infinity` for `forever`. */
export function waitMs(given: Duration): number {
  return given === "forever" ? Infinity : durationMs(given, "wait");
}

/** A time limit of a call: 1 ms to 24 h. */
export function limitMs(given: Duration, what: string): number {
  return durationMs(given, what, 1, DAY_MS);
}

/** A duration as it is sent. */
export function sent(ms: number | null): string {
  return ms === null ? "infinite" : `${ms}ms`;
}
