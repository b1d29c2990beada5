// Calls the gateway's API, as any client does. The key that somebody signs in with stays in this tab, and goes with it.

const KEY = "fencegate-key";
/** How long a call may take before it counts as failed, in milliseconds. */
export const PATIENCE_MS = 3_000;
/** The gateway's root: the page is one folder below it, wherever a proxy has put both. */
const ROOT = new URL("../", location.href.split("#")[0]);

/** What the gateway says when it does not do what it is asked to: a problem document. */
export class Problem extends Error {
  /** @param {number} status @param {Record<string, any>} body */
  constructor(status, body) {
    super(body.title ?? `The gateway answered ${status}`);
    this.status = status;
    /** @type {string} */
    this.code = body.code ?? "";
    /** @type {string} */
    this.detail = body.detail ?? "";
    /** @type {string} */
    this.requestId = body.request_id ?? "";
  }
}

/** It did not answer at all, or not in time. */
export class NoAnswer extends Error {
  constructor() {
    super("The gateway does not answer");
  }
}

/** A browser would ask for something else, and show that in its place. */
export class Misleading extends Error {
  constructor() {
    super(
      "A name with a segment . or .. is not asked for here: a browser takes it for a way to another path. Tools of S3 read it",
    );
  }
}

/** The key of whoever has signed in. */
export const key = () => sessionStorage.getItem(KEY);

/** @param {string | null} text */
export function signIn(text) {
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}

/**
 * The address of something in the API. Each part becomes one segment of the path, also where it has what means something in
 * a path. But for `.` and `..`, which browsers follow under any spelling: keys of S3 may have them.
 * @param {string[]} parts
 * @param {Record<string, string | number | undefined | null>} [query]
 */
export function at(parts, query = {}) {
  if (parts.some((part) => part === "." || part === "..")) throw new Misleading();
  const url = new URL(parts.map(encodeURIComponent).join("/"), ROOT);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, String(value));
  }
  return url;
}

/**
 * The address of an object: the segments of its key are segments of the path.
 * @param {string} resource @param {string} object @param {Record<string, any>} [query]
 */
export const atObject = (resource, object, query) =>
  at(["resources", resource, "objects", ...object.split("/")], query);

/**
 * @param {string} method @param {URL} url
 * @param {{ body?: any, headers?: Record<string, string>, signal?: AbortSignal, within?: number }} [with_]
 */
async function call(method, url, { body, headers = {}, signal, within = PATIENCE_MS } = {}) {
  const credential = key();
  if (credential) headers.authorization = `Bearer ${credential}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  const late = AbortSignal.timeout(within);
  const options = {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: signal ? AbortSignal.any([signal, late]) : late,
    credentials: /** @type {const} */ ("same-origin"),
    cache: /** @type {const} */ ("no-store"),
  };
  let answer;
  try {
    answer = await fetch(url, options);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new NoAnswer();
  }
  if (answer.ok || (answer.status === 503 && url.pathname.endsWith("/readyz"))) return answer;
  throw new Problem(answer.status, await answer.json().catch(() => ({})));
}

/** @param {URL} url @param {Parameters<typeof call>[2]} [with_] @returns {Promise<any>} */
export async function get(url, with_) {
  return (await call("GET", url, { ...with_, headers: { accept: "application/json" } })).json();
}

/**
 * What is asked for, and the time at which the gateway answered, by its own clock, in milliseconds; NaN: it did not tell.
 * @param {URL} url @param {Parameters<typeof call>[2]} [with_] @returns {Promise<{ data: any, now: number }>}
 */
export async function getDated(url, with_) {
  const answer = await call("GET", url, { ...with_, headers: { accept: "application/json" } });
  return { now: Date.parse(answer.headers.get("date") ?? ""), data: await answer.json() };
}

/** The answer as it is. @param {URL} url @param {Parameters<typeof call>[2]} [with_] */
export const fetchRaw = (url, with_) => call("GET", url, with_);

/** @param {URL} url @param {any} body @returns {Promise<any>} */
export async function post(url, body) {
  const answer = await call("POST", url, { body, within: 15_000 });
  return answer.status === 204 ? null : answer.json().catch(() => null);
}

/** Writes an object, as the holder of a lock. @param {URL} url @param {any} body @param {{ id: string, token: string }} lock */
export const put = (url, body, { id, token }) =>
  call("PUT", url, { body, headers: { "x-fence-token": token, "x-lock-id": id }, within: 15_000 });

/** Gives a lock back; or sees to it that nobody will get one under this id. @param {string} id */
export const release = (id) => call("DELETE", at(["locks", id]), { within: 15_000 });

/**
 * What is asked for; or what is given here, if it is not there or may not be seen. Who must sign in first hears so.
 * @template T @param {Promise<T>} asked @param {any} [none]
 */
export const ifThere = (asked, none = null) =>
  asked.catch((error) => {
    if (error instanceof Problem && error.status < 500 && error.status !== 401) return none;
    throw error;
  });
