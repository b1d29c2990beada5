// Numbers, times and states in words.

/** A length of time in its two largest units, such as `3 min 12 s`. @param {number} ms */
export function duration(ms) {
  const of = Math.abs(ms);
  if (of < 10_000) return `${(of / 1000).toFixed(of < 1000 ? 2 : 1)} s`;
  const units = /** @type {[string, number][]} */ ([
    ["d", 86_400],
    ["h", 3_600],
    ["min", 60],
    ["s", 1],
  ]);
  let seconds = Math.floor(of / 1000);
  const first = units.findIndex(([, size]) => seconds >= size);
  return units
    .slice(first, first + 2)
    .map(([unit, size]) => {
      const count = Math.floor(seconds / size);
      seconds -= count * size;
      return count > 0 ? `${count} ${unit}` : "";
    })
    .filter(Boolean)
    .join(" ");
}

/** @param {number} bytes */
export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let of = bytes;
  while (of >= 1024 && unit < units.length - 1) ((of /= 1024), unit++);
  return `${unit === 0 ? of : of.toFixed(of < 10 ? 1 : 0)} ${units[unit]}`;
}

/** @param {string} at */
export const clock = (at) => new Date(at).toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });

/** @param {number} count @param {string} one @param {string} [many] */
export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;

/** Of a lock whose deadline has passed: how it ends is not known yet. */
const EXPIRED = "expired, may come back";

/**
 * The state of a resource: a word that everybody knows, a mark that is told apart without its colour, and how bad it is.
 * @param {Record<string, any>} resource @param {number} passedMs How long ago that was heard.
 * @returns {{ word: string, mark: string, kind: string }}
 */
export function state(resource, passedMs = 0) {
  const left = remaining(resource, passedMs);
  switch (resource.state) {
    case "leased":
      if (left !== null && left <= 0) return { word: EXPIRED, mark: "◌", kind: "warn" };
      return { word: "held", mark: "●", kind: "good" };
    case "breaking": {
      const due = Math.max(0, (resource.breaks_in_ms ?? 0) - passedMs);
      return { word: `breaking: due in ${duration(due)}`, mark: "◐", kind: "bad" };
    }
    case "draining":
      return { word: "draining: requests of the last holder are under way", mark: "◔", kind: "warn" };
    case "expired":
      return { word: EXPIRED, mark: "◌", kind: "warn" };
    case "broken":
      return { word: "broken", mark: "✕", kind: "bad" };
    default:
      return { word: "free", mark: "○", kind: "idle" };
  }
}

/**
 * How much of a lock is left, in milliseconds: below 0 it has expired; null if it does not expire, or is none.
 * @param {Record<string, any>} resource @param {number} passedMs
 */
export function remaining(resource, passedMs) {
  const passed = Math.max(0, passedMs);
  // The gateway counts down to 0; since then it tells when the lock was renewed last.
  if (resource.state === "expired" && resource.ttl_ms != null)
    return Math.min(0, resource.ttl_ms - resource.renewed_ms_ago) - passed;
  const left = resource.expires_in_ms;
  return left == null ? null : left - passed;
}

/** Counts a list of locks, each kind by its name. @param {any[]} locks */
export function counted(locks) {
  const names = { leased: "held", breaking: "breaking", draining: "draining", expired: EXPIRED, broken: "broken" };
  const count = (/** @type {string} */ state) => locks.filter((lock) => lock.state === state).length;
  const counts = Object.entries(names).map(([state, name]) => ({ name, count: count(state) }));
  const known = counts.filter(({ name, count }) => count > 0 || name === "held");
  return known.map(({ name, count }) => `${count} ${name}`).join(" · ");
}

/** Whether somebody holds it. @param {Record<string, any>} resource */
export const isHeld = (resource) => ["leased", "breaking", "draining"].includes(resource.state);

/** What is done to a resource, for the audit. */
const DONE = /** @type {Record<string, string>} */ ({
  grant: "granted",
  transfer: "handed over",
  break: "break asked for",
  broken: "broken",
  freeze: "frozen",
  unfreeze: "unfrozen",
  protect: "protected",
  unprotect: "protection lifted",
  fence: "fence set",
  resolve: "request resolved",
  refence: "re-fenced: all tokens void",
  epoch: "new epoch",
  adopt: "promoted server adopted",
  agree: "settings agreed on",
  access: "rules of access changed",
  denied: "refused by rules of access",
  "auth-failed": "credential refused",
  fork: "audit has been changed",
});
/** @param {string} action */
export const done = (action) => DONE[action] ?? action;

/** As a word for a shell. @param {string} text */
export const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
