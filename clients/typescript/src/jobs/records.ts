// What is kept of a job and its runs (docs/jobs.md), and what a caller asks for: without clocks, and without a gateway.

import { CALL, type CallOptions } from "../client/inner.js";
import type { LockOptions } from "../acquire/wish.js";
import { durationMs, type Duration } from "../core/durations.js";
import { Misuse } from "../core/errors.js";
import { reasonText } from "../core/names.js";
import { checked, whole, type Names } from "../core/options.js";
import { intervalSeconds, isLate, jobResource, slotSecond, type ShardOf } from "../core/slots.js";
import type { Word } from "../wire.js";

/** How many runs the state of a job tells of. */
const RECENT_MAX = 50;
/** How many characters a reason has. */
const REASON_MAX = 500;
/** How many objects a run removes at most as it ends. */
const PRUNED_MAX = 900;
const STEM = /^runs\/([0-9TZ]{16}(?:-[0-9a-f]{8})?)\.([1-9][0-9]{0,8})\.(?:json|log)$/;

/** Options of a job. */
export interface JobOptions extends CallOptions, Pick<LockOptions, "ttl" | "owner"> {
  /** The interval: the slot is the last whole multiple of it since 1970, by the gateway's clock. */
  readonly every?: Duration | undefined;
  /** The slot, `20261122T020000Z` or `2026-11-22T02:00:00Z`. Without it and `every`, each call is one of its own. */
  readonly slot?: string | undefined;
  /** How late a slot may be; by default as long as the interval. */
  readonly overdueAfter?: Duration | undefined;
  /** `done`, the default: a slot is run until it has succeeded. `claimed`: at most once, whatever becomes of it. */
  readonly once?: "done" | "claimed" | undefined;
  /**
   * What to do if somebody else has the lock. `skip`, the default: nothing. `wait`: to wait, for ever or for `wait`.
   * `replace`: to break that lock, for this `reason`.
   */
  readonly overlap?: "skip" | "wait" | "replace" | undefined;
  readonly wait?: Duration | undefined;
  readonly reason?: string | undefined;
  /**
   * What to do about slots that were missed. `last`, the default: only the newest is run. `all`: each, oldest first, at
   * most 100 in one call. `none`: the newest is skipped, too, if it is too late.
   */
  readonly catchUp?: "none" | "last" | "all" | undefined;
  /** How many runs are kept; by default 200. */
  readonly keep?: number | undefined;
  /** Goes on with the checkpoint of a slot that was begun and not finished; without a slot, with that of the last run. */
  readonly resume?: boolean | undefined;
  /** How often a body that failed is run again at once. */
  readonly retries?: number | undefined;
  /** The pause before the first of them, each further one twice as long; by default 1 s. */
  readonly backoff?: Duration | undefined;
  /** One part of the job. */
  readonly shard?: ShardOf | undefined;
  /** Runs all parts that nobody else does, until all parts of the slot are done. */
  readonly shards?: number | undefined;
  /** How many of them at a time; by default one. */
  readonly concurrency?: number | undefined;
  /** How long a run may take. Its signal is aborted then. */
  readonly maxRuntime?: Duration | undefined;
}

const NAMES: Names<JobOptions> = {
  ...CALL,
  every: "value",
  slot: "text",
  overdueAfter: "value",
  once: { done: true, claimed: true },
  overlap: { skip: true, wait: true, replace: true },
  wait: "value",
  reason: "text",
  catchUp: { none: true, last: true, all: true },
  ttl: "value",
  owner: "text",
  keep: "value",
  resume: "flag",
  retries: "value",
  backoff: "value",
  shard: "value",
  shards: "value",
  concurrency: "value",
  maxRuntime: "value",
};

/** How a run stands. */
export type RunStatus = Word<"started" | "succeeded" | "failed" | "cancelled" | "timed_out" | "abandoned" | "skipped">;

/** What the state of a job tells of a run. */
export interface RunSummary {
  /** Its id, a UUID. */
  readonly run: string;
  readonly slot: string;
  /** Which run of its slot it is, from 1. */
  readonly attempt: number;
  readonly status: RunStatus;
  readonly started_at?: string;
  readonly finished_at?: string;
  readonly duration_ms?: number;
  readonly reason?: string;
}

/** What is kept of a run. What is not known is absent. */
export interface RunRecord extends RunSummary {
  readonly v: 1;
  readonly job: string;
  readonly shard?: number;
  readonly shards?: number;
  readonly owner?: string;
  readonly host?: string;
  readonly pid?: number;
  readonly program?: string;
  readonly trigger?: Word<"schedule" | "catch_up" | "manual" | "request" | "retry">;
  readonly acquired_at?: string;
  readonly exit?: number;
  readonly signal?: number;
  /** The run whose checkpoint it found. */
  readonly resumed_from?: string;
  readonly request?: string;
  /** The token of its lock. */
  readonly fence?: string;
}

