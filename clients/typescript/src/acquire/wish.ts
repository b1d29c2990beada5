// What an acquire asks for, checked before anything is sent.

import { CALL, type CallOptions, type Inner } from "../client/inner.js";
import { durationMs, maxHoldMs, ttlMs, waitMs, type Duration } from "../core/durations.js";
import { Misuse } from "../core/errors.js";
import type { Terms } from "../core/lease.js";
import { bytesIn, ownerName, resourceNames, writerNames } from "../core/names.js";
import type { Names } from "../core/options.js";

/** Options of a lock. */
export interface LockOptions extends CallOptions {
  /** How long it lasts without renewal: `1s` to `24h`, or `infinite`; by default the client's. */
  readonly ttl?: Duration | undefined;
  /** How long to wait in line if somebody else holds it, or `forever`; by default not at all. */
  readonly wait?: Duration | undefined;
  /** What the holder calls itself; by default as the client does. */
  readonly owner?: string | undefined;
  /** How long it may be held in all, however often it is renewed: `1s` to `30d`. */
  readonly maxHold?: Duration | undefined;
  /** A few words on the lock, shown to its holder. */
  readonly metadata?: Readonly<Record<string, string>> | undefined;
  /**
   * Who may write under the token of this lock, too, with credentials of their own: principals, and roles as
   * `role:NAME`; at most 16. Writes of this guard have no numbers then.
   */
  readonly writers?: readonly string[] | undefined;
  /** Refuses resources that were never locked before. */
  readonly onlyIfExists?: boolean | undefined;
  /**
   * What the guard does when its deadline has passed without an answer: `stop`, the default: it is lost. `hold`: it
   * holds on until the gateway says that it is lost, for work all of whose effects go through the gateway.
   */
  readonly onUncertain?: "stop" | "hold" | undefined;
  /** Without a sign of life for so long (a call through the guard, or `beat()`), renewals stop and it is lost. */
  readonly stallAfter?: Duration | undefined;
  /** `false`: does not follow the lock's events, which tell of a loss before the next renewal does. */
  readonly watch?: boolean | undefined;
  /** One write at a time, in the order of the calls. */
  readonly ordered?: boolean | undefined;
  /** `false`: writes without numbers, for a token that several processes share. */
  readonly numbers?: boolean | undefined;
  /** `false`: one attempt, whatever comes of it. */
  readonly retries?: boolean | undefined;
}

/** Options of a lock that is not waited for, or for which the call itself says how long. */
export type KeepOptions = Omit<LockOptions, "wait">;

/** The names of those options. */
export const KEEP_NAMES: Names<KeepOptions> = {
  ...CALL,
  ttl: "value",
  owner: "text",
  maxHold: "value",
  metadata: "value",
  writers: "value",
  onlyIfExists: "flag",
  onUncertain: { stop: true, hold: true },
  stallAfter: "value",
  watch: "flag",
  ordered: "flag",
  numbers: "flag",
  retries: "flag",
};

/** The names of all options of a lock. */
export const LOCK_NAMES: Names<LockOptions> = { ...KEEP_NAMES, wait: "value" };

/** What is asked for, checked. */
export interface Wish {
  readonly resources: readonly string[];
  readonly owner: string;
  readonly ttlMs: number | null;
  readonly maxHoldMs: number | undefined;
  readonly metadata: Readonly<Record<string, string>> | undefined;
  readonly writers: readonly string[];
  readonly onlyIfExists: boolean;
  /** 0: not at all; `Infinity`: for ever. */
  readonly waitMs: number;
  readonly terms: Terms;
  readonly isWatched: boolean;
  readonly isOrdered: boolean;
  readonly isNumbered: boolean;
  readonly retries: boolean;
  readonly signal: AbortSignal | undefined;
}

/**
 * Looks at names, durations and words.
 *
 * @throws Misuse
 */
export function wishOf(inner: Inner, names: string | readonly string[], options: LockOptions): Wish {
  const { ttl, maxHold, stallAfter, onUncertain = "stop" } = options;
  const writers = writerNames(options.writers ?? []);
  return {
    resources: resourceNames(names),
    owner: ownerName(options.owner ?? inner.owner),
    ttlMs: ttl === undefined ? inner.ttlMs : ttlMs(ttl),
    maxHoldMs: maxHold === undefined ? undefined : maxHoldMs(maxHold),
    metadata: options.metadata === undefined ? undefined : checkedMetadata(options.metadata),
    writers,
    onlyIfExists: options.onlyIfExists ?? false,
    waitMs: waitMs(options.wait ?? 0),
    terms: {
      onUncertain,
      stallAfterMs: stallAfter === undefined ? undefined : durationMs(stallAfter, "stallAfter", 1),
      isRenewed: true,
    },
    isWatched: options.watch ?? true,
    isOrdered: options.ordered ?? false,
    // What others write under the token has no numbers, so that ours would prove nothing (CC24a).
    isNumbered: (options.numbers ?? true) && writers.length === 0,
    retries: options.retries ?? inner.retries,
    signal: options.signal,
  };
}

/** At most 16 strings, with keys of 1 to 64 bytes, values of at most 1,024, and 4,096 bytes of JSON in all. */
function checkedMetadata(metadata: Readonly<Record<string, string>>): Record<string, string> {
  const words = Object.entries(metadata);
  const isKey = (key: string): boolean => key !== "" && bytesIn(key) <= 64;
  const isValue = (value: unknown): boolean => typeof value === "string" && bytesIn(value) <= 1024;
  const isGood = words.length <= 16 && words.every(([key, value]) => isKey(key) && isValue(value));
  const copy = Object.fromEntries(words);
  if (isGood && bytesIn(JSON.stringify(copy)) <= 4096) return copy;
  throw new Misuse("metadata has at most 16 strings, keys of 1 to 64 bytes, values of at most 1024, 4096 in all");
}
