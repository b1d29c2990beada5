// Processor time of a put of 1 KiB through a guard, beside the same PUT by hand with plain `fetch`: one connection, five
// rounds in turn. Fails if a guard costs more than 1.3 times of it.
//
//   FENCE_TEST_GATEWAY=.../fencegate node bench/puts.mjs

import { randomUUID } from "node:crypto";
import { Fencegate } from "../dist/node/main.js";
import { startGateway } from "../dist/testing/index.js";

const PUTS = 2_000;
const ROUNDS = 5;
const MOST = 1.3;

const gateway = await startGateway();
const body = Buffer.alloc(1024, "x");

async function micros(work) {
  const before = process.cpuUsage();
  for (let at = 0; at < PUTS; at += 1) await work(at);
  const { user, system } = process.cpuUsage(before);
  return (user + system) / PUTS;
}

function byGuard(lock) {
  return () => lock.put("a.bin", body);
}

function byHand(lock) {
  const url = `${gateway.url}/resources/${lock.resources[0]}/objects/a.bin`;
  const headers = { "content-type": "application/octet-stream", ...lock.headers() };
  return async () => {
    const response = await fetch(url, { method: "PUT", headers, body });
    if (!response.ok) throw new Error(String(response.status));
    await response.json();
  };
}

async function locked(options) {
  const client = new Fencegate(gateway.url, options);
  return client.acquire(randomUUID(), { ttl: "10m", watch: false });
}

// Kept until the end: a guard that nobody has any more gives its lock back.
const locks = [await locked({}), await locked({}), await locked({ fetch })];
const contenders = {
  "by hand, with fetch": byHand(locks[0]),
  "through a guard": byGuard(locks[1]),
  "through a guard, with fetch": byGuard(locks[2]),
};
const results = Object.fromEntries(Object.keys(contenders).map((name) => [name, []]));
for (const work of Object.values(contenders)) await micros(work);
for (let round = 0; round < ROUNDS; round += 1) {
  for (const [name, work] of Object.entries(contenders)) results[name].push(await micros(work));
}
const median = (numbers) => [...numbers].sort((one, other) => one - other)[Math.floor(numbers.length / 2)];
const baseline = median(results["by hand, with fetch"]);
for (const [name, numbers] of Object.entries(results)) {
  const ratio = (median(numbers) / baseline).toFixed(2);
  console.log(
    `${name}: ${median(numbers).toFixed(0)} us (${numbers.map((one) => one.toFixed(0)).join(" ")}), ${ratio}`,
  );
}
for (const lock of locks) await lock.release();
await gateway.kill();
process.exitCode = median(results["through a guard"]) / baseline > MOST ? 1 : 0;