/** What is expected of a job. */
export interface Expected {
  readonly every_ms?: number;
  readonly overdue_after_ms?: number;
  readonly max_runtime_ms?: number;
}

/** The `state.json` of a job. */
export interface JobDocument {
  readonly v: 1;
  readonly job: string;
  readonly shard?: number;
  readonly shards?: number;
  readonly expect?: Expected;
  readonly last_slot?: string;
  readonly forgotten_through?: string;
  readonly running?: RunRecord;
  readonly last?: RunSummary;
  readonly last_success?: RunSummary;
  readonly failures_in_row?: number;
  readonly recent?: readonly RunSummary[];
}

/** What a caller asks for, checked. */
export interface Terms {
  readonly name: string;
  readonly everyMs: number | undefined;
  readonly slot: number | undefined;
  readonly expect: Expected;
  readonly isClaimed: boolean;
  readonly overlap: "skip" | "wait" | "replace";
  readonly reason: string | undefined;
  readonly catchUp: "none" | "last" | "all";
  readonly lock: Pick<LockOptions, "ttl" | "owner" | "signal">;
  readonly wait: Duration | undefined;
  readonly keep: number;
  readonly resumes: boolean;
  readonly retries: number;
  readonly backoffMs: number;
  readonly shard: ShardOf | undefined;
  readonly shards: number | undefined;
  readonly concurrency: number;
  readonly signal: AbortSignal | undefined;
}

/**
 * Checks what a caller wants.
 *
 * @throws Misuse
 */
export function termsOf(name: string, options: JobOptions): Terms {
  const { every, slot, shard, shards, reason, wait, signal, ttl, owner } = checked("job()", options, NAMES);
  const { overlap = "skip", catchUp = "last", once = "done" } = options;
  const retries = whole("retries", options.retries, 0, 0);
  const everyMs = every === undefined ? undefined : durationMs(every, "every");
  if (everyMs !== undefined) intervalSeconds(everyMs);
  jobResource(name, shards === undefined ? shard : { index: 0, count: shards });
  const wrong: readonly (readonly [boolean, string])[] = [
    [every !== undefined && slot !== undefined, "every or slot, one of them"],
    [shard !== undefined && shards !== undefined, "shard or shards, one of them"],
    [shards !== undefined && every === undefined && slot === undefined, "shards are of a slot: every or slot"],
    [shards !== undefined && overlap !== "skip", "of shards, whatever somebody else does is skipped"],
    [catchUp === "all" && every === undefined, "to catch up with all wants every"],
    [once === "claimed" && retries > 0, "what is claimed has one try: no retries"],
    [(overlap === "replace") !== (reason !== undefined), "to replace wants a reason, and nothing else does"],
    [overlap === "skip" && wait !== undefined, "wait is for an overlap that waits or replaces"],
  ];
  for (const [isWrong, why] of wrong) if (isWrong) throw new Misuse(`a job: ${why}`);
  const lasting = (member: string, given: Duration | undefined): Expected =>
    given === undefined ? {} : { [`${member}_ms`]: durationMs(given, member) };
  return {
    name,
    everyMs,
    slot: slot === undefined ? undefined : slotSecond(slot),
    expect: {
      ...lasting("every", every),
      ...lasting("overdue_after", options.overdueAfter),
      ...lasting("max_runtime", options.maxRuntime),
    },
    isClaimed: once === "claimed",
    overlap,
    reason: reason === undefined ? undefined : reasonText(reason),
    catchUp,
    lock: { ttl, owner, signal },
    wait,
    keep: whole("keep", options.keep, 200, 1),
    resumes: options.resume ?? false,
    retries,
    backoffMs: durationMs(options.backoff ?? "1s", "backoff"),
    shard,
    shards,
    concurrency: whole("concurrency", options.concurrency, 1, 1),
    signal,
  };
}

/** Whether a slot is recorded as skipped instead of run. */
export function isSkipped(terms: Terms, slot: number | undefined, now: number): boolean {
  if (slot === undefined || terms.catchUp !== "none") return false;
  return isLate(slot, now, terms.everyMs, terms.expect.overdue_after_ms);
}

/** Why a body failed. */
export function reasonOf(error: unknown): string {
  const { name, message } = error as { name?: unknown; message?: unknown };
  const text = error instanceof Error ? `${String(name)}: ${String(message)}` : String(error);
  return [...text].slice(0, REASON_MAX).join("");
}

/** The object of a run. */
export function runKey(run: RunSummary): string {
  return `runs/${run.slot}.${run.attempt}.json`;
}

/** The run that began and whose end nobody recorded, as the next run marks it. */
export function leftover(state: JobDocument | undefined, reason: string | undefined): RunRecord | undefined {
  if (state?.running === undefined) return undefined;
  if (reason === undefined) return { ...state.running, status: "abandoned" };
  return { ...state.running, status: "cancelled", reason: `replaced: ${reason}` };
}

