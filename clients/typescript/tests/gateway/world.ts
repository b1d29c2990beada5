// What tests against real gateways share: one gateway for a file, a name of its own for each test, and waiting for what
// is to become so.

import { join } from "node:path";
import { after } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { type ClientOptions } from "../../src/index.js";
import { Fencegate } from "../../src/node/main.js";
import { startGateway, type Gateway } from "../../src/testing/index.js";
import { clientsFolder } from "../vectors/load.js";

export { sleep };

/** What takes longer hangs: how soon something comes says nothing. */
const HANGS_MS = 120_000;

/** The tests of a file take less by far. It ends by itself before that, unless something keeps it alive. */
const FILE_HANGS_MS = 10 * 60_000;

setTimeout(() => {
  console.error(`this file does not end; its process is kept alive by: ${process.getActiveResourcesInfo().join(", ")}`);
  process.exit(1);
}, FILE_HANGS_MS).unref();

let started: Promise<Gateway> | undefined;
const clients: Fencegate[] = [];
let names = 0;

/** The gateway of this file. */
export function gateway(): Promise<Gateway> {
  started ??= startGateway();
  return started;
}

/** A client of it. */
export async function client(options: ClientOptions = {}): Promise<Fencegate> {
  const made = new Fencegate((await gateway()).url, options);
  clients.push(made);
  return made;
}

/** A name that no other test has. */
export function fresh(what = "r"): string {
  names += 1;
  return `${what}:${process.pid}.${names}`;
}

/** Waits until it is so. */
export async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
  const endMs = performance.now() + HANGS_MS;
  while (!(await isSo())) {
    if (performance.now() > endMs) throw new Error(`it never is so: ${isSo.toString()}`);
    await sleep(20);
  }
}

/** What a promise gives, unless it hangs. */
export async function unlessItHangs<T>(promise: Promise<T>): Promise<T> {
  const controller = new AbortController();
  const late = sleep(HANGS_MS, undefined, { signal: controller.signal }).then(() => {
    throw new Error("it hangs");
  });
  late.catch(() => {});
  try {
    return await Promise.race([promise, late]);
  } finally {
    controller.abort();
  }
}

/** Waits for the abort of a signal, which may have come before. */
export async function aborted(signal: AbortSignal): Promise<void> {
  await until(() => signal.aborted);
}

/** A port that no other test takes as long as this process lives. */
export async function reservedPort(): Promise<number> {
  const path = join(clientsFolder(), "../tests/ports.mjs");
  const ports = (await import(path)) as { reservedPort: () => Promise<number> };
  return ports.reservedPort();
}

/** What a promise fails with. */
export async function failure(promise: Promise<unknown>): Promise<unknown> {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("it did not fail");
}

after(async () => {
  await Promise.all(clients.map((one) => one.close("1s")));
  await (await started)?.kill();
});
