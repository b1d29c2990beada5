// Asks for a run of a job: a request in its inbox, for the agent that waits for it there.
import { at, atObject, get, post, put, release } from "../api.js";
import { REQUESTS_MAX } from "./load.js";

/** How long the lock of an inbox lasts, and is waited for: whoever has it has it for a moment. */
const [TTL, WAIT] = ["15s", "10s"];
/** The longest reason. */
export const REASON_CHARS_MAX = 500;

/** Bytes that nobody guesses. `crypto.randomUUID` is there only where the page comes over TLS, or from this machine. */
const random = () => crypto.getRandomValues(new Uint8Array(16));

/** @param {Uint8Array} bytes @param {number} version */
function uuid(bytes, version) {
  bytes[6] = (version << 4) | (bytes[6] & 0x0f);
  bytes[8] = 0x80 | (bytes[8] & 0x3f);
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

/** An id that sorts as it was made (UUID version 7). @param {number} now In milliseconds. */
export function timedId(now) {
  const bytes = random();
  for (let at = 0; at < 6; at++) bytes[at] = Math.floor(now / 256 ** (5 - at)) % 256;
  return uuid(bytes, 7);
}

/** Whose locks and requests those of this page are. Each tab is somebody of its own. */
const TAB = uuid(random(), 4).slice(-4);
/** @param {string | null | undefined} principal */
export const ownerOf = (principal) => ["page", principal?.slice(0, 100), TAB].filter(Boolean).join(":");

/**
 * What an agent is asked for.
 * @param {{ id: string, job: string, slot: string | null, resume: boolean, reason: string, by: string, now: number }} wish
 */
export const requestOf = ({ id, job, slot, resume, reason, by, now }) => ({
  v: 1,
  request: id,
  job,
  ...(slot === null ? {} : { slot }),
  resume,
  reason,
  by,
  requested_at: new Date(now).toISOString(),
});

/**
 * Puts it into the inbox, under a short lock of that. The same request may be sent again: it is run once, whatever became of it.
 * @param {ReturnType<typeof requestOf>} request
 */
export async function send(request) {
  const inbox = `job-inbox:${request.job}`;
  const key = `requests/${request.request}.json`;
  const id = uuid(random(), 4);
  try {
    const lock = await post(at(["locks"]), { id, owner: request.by, resource: inbox, ttl: TTL, wait: WAIT });
    const query = { prefix: "requests/", limit: REQUESTS_MAX };
    const waiting = (await get(at(["resources", inbox, "objects"], query))).items;
    const isThere = waiting.some((/** @type {any} */ one) => one.key === key);
    if (waiting.length >= REQUESTS_MAX && !isThere) throw new Error(`${REQUESTS_MAX} requests wait already.`);
    await put(atObject(inbox, key), request, lock);
  } finally {
    // Also if nobody knows whether it was granted. What is not given back here ends by itself.
    await release(id).catch(() => {});
  }
  return request;
}