/** The state of a job once this run has begun; or at once, if it is skipped. */
export function afterStart(
  before: JobDocument | undefined,
  terms: Terms,
  left: RunRecord | undefined,
  run: RunRecord,
): JobDocument {
  const { job, shard, shards } = run;
  const state: JobDocument = {
    failures_in_row: 0,
    recent: [],
    ...before,
    v: 1,
    job,
    ...(shard === undefined || shards === undefined ? {} : { shard, shards }),
    // A run that somebody calls for by hand does not end what is expected of the schedule.
    expect: terms.everyMs === undefined ? { ...before?.expect, ...onlyMostOf(terms.expect) } : terms.expect,
  };
  const settled = left === undefined ? state : afterEnd(state, left);
  const { last_slot: last = "" } = settled;
  const scheduled = run.slot.includes("-") ? {} : { last_slot: run.slot > last ? run.slot : last };
  const begun = { ...settled, ...scheduled };
  return run.status === "started" ? { ...begun, running: run } : afterEnd(begun, run);
}

/** Of what is expected, how long a run may take. */
function onlyMostOf({ max_runtime_ms: most }: Expected): Expected {
  return most === undefined ? {} : { max_runtime_ms: most };
}

/** The state of a job once this run has ended. */
export function afterEnd(before: JobDocument, run: RunRecord): JobDocument {
  const { running: _, ...state } = before;
  const { run: id, slot, attempt, status, started_at, finished_at, duration_ms, reason } = run;
  const known = { started_at, finished_at, duration_ms, reason };
  const summary = { run: id, slot, attempt, status, ...known } as RunSummary;
  const { failures_in_row: failures = 0, recent = [] } = state;
  const after = { ...state, last: summary, recent: [summary, ...recent].slice(0, RECENT_MAX) };
  if (status === "succeeded") {
    // An old slot that is made up for later is not news of the schedule.
    const isNews = slot >= (state.last_success?.slot ?? "");
    return { ...after, ...(isNews && { last_success: summary }), failures_in_row: 0 };
  }
  const isFailure = status === "failed" || status === "timed_out" || status === "abandoned";
  return { ...after, failures_in_row: failures + (isFailure ? 1 : 0) };
}

/** The runs that are kept, by the keys of their objects. */
export class Kept {
  readonly #runs = new Map<string, { slot: string; attempt: number; keys: string[] }>();

  constructor(keys: Iterable<string>) {
    for (const key of keys) {
      const [, slot, attempt] = STEM.exec(key) ?? [];
      if (slot === undefined) continue;
      const run = this.#runs.get(`${slot}.${attempt}`) ?? { slot, attempt: Number(attempt), keys: [] };
      run.keys.push(key);
      this.#runs.set(`${slot}.${attempt}`, run);
    }
  }

  /** The number of the last run of a slot; 0: there is none. */
  attempts(of: string): number {
    let most = 0;
    for (const { slot, attempt } of this.#runs.values()) if (slot === of && attempt > most) most = attempt;
    return most;
  }

  /**
   * What is removed as this run ends, beside which so many are kept: the objects, and the highest slot that goes.
   *
   * These stay: the run itself and the one that it found `left`; the newest slot of the schedule, which may be called for
   * still; and what is younger in the schedule than the run, since the slot of now would count as forgotten otherwise.
   */
  beyond(keep: number, own: RunSummary, left?: RunSummary): { objects: string[]; forgotten: string | undefined } {
    const runs = new Map(this.#runs);
    const staying = new Set<string>();
    for (const { slot, attempt } of left === undefined ? [own] : [own, left]) {
      staying.add(`${slot}.${attempt}`);
      runs.set(`${slot}.${attempt}`, { slot, attempt, keys: [] });
    }
    const sorted = [...runs].sort(([, one], [, other]) =>
      one.slot === other.slot ? one.attempt - other.attempt : one.slot < other.slot ? -1 : 1,
    );
    const ofSlot = new Map<string, number>();
    for (const [, { slot }] of sorted) ofSlot.set(slot, (ofSlot.get(slot) ?? 0) + 1);
    const newest = sorted.filter(([, { slot }]) => !slot.includes("-")).at(-1)?.[1].slot;
    const going = sorted.filter(
      ([stem, { slot }]) => !staying.has(stem) && slot !== newest && (slot.includes("-") || slot <= own.slot),
    );
    const objects: string[] = [];
    let forgotten: string | undefined;
    for (const [, { slot, keys }] of going.slice(0, Math.max(0, sorted.length - keep))) {
      const others = ofSlot.get(slot)! - 1;
      ofSlot.set(slot, others);
      // The slot goes with the last of its runs.
      const found = others === 0 ? [...keys, `slots/${slot}.json`, `checkpoints/${slot}`] : keys;
      if (objects.length + found.length > PRUNED_MAX) break;
      objects.push(...found);
      // Slots of one run alone are never called for again.
      if (others === 0 && !slot.includes("-")) forgotten = slot;
    }
    return { objects, forgotten };
  }
}
