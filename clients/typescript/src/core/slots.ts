// Names and slots of jobs, and what is said of a job (CC61, CC63, CC64).

import { Misuse } from "./errors.js";
import { resourceName } from "./names.js";

/** How many slots one call runs at most. */
export const CAUGHT_UP_MAX = 100;
/** The most shards of one name. */
export const SHARDS_MAX = 10_000;
const KEPT = /^(\d{4})(\d{2})(\d{2})T(\d{2})(\d{2})(\d{2})Z$/;
const RFC_3339 = /^(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})Z$/;
const SUCCESSES_MIN = 3;
/** Nothing is stuck before that, however short the runs usually are. */
const STUCK_LEAST_MS = 60_000;

/** Which shard, from 0, and how many there are. */
export interface ShardOf {
  readonly index: number;
  readonly count: number;
}

/** `name@07.16`: as many digits as the count has, so that names sort as numbers do. */
export function shardName(name: string, index: number, count: number): string {
  return `${name}@${String(index).padStart(String(count).length, "0")}.${count}`;
}

/** The resource of a job, or of one shard of it. */
export function jobResource(name: string, shard?: ShardOf): string {
  if (!/^[A-Za-z0-9._~-]{1,200}$/.test(name)) {
    throw new Misuse(`${JSON.stringify(name)} is no name of a job: 1 to 200 of A-Z a-z 0-9 . _ ~ -`);
  }
  if (shard === undefined) return `job:${name}`;
  const { index, count } = shard;
  const isGood = Number.isInteger(index) && Number.isInteger(count) && 0 <= index && index < count;
  if (!isGood || count > SHARDS_MAX) throw new Misuse(`a shard is a number from 0, of 1 to ${SHARDS_MAX}`);
  return resourceName(shardName(`job:${name}`, index, count));
}

/** The slot that begins with this second since 1970. */
export function slotText(second: number): string {
  return new Date(second * 1000).toISOString().replace(/[-:]|\.000/g, "");
}

/** The second since 1970 with which a slot begins. The caller writes it in either form. */
export function slotSecond(text: string): number {
  const found = KEPT.exec(text) ?? RFC_3339.exec(text);
  const [, year, month, day, hour, minute, second] = found ?? [];
  const at = Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`) / 1000;
  // A day that the month does not have, and hour 24, may be taken for the next day's.
  if (found !== null && at >= 0 && slotText(at) === found.slice(1, 4).join("") + `T${hour}${minute}${second}Z`)
    return at;
  throw new Misuse(`${JSON.stringify(text)} is no slot such as 20261122T020000Z or 2026-11-22T02:00:00Z`);
}

/** The second with which a slot begins that is kept, also one of a run that named none. */
export function begins(slot: string): number {
  return slotSecond(slot.split("-", 1)[0]!);
}

/** The interval of a schedule, in seconds. */
export function intervalSeconds(everyMs: number): number {
  if (everyMs >= 1000 && everyMs % 1000 === 0) return everyMs / 1000;
  throw new Misuse("every is whole seconds, at least one: slots are named by seconds");
}

/** The slot of a schedule at this second. */
export function slotAt(everyMs: number, now: number): number {
  return now - (now % intervalSeconds(everyMs));
}

/** The slots to run, oldest first, up to this one, if one was begun last. */
export function caughtUp(everyMs: number, slot: number, last: number | undefined, lastIsDone: boolean): number[] {
  if (last === undefined || last >= slot) return [slot];
  const every = intervalSeconds(everyMs);
  const slots = lastIsDone ? [] : [last];
  for (let at = last - (last % every) + every; at <= slot && slots.length < CAUGHT_UP_MAX; at += every) slots.push(at);
  return slots;
}

/** Says whether this is the oldest slot to run, now that another one was begun last. */
export function isNext(everyMs: number, slot: number, last: number, lastIsDone: boolean): boolean {
  return last <= slot && caughtUp(everyMs, slot, last, lastIsDone)[0] === slot;
}

/** Whether it is too late for a slot. */
export function isLate(slot: number, now: number, everyMs?: number, overdueAfterMs?: number): boolean {
  return (now - slot) * 1000 > (overdueAfterMs ?? everyMs ?? Infinity);
}

/** Whether a job should have succeeded again by now. */
export function isOverdue(
  lastSuccess: string | undefined,
  now: number,
  everyMs?: number,
  overdueAfterMs?: number,
): boolean {
  if (lastSuccess === undefined || everyMs === undefined) return false;
  return (now - begins(lastSuccess)) * 1000 > everyMs + (overdueAfterMs ?? everyMs);
}

/** What is looked at of a run that has ended. */
export interface Took {
  readonly status: string;
  readonly duration_ms?: number;
}

/** Whether a run takes longer than it may, or than it usually does. */
export function isStuck(runningMs: number, maxRuntimeMs: number | undefined, recent: readonly Took[]): boolean {
  if (maxRuntimeMs !== undefined) return runningMs > maxRuntimeMs;
  const took = recent.flatMap(({ status, duration_ms: ms }) =>
    status === "succeeded" && ms !== undefined ? [ms] : [],
  );
  if (took.length < SUCCESSES_MIN) return false;
  took.sort((one, other) => one - other);
  const [low, high] = [took[(took.length - 1) >> 1]!, took[took.length >> 1]!];
  return runningMs > Math.max((3 * (low + high)) / 2, STUCK_LEAST_MS);
}
