// What differs between platforms. This is what all of them have; Node has more (see `node/main.ts`).

import { isServer } from "../transport/runtime.js";

/** A value that goes along with all that a scope begins, as `AsyncLocalStorage` of Node does it. */
export interface Following<T> {
  run<R>(value: T, work: () => R): R;
  getStore(): T | undefined;
}

/** What a platform gives to clients. */
export interface Platform {
  /** What sends requests, unless the client is given another. */
  readonly fetch: () => typeof fetch;
  /** The name of the machine, or of the page. */
  readonly host: () => string;
  /** Of the process; 0 where there is none. */
  readonly pid: number;
  /** The name of the program, without its arguments, which may be secrets; `undefined`: there is none. */
  readonly program: string | undefined;
  /** What `User-Agent` says of it. */
  readonly runtime: string;
  /** Fills with random bytes; `undefined`: the usual source of the web does. */
  readonly fillRandom: ((bytes: Uint8Array<ArrayBuffer>) => unknown) | undefined;
  /** Lets a signal have as many listeners as there are calls, where the platform warns of more than a few. */
  readonly allowListeners: (signal: AbortSignal) => void;
  /** Knows which scope asks, where the platform can tell (CC19a). */
  readonly scopes: Following<readonly object[]> | undefined;
}

/** The platform of browsers and their like. */
export const webPlatform: Platform = {
  fetch: () => globalThis.fetch,
  host: () => globalThis.location?.host || "browser",
  pid: 0,
  program: undefined,
  runtime: isServer ? `node ${process.versions.node}` : "browser",
  fillRandom: undefined,
  allowListeners: () => {},
  scopes: undefined,
};
