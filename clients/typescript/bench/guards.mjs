// What guards cost: a cold start, memory of 1,000 guards, and renewals of 10,000 in batches.
//
//   FENCE_TEST_GATEWAY=.../fencegate node --expose-gc bench/guards.mjs

import { execFileSync } from "node:child_process";
import { Fencegate } from "../dist/node/main.js";
import { startGateway } from "../dist/testing/index.js";

const gateway = await startGateway();

// 1. From the start of a process to its first lock, and how much of that is Node itself.
const main = new URL("../dist/node/main.js", import.meta.url).href;
const first = `import { Fencegate } from ${JSON.stringify(main)};
const lock = await new Fencegate(process.argv[1]).acquire("cold:" + process.pid);
console.log(performance.now());
await lock.release();`;
const bare = "console.log(performance.now())";
const median = (numbers) => [...numbers].sort((one, other) => one - other)[Math.floor(numbers.length / 2)];
const started = (source) =>
  median(
    Array.from({ length: 9 }, () =>
      Number(execFileSync(process.execPath, ["--input-type=module", "-e", source, gateway.url], { encoding: "utf8" })),
    ),
  );
console.log(`cold start: ${started(first).toFixed(0)} ms to the first lock; Node alone ${started(bare).toFixed(0)} ms`);

// 2. and 3. Guards, and their renewals.
async function guards(count, ttl) {
  const renewals = { calls: 0, guards: 0 };
  const client = new Fencegate(gateway.url, {
    onEvent: (event) => {
      if (event.type === "renewed") renewals.guards += 1;
    },
  });
  const locks = [];
  globalThis.gc?.();
  const before = process.memoryUsage().heapUsed;
  while (locks.length < count) {
    const some = Array.from({ length: Math.min(100, count - locks.length) }, (_, at) =>
      client.acquire(`many:${count}:${locks.length + at}`, { ttl, watch: false }),
    );
    locks.push(...(await Promise.all(some)));
  }
  globalThis.gc?.();
  const bytes = (process.memoryUsage().heapUsed - before) / count;
  return { client, locks, bytes, renewals };
}

const thousand = await guards(1_000, "10m");
console.log(`1,000 guards: ${(thousand.bytes / 1024).toFixed(1)} KiB each`);
await thousand.client.close("30s");

const many = await guards(10_000, "60s");
const cpu = process.cpuUsage();
const beganMs = performance.now();
const renewedBefore = many.renewals.guards;
await new Promise((resolve) => setTimeout(resolve, 40_000));
const { user, system } = process.cpuUsage(cpu);
const renewed = many.renewals.guards - renewedBefore;
const held = many.locks.filter((lock) => lock.state === "held").length;
console.log(
  `10,000 guards of 60 s: ${held} are held after ${((performance.now() - beganMs) / 1000).toFixed(0)} s, ` +
    `${renewed} renewals, ${((user + system) / renewed).toFixed(0)} us of processor time for each`,
);
await gateway.kill();
process.exit(held === 10_000 ? 0 : 1);
