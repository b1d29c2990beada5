// Asks for what there is of jobs: a list of resources, and the state of each, which is read again only if the resource has changed.
import { Problem, at, atObject, fetchRaw, get, getDated, ifThere } from "../api.js";
import { jobOf, parsed, readRun, readState } from "./record.js";
import { statusOf } from "./verdict.js";

/** So many resources of jobs are looked at, at most. */
export const SEEN = 500;
/** So many of them at a time. */
const AT_ONCE = 8;
/** No state and no record of a run is longer. */
const RECORD_BYTES = 1024 * 1024;
/** So many requests may wait. */
export const REQUESTS_MAX = 100;

/** @typedef {import("./record.js").JobName} JobName */
/** @typedef {import("./record.js").JobState} JobState */
/** @typedef {import("./verdict.js").JobView} JobView */
/** What was read of a resource, and at which version of it. @typedef {Map<string, { version: number, state: Read }>} Cache */
/** The state; null: it is no job; "hidden": one may not see it. @typedef {JobState | null | "hidden"} Read */

/**
 * Does something with each of them, some at a time, and keeps their order.
 * @template T, R @param {T[]} items @param {(item: T) => Promise<R>} act @returns {Promise<R[]>}
 */
async function forEach(items, act) {
  const results = /** @type {R[]} */ (new Array(items.length));
  let next = 0;
  const work = async () => {
    while (next < items.length) {
      const mine = next++;
      results[mine] = await act(items[mine]);
    }
  };
  await Promise.all(Array.from({ length: Math.min(AT_ONCE, items.length) }, work));
  return results;
}

/** @param {string} resource @param {string} key @param {AbortSignal} signal */
async function readText(resource, key, signal) {
  const headers = { range: `bytes=0-${RECORD_BYTES - 1}` };
  return (await fetchRaw(atObject(resource, key), { signal, headers })).text();
}

/** @param {string} resource @param {AbortSignal} signal @returns {Promise<Read>} */
async function stateOf(resource, signal) {
  try {
    return readState(await readText(resource, "state.json", signal));
  } catch (error) {
    if (error instanceof Problem && error.status === 403) return "hidden";
    if (error instanceof Problem && [404, 416].includes(error.status)) return null;
    throw error;
  }
}

/** The resource, with the clock of the gateway; none if nobody ever locked it. @param {string} name @param {AbortSignal} signal */
async function resourceOf(name, signal) {
  try {
    return await getDated(at(["resources", name]), { signal });
  } catch (error) {
    // Any other refusal says nothing of the lock: it must not look as if that were free.
    if (error instanceof Problem && error.status === 404) return { data: null, now: NaN };
    throw error;
  }
}

/**
 * A job, of which the lock and the state were read one after the other. It may have gone on in between: lost is only a run that is
 * there before and after its lock was seen free.
 * @param {JobView} view @param {AbortSignal} signal @returns {Promise<JobView | null>}
 */
async function settled(view, signal) {
  if (statusOf(view) !== "lost") return view;
  const { resource: name } = view.job;
  const again = { ...view, resource: (await resourceOf(name, signal)).data };
  if (statusOf(again) !== "lost") return again;
  const state = await stateOf(name, signal);
  if (state === null || state === "hidden") return null;
  if (state.running?.id === view.state.running?.id) return again;
  return { ...view, state, resource: (await resourceOf(name, signal)).data };
}

/**
 * The jobs, and parts of jobs, whose names begin so.
 * @param {string} prefix @param {AbortSignal} signal @param {{ cache: Cache } | undefined} before
 */
export async function loadJobs(prefix, signal, before) {
  const { data, now } = await getDated(at(["resources"], { prefix: `job:${prefix}`, limit: SEEN }), { signal });
  const cache = /** @type {Cache} */ (new Map());
  let hidden = 0;
  const found = data.items.flatMap((/** @type {any} */ resource) => {
    const job = jobOf(resource.resource);
    return job ? [{ job, resource }] : [];
  });
  const views = await forEach(found, async (/** @type {{ job: JobName, resource: any }} */ { job, resource }) => {
    const known = before?.cache.get(job.resource);
    const isKnown = known !== undefined && known.version === resource.version;
    const state = isKnown ? known.state : await stateOf(job.resource, signal);
    cache.set(job.resource, { version: resource.version, state });
    if (state === "hidden") hidden++;
    return state === null || state === "hidden" ? null : settled({ job, state, resource, now }, signal);
  });
  return { views: views.filter((view) => view !== null), cache, hidden, isMore: Boolean(data.next_cursor), now };
}

