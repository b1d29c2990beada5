// What is shown follows what is there: views ask again and again while somebody looks, and what is old says how old.
import { useCallback, useEffect, useRef, useState } from "./vendor/hooks.js";
import { NoAnswer, Problem } from "./api.js";

/** Something that many look at, and that can change. @template T */
export class Watched {
  /** @param {T} value */
  constructor(value) {
    this.value = value;
    /** @type {Set<(value: T) => void>} */
    this.seen = new Set();
  }
  /** @param {T} value */
  set(value) {
    this.value = value;
    for (const tell of this.seen) tell(value);
  }
}

/** @template T @param {Watched<T>} watched @returns {T} */
export function useWatched(watched) {
  const [value, setValue] = useState(watched.value);
  useEffect(() => {
    setValue(watched.value);
    watched.seen.add(setValue);
    return () => void watched.seen.delete(setValue);
  }, [watched]);
  return value;
}

/** Whether nothing is to be asked for: somebody pressed the button. */
export const paused = new Watched(false);
/** Since when the gateway does not answer; null while it does. By this page's own clock, in milliseconds. */
export const silentSince = new Watched(/** @type {number | null} */ (null));
/** Whether the gateway wants to know who asks. */
export const needsKey = new Watched(false);

/** @param {unknown} error */
function tellOf(error) {
  if (error instanceof NoAnswer) {
    if (silentSince.value === null) silentSince.set(performance.now());
    return;
  }
  if (silentSince.value !== null) silentSince.set(null);
  if (error instanceof Problem && error.status === 401) needsKey.set(true);
}

/** Resolves once somebody looks: the tab is seen, and nothing is paused. @param {AbortSignal} signal */
async function somebodyLooks(signal) {
  while ((document.hidden || paused.value) && !signal.aborted) {
    await new Promise((resolve) => {
      const look = () => {
        document.removeEventListener("visibilitychange", look);
        paused.seen.delete(look);
        signal.removeEventListener("abort", look);
        resolve(undefined);
      };
      document.addEventListener("visibilitychange", look);
      paused.seen.add(look);
      signal.addEventListener("abort", look);
    });
  }
}

/** @param {number} ms @param {AbortSignal} signal */
const sleep = (ms, signal) =>
  new Promise((resolve) => {
    // A view may be open for months: nothing is left behind by a pause.
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve(undefined);
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
  });

/**
 * @template T
 * @typedef {{ data: T | undefined, at: number, error: Error | null, reload: () => void }} Live
 */

/**
 * Loads something, and loads it again every so often while somebody looks. What was loaded stays while it cannot be loaded
 * again, with the time at which it came.
 * @template T
 * @param {(signal: AbortSignal, before: T | undefined) => Promise<T>} load
 * @param {number} everyMs
 * @param {any[]} of What it is about: once that changes, what was loaded is of no use.
 * @returns {Live<T>}
 */
export function useLive(load, everyMs, of) {
  const [state, setState] = useState({
    data: /** @type {T | undefined} */ (undefined),
    at: 0,
    error: /** @type {Error | null} */ (null),
  });
  const [again, setAgain] = useState(0);
  const current = useRef(load);
  current.current = load;
  const about = JSON.stringify(of);
  const last = useRef({ about, data: /** @type {T | undefined} */ (undefined) });
  useEffect(() => {
    const ends = new AbortController();
    const { signal } = ends;
    if (last.current.about !== about) {
      last.current = { about, data: undefined };
      setState({ data: undefined, at: 0, error: null });
    }
    (async () => {
      let isFirst = true;
      while (!signal.aborted) {
        if (!isFirst) await somebodyLooks(signal);
        if (signal.aborted) return;
        isFirst = false;
        try {
          const data = await current.current(signal, last.current.data);
          if (signal.aborted) return;
          last.current.data = data;
          tellOf(null);
          setState({ data, at: performance.now(), error: null });
        } catch (error) {
          if (signal.aborted) return;
          tellOf(error);
          setState((before) => ({ ...before, error: /** @type {Error} */ (error) }));
        }
        if (everyMs === Infinity) return;
        await sleep(everyMs, signal);
      }
    })();
    return () => ends.abort();
  }, [about, everyMs, again]);
  return { ...state, reload: useCallback(() => setAgain((count) => count + 1), []) };
}

/** Makes its component draw itself anew every so often, while somebody looks. Returns this page's own time, in milliseconds. @param {number} everyMs */
export function useNow(everyMs) {
  const [now, setNow] = useState(performance.now());
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) setNow(performance.now());
    }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

/** What a reader of the screen hears: at most one sentence in ten seconds. */
export const said = new Watched("");
let saidAt = -Infinity;
/** @param {string} text */
export function announce(text) {
  if (performance.now() - saidAt < 10_000) return;
  saidAt = performance.now();
  said.set(text);
}
