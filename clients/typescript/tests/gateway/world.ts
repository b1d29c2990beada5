// What tests against real gateways share: one gateway for a file, a name of its own for each test, and waiting for what
// is to become so.

import { after } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { type ClientOptions } from "../../src/index.js";
import { Fencegate } from "../../src/node/main.js";
import { startGateway, type Gateway } from "../../src/testing/index.js";

export { sleep };

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
export async function until(isSo: () => boolean | Promise<boolean>, withinMs = 10_000): Promise<void> {
  const endMs = performance.now() + withinMs;
  while (!(await isSo())) {
    if (performance.now() > endMs) throw new Error(`not so within ${withinMs} ms: ${isSo.toString()}`);
    await sleep(20);
  }
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