/**
 * One job: how it is doing, its parts, who waits for orders, and what it was asked for.
 * @param {JobName} job @param {AbortSignal} signal @param {any} before
 */
export async function loadJob(job, signal, before) {
  const isWhole = job.part === null;
  const [state, { data: resource, now }, parts, agent, requests] = await Promise.all([
    stateOf(job.resource, signal),
    resourceOf(job.resource, signal),
    isWhole ? ifThere(loadJobs(`${job.name}@`, signal, before?.parts ?? undefined)) : null,
    isWhole ? ifThere(getDated(at(["resources", `job-agent:${job.name}`]), { signal })) : null,
    isWhole ? requestsOf(job.name, signal) : [],
  ]);
  const isSeen = state !== null && state !== "hidden";
  const view = isSeen ? await settled({ job, state, resource, now }, signal) : null;
  const isAgent = isHeld(agent?.data);
  return {
    view,
    resource,
    isHidden: state === "hidden",
    parts,
    agent: isAgent ? agent?.data : null,
    requests,
    now: isAgent ? agent?.now : now,
  };
}

/** @param {any} resource */
const isHeld = (resource) => resource != null && ["leased", "breaking"].includes(resource.state);

/** The requests for runs that wait, the oldest first: their ids sort as they were made. @param {string} name @param {AbortSignal} signal */
async function requestsOf(name, signal) {
  const inbox = `job-inbox:${name}`;
  const query = { prefix: "requests/", limit: REQUESTS_MAX };
  const found = await ifThere(get(at(["resources", inbox, "objects"], query), { signal }), { items: [] });
  return forEach(found.items, async (/** @type {any} */ { key }) => {
    const of = parsed((await ifThere(readText(inbox, key, signal))) ?? "null");
    const request = /** @type {Record<string, unknown>} */ (typeof of === "object" && of !== null ? of : {});
    const word = (/** @type {unknown} */ it) => (typeof it === "string" ? it : "");
    return {
      id: key.slice("requests/".length).replace(/\.json$/, ""),
      by: word(request.by),
      reason: word(request.reason),
      slot: word(request.slot),
      at: word(request.requested_at),
    };
  });
}

/** The records of some runs, as they stand; null: there is none. @param {JobName} job @param {string[]} stems @param {AbortSignal} signal */
export const loadRuns = (job, stems, signal) =>
  forEach(stems, async (stem) => {
    const record = await ifThere(readText(job.resource, `runs/${stem}.json`, signal));
    return record === null ? null : readRun(parsed(record));
  });

/** One run: its record, whether it is under way, what is kept of its output, and whether it left a checkpoint. @param {JobName} job @param {string} stem @param {AbortSignal} signal */
export async function loadRun(job, stem, signal) {
  const objects = (/** @type {string} */ prefix) =>
    ifThere(get(at(["resources", job.resource, "objects"], { prefix, limit: 10 }), { signal }), { items: [] });
  const [state, { data: resource, now }, logs, checkpoints] = await Promise.all([
    stateOf(job.resource, signal),
    resourceOf(job.resource, signal),
    objects(`runs/${stem}.log`),
    objects(`checkpoints/${stem.split(".")[0]}`),
  ]);
  const view = state !== null && state !== "hidden" ? await settled({ job, state, resource, now }, signal) : null;
  const [run] = await loadRuns(job, [stem], signal);
  const isLast = view !== null && view.state.running?.stem === stem;
  return {
    run,
    view: isLast ? view : null,
    status: isLast && run?.status === "started" ? statusOf(view) : run?.status,
    log: logs.items.find((/** @type {any} */ one) => one.key === `runs/${stem}.log`) ?? null,
    checkpoint:
      checkpoints.items.find((/** @type {any} */ one) => one.key === `checkpoints/${stem.split(".")[0]}`) ?? null,
  };
}
