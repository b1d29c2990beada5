// How a job is doing: running or lost, overdue, stuck; and many parts as one. By the clock of the gateway, as `fence job` says it.
import { slotTime } from "./record.js";

/** So many successes tell how long a run takes. */
const ENOUGH = 3;
/** Nothing is stuck before that. */
const LEAST_MS = 60_000;
/** Of the parts of a job the worst counts. */
const WORST = ["lost", "timed_out", "failed", "abandoned", "running"];

/**
 * A job, or a part of one, as it was when the gateway answered: `now` is its clock then, in milliseconds, and NaN if it did
 * not tell.
 * @typedef {{ job: import("./record.js").JobName, state: import("./record.js").JobState, resource: any, now: number }} JobView
 */
/**
 * @typedef {{
 *   key: string, name: string, status: string, isOverdue: boolean, isStuck: boolean, lastSlot?: string, lastSuccessAt?: string,
 *   tookMs?: number, runningMs?: number, nextSlotAt?: number, failures: number, owner?: string, parts?: number, done?: number,
 * }} Row
 */

/** Whether this run has the lock. @param {any} resource @param {import("./record.js").Run} run */
function isHeldBy(resource, run) {
  if (!resource || !["leased", "breaking"].includes(resource.state)) return false;
  return run.acquiredAt === undefined || Date.parse(run.acquiredAt) === Date.parse(resource.acquired_at);
}

/** In one word. @param {JobView} view */
export function statusOf({ state, resource }) {
  if (state.running) return isHeldBy(resource, state.running) ? "running" : "lost";
  return state.last?.status ?? "never";
}

/** For how long a run has been under way, in milliseconds. @param {JobView} view @returns {number | undefined} */
export const runningMs = (view) =>
  // The lock may have been had for an attempt before.
  statusOf(view) === "running" ? view.resource.age_ms - (view.state.running?.lockAgeMs ?? 0) : undefined;

/**
 * Since when it is overdue, or from when on it will be, in milliseconds. Without a success nothing is known.
 * @param {Pick<import("./record.js").JobState, "everyMs" | "overdueAfterMs" | "lastSuccess">} state
 */
export function overdueAt({ everyMs, overdueAfterMs, lastSuccess }) {
  const from = slotTime(lastSuccess?.slot);
  return everyMs === undefined || from === null ? null : from + everyMs + (overdueAfterMs ?? everyMs);
}

/** Whether it has missed its time. @param {JobView} view */
export function isOverdue({ state, now }) {
  const at = overdueAt(state);
  return at !== null && now > at;
}

/**
 * How long a run may take before it is stuck, in milliseconds: what was said, or three times the median of the successes that
 * are known, and a minute at least.
 * @param {import("./record.js").JobState} state
 */
export function stuckAfterMs({ mostMs, recent }) {
  if (mostMs !== undefined) return mostMs;
  const took = recent
    .filter(({ status }) => status === "succeeded")
    .flatMap(({ tookMs }) => tookMs ?? [])
    .sort((a, b) => a - b);
  if (took.length < ENOUGH) return null;
  // Three times the mean of the two in the middle, of which an odd number has one.
  const thrice = (3 * (took[Math.floor((took.length - 1) / 2)] + took[Math.floor(took.length / 2)])) / 2;
  return Math.max(thrice, LEAST_MS);
}

/** Whether a run takes longer than it may. @param {JobView} view */
export function isStuck(view) {
  const [running, most] = [runningMs(view), stuckAfterMs(view.state)];
  return running !== undefined && most !== null && running > most;
}

/** When the next slot begins, in milliseconds. @param {import("./record.js").JobState} state */
export function nextSlotAt({ everyMs, lastSlot }) {
  const last = slotTime(lastSlot);
  return everyMs === undefined || last === null ? undefined : last + everyMs;
}

/** Whether somebody should look at it. @param {{ status: string, isOverdue: boolean, isStuck: boolean }} row */
export const isBad = ({ status, isOverdue, isStuck }) =>
  isOverdue || isStuck || ["lost", "failed", "timed_out", "abandoned"].includes(status);

/** A job, or a part of one, as a row. @param {JobView} view @returns {Row} */
export const rowOf = (view) => ({
  key: view.job.resource,
  name: view.job.text,
  status: statusOf(view),
  isOverdue: isOverdue(view),
  isStuck: isStuck(view),
  lastSlot: view.state.lastSlot ?? view.state.last?.slot,
  lastSuccessAt: view.state.lastSuccess?.finishedAt,
  tookMs: view.state.last?.tookMs,
  runningMs: runningMs(view),
  nextSlotAt: nextSlotAt(view.state),
  failures: view.state.failures,
  owner: view.state.running?.owner,
});

/** A row for each job: its parts are one. @param {JobView[]} views @returns {Row[]} */
export function rowsOf(views) {
  const jobs = /** @type {Map<string, JobView[]>} */ (new Map());
  for (const view of views) {
    const key = view.job.part ? `${view.job.name}@` : view.job.name;
    jobs.set(key, [...(jobs.get(key) ?? []), view]);
  }
  const rows = [...jobs.values()].map((of) => (of[0].job.part ? summed(of) : rowOf(of[0])));
  return rows.sort((a, b) => (a.key < b.key ? -1 : 1));
}

/** @param {JobView[]} views @returns {Row} */
function summed(views) {
  const parts = views.map(rowOf);
  const { name, part } = views[0].job;
  const rank = (/** @type {Row} */ row) => (WORST.includes(row.status) ? WORST.indexOf(row.status) : WORST.length);
  const known = (/** @type {(row: Row) => any} */ of) => parts.map(of).filter((it) => it !== undefined);
  const lastSlot = known((row) => row.lastSlot)
    .sort()
    .at(-1);
  const successes = known((row) => row.lastSuccessAt).sort();
  const [took, running, next] = [
    known((row) => row.tookMs),
    known((row) => row.runningMs),
    known((row) => row.nextSlotAt),
  ];
  return {
    key: `job:${name}@`,
    name,
    status: parts.toSorted((a, b) => rank(a) - rank(b))[0].status,
    isOverdue: parts.some((row) => row.isOverdue),
    isStuck: parts.some((row) => row.isStuck),
    lastSlot,
    // A part that never succeeded leaves the job without a success as a whole.
    lastSuccessAt: successes.length === parts.length ? successes[0] : undefined,
    tookMs: took.length > 0 ? Math.max(...took) : undefined,
    runningMs: running.length > 0 ? Math.max(...running) : undefined,
    nextSlotAt: next.length > 0 ? Math.min(...next) : undefined,
    failures: Math.max(...parts.map((row) => row.failures)),
    parts: part?.count,
    done: parts.filter((row) => row.status === "succeeded" && row.lastSlot === lastSlot).length,
  };
}
