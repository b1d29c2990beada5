// The records of jobs, as docs/jobs.md describes them. Whoever may write there may write anything: what is not as it should be
// counts as absent.

const SLOT = /^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z(-[0-9a-f]{8})?$/;
const JOB = /^job:([A-Za-z0-9._~-]{1,200})(?:@(\d{1,5})\.(\d{1,5}))?$/;

/** @typedef {{ index: number, count: number }} Part */
/** @typedef {{ name: string, part: Part | null, text: string, resource: string }} JobName */
/**
 * @typedef {{
 *   id: string, slot: string, attempt: number, stem: string, status: string, owner?: string, host?: string, pid?: number,
 *   program?: string, trigger?: string, acquiredAt?: string, lockAgeMs?: number, startedAt?: string, finishedAt?: string, tookMs?: number,
 *   exit?: number, signal?: number, reason?: string, output?: { bytes?: number, isCut: boolean, sha256?: string },
 *   resumedFrom?: string, request?: string, fence?: string,
 * }} Run
 */
/**
 * @typedef {{
 *   everyMs?: number, overdueAfterMs?: number, mostMs?: number, lastSlot?: string, forgottenThrough?: string,
 *   running: Run | null, last: Run | null, lastSuccess: Run | null, failures: number, recent: Run[],
 * }} JobState
 */

/** The job, or the part of one, whose records a resource has. @param {string} resource @returns {JobName | null} */
export function jobOf(resource) {
  const found = JOB.exec(resource);
  if (!found) return null;
  const [, name, index, count] = found;
  if (index === undefined) return { name, part: null, text: name, resource };
  const part = { index: Number(index), count: Number(count) };
  const isPart = part.count >= 1 && part.index < part.count && String(part.count) === count;
  if (!isPart || index.length !== count.length) return null;
  return { name, part, text: `${name}@${index}.${count}`, resource };
}

/** The form of a state that is understood here. */
const FORM = 1;

/** The time of a slot, in milliseconds; null: it is none. @param {unknown} slot */
export function slotTime(slot) {
  const found = typeof slot === "string" ? SLOT.exec(slot) : null;
  if (!found) return null;
  const [text, year, month, day, hour, minute, second] = found;
  const time = Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`);
  // 31 February is read as a day in March by some, and 24:00 as the next day.
  const isSame = !Number.isNaN(time) && slotAt(time) === text.slice(0, 16);
  return isSame && time >= 0 ? time : null;
}

/** @param {number} time */
const slotAt = (time) => new Date(time).toISOString().replaceAll(/[-:]|\.\d+/g, "");

/** The slot that somebody names, as it stands in records; null: it is none. @param {string} named */
export function slotNamed(named) {
  const isTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/.test(named);
  const slot = isTime ? named.replaceAll(/[-:]/g, "") : named;
  return !slot.includes("-") && slotTime(slot) !== null ? slot : null;
}

/** @param {unknown} of */
const text = (of) => (typeof of === "string" ? of : undefined);
/** @param {unknown} of */
const number = (of) => (typeof of === "number" && Number.isFinite(of) ? of : undefined);
/** A time that can be read. @param {unknown} of */
const moment = (of) => (typeof of === "string" && !Number.isNaN(Date.parse(of)) ? of : undefined);
/** @param {unknown} of @returns {Record<string, unknown>} */
const fields = (of) => (typeof of === "object" && of !== null ? /** @type {any} */ (of) : {});

/** A run, or what the state keeps of one. @param {unknown} of @returns {Run | null} */
export function readRun(of) {
  const from = fields(of);
  const { slot, attempt, run: id } = from;
  if (typeof slot !== "string" || slotTime(slot) === null || typeof id !== "string") return null;
  if (typeof attempt !== "number" || !Number.isSafeInteger(attempt)) return null;
  const output = fields(from.output);
  return {
    id,
    slot,
    attempt,
    stem: `${slot}.${attempt}`,
    status: text(from.status) ?? "not known",
    owner: text(from.owner),
    host: text(from.host),
    pid: number(from.pid),
    program: text(from.program),
    trigger: text(from.trigger),
    acquiredAt: moment(from.acquired_at),
    lockAgeMs: number(from.lock_age_ms),
    startedAt: moment(from.started_at),
    finishedAt: moment(from.finished_at),
    tookMs: number(from.duration_ms),
    exit: number(from.exit),
    signal: number(from.signal),
    reason: text(from.reason),
    output: from.output
      ? { bytes: number(output.bytes), isCut: output.truncated === true, sha256: text(output.sha256) }
      : undefined,
    resumedFrom: text(from.resumed_from),
    request: text(from.request),
    fence: text(from.fence),
  };
}

/** The state of a job; null: it is none, or that of a newer client. @param {string} json @returns {JobState | null} */
export function readState(json) {
  const from = fields(parsed(json));
  if (typeof from.job !== "string" || from.v !== FORM) return null;
  const expect = fields(from.expect);
  const slot = (/** @type {unknown} */ of) => (slotTime(of) === null ? undefined : text(of));
  const recent = Array.isArray(from.recent) ? from.recent.map(readRun) : [];
  return {
    everyMs: number(expect.every_ms),
    overdueAfterMs: number(expect.overdue_after_ms),
    mostMs: number(expect.max_runtime_ms),
    lastSlot: slot(from.last_slot),
    forgottenThrough: slot(from.forgotten_through),
    running: readRun(from.running),
    last: readRun(from.last),
    lastSuccess: readRun(from.last_success),
    failures: number(from.failures_in_row) ?? 0,
    recent: recent.filter((run) => run !== null).slice(0, 50),
  };
}

/** @param {string} json @returns {unknown} */
export function parsed(json) {
  try {
    return JSON.parse(json);
  } catch {
    return null;
  }
}
