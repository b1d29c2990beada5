// What Node gives to clients: its own HTTP client in the place of `fetch`, and what it knows of machine and scopes.

import { AsyncLocalStorage } from "node:async_hooks";
import { randomFillSync } from "node:crypto";
import { setMaxListeners } from "node:events";
import { hostname } from "node:os";
import { basename } from "node:path";
import type { Platform } from "../client/platform.js";
import { nodeFetch } from "./http.js";

export const nodePlatform: Platform = {
  fetch: () => nodeFetch(),
  host: hostname,
  pid: process.pid,
  program: basename(process.argv[1] ?? process.execPath),
  runtime: `node ${process.versions.node}`,
  // Node 18 has no global `crypto`.
  fillRandom: randomFillSync,
  allowListeners: (signal) => setMaxListeners(0, signal),
  scopes: new AsyncLocalStorage(),
};
