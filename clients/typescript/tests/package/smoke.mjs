// A program of one's own with the installed package: a lock, writes, a loss, and what Node has beyond.

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { DELETE, Fencegate, LockLost, VERSION } from "fencegate";
import { job } from "fencegate/jobs";
import { download, file, fromEnv } from "fencegate/node";
import { fakeLock } from "fencegate/testing";

process.env.FENCE_URL = process.argv[2];
const fg = fromEnv();
const name = `smoke:${process.pid}`;
await fg.lock(name, { wait: "5s" }, async (lock) => {
  await lock.put("a.txt", "hello");
  await writeFile("scan.bin", "x".repeat(200_000));
  await lock.put("scan.bin", await file("scan.bin"));
  await lock.put("blob", new Blob(["blob"]));
  await download(fg, name, "scan.bin", "back.bin");
  assert.equal(await readFile("back.bin", "utf8"), "x".repeat(200_000));
  await lock.update("a.txt", () => DELETE);
});
const lock = await new Fencegate(process.argv[2]).acquire(name);
await fg.admin.break(name, "a test");
const error = await lock.put("a.txt", "late").catch((error) => error);
assert.ok(error instanceof LockLost && error.reason === "broken");
for await (const event of fg.events()) {
  assert.equal(event.type, "write");
  break;
}
const plain = new Fencegate(process.argv[2], { fetch });
await plain.lock(name, async (held) => assert.equal((await held.put("b", Buffer.alloc(100_000))).size, 100_000));
const nightly = job(fg, `smoke-${process.pid}`, { slot: "20261122T020000Z" });
const ends = [await nightly.run((run) => run.attempt), await nightly.run((run) => run.attempt)];
assert.deepEqual([ends[0].value, ends[0].run.program, ends[1].status], [1, "smoke.mjs", "done before"]);
fakeLock().lose();
assert.match(VERSION, /^\d/);
await fg.close();
