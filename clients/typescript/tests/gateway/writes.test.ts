// Writes and reads of a real gateway.

import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { mkdtemp, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { Changed, CursorVoid, DELETE, KEEP, LockLost, Misuse, NotFound, type FeedEvent } from "../../src/index.js";
import { download, file } from "../../src/node/index.js";
import { client, failure, fresh, gateway, until } from "./world.js";

test("a put tells all that became of it", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name);
  const first = await lock.put("total.txt", "total: 110", { contentType: "text/plain" });
  assert.deepEqual([first.resource, first.key, first.version, first.size], [name, "total.txt", 1, 10]);
  assert.deepEqual([first.created, first.replayed, first.receipt.number], [true, false, 1]);
  assert.equal(first.sha256, createHash("sha256").update("total: 110").digest("hex"));
  const second = await lock.put("total.txt", "total: 111");
  assert.deepEqual([second.created, second.receipt.number, second.receipt.attempts], [false, 2, 1]);
  const object = await fg.get(name, "total.txt");
  assert.deepEqual([object.text(), object.etag, object.version], ["total: 111", second.etag, 2]);
  assert.equal((await fg.get(name, "total.txt", { version: 2 })).etag, second.etag);
  const before = await failure(fg.get(name, "total.txt", { version: 1 }));
  assert.ok(before instanceof NotFound && before.code === "version-not-retained");
  assert.equal((await fg.operation(first.operation))?.outcome, "applied");
  await lock.release();
});

test("bytes go up as text, arrays, buffers, blobs, files and streams", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name);
  const bytes = randomBytes(200_000);
  const folder = await mkdtemp(join(tmpdir(), "fencegate-"));
  const path = join(folder, "scan.bin");
  await writeFile(path, bytes);
  const once = async function* () {
    yield bytes.subarray(0, 70_000);
    yield bytes.subarray(70_000);
  };
  const bodies = {
    array: new Uint8Array(bytes),
    view: new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength),
    buffer: bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer,
    blob: new Blob([bytes]),
    file: await file(path),
    iterable: once(),
    stream: new Blob([bytes]).stream(),
    replayable: { stream: once, size: bytes.length },
    unsized: { stream: once },
  };
  for (const [key, body] of Object.entries(bodies)) {
    const written = await lock.put(key, body);
    assert.equal(written.sha256, createHash("sha256").update(bytes).digest("hex"), key);
  }
  assert.deepEqual(Buffer.from((await fg.get(name, "file")).bytes), bytes);
  await writeFile(path, "something else");
  assert.ok((await failure(lock.put("file", bodies.file))) instanceof Misuse);
  assert.ok((await failure(lock.put("short", { stream: once, size: 200_001 }, { within: "1s" }))) instanceof Error);
  assert.ok((await failure(lock.put("none", 7 as never))) instanceof Misuse);
  await rm(folder, { recursive: true });
  await lock.release();
});

test("conditions hold, and a failed one says how it is", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name);
  const { etag } = await lock.put("k", "1", { ifAbsent: true });
  const absent = await failure(lock.put("k", "2", { ifAbsent: true }));
  assert.ok(absent instanceof Changed && absent.etag === etag && absent.version === 1);
  await lock.put("k", "2", { ifMatch: etag });
  assert.ok((await failure(lock.put("k", "3", { ifMatch: etag }))) instanceof Changed);
  assert.ok((await failure(lock.delete("k", { ifMatch: etag }))) instanceof Changed);
  assert.ok((await failure(lock.put("k", "3", { expectVersion: 9 }))) instanceof Changed);
  await lock.put("k", "3", { expectVersion: 2 });
  for (const ifMatch of ["", "x", '"x', "x\n"])
    assert.ok((await failure(lock.put("k", "4", { ifMatch }))) instanceof Misuse);
  await lock.release();
});

test("deletes take one object or all, and nothing twice", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name);
  for (const key of ["a", "b/c", "b/d"]) await lock.put(key, key);
  assert.equal((await lock.delete("a")).version, 4);
  assert.equal((await lock.delete("a")).version, undefined);
  assert.deepEqual(
    (await fg.list(name, { prefix: "b/" }).all()).map((one) => one.key),
    ["b/c", "b/d"],
  );
  await lock.deleteAll();
  assert.deepEqual(await fg.list(name).all(), []);
  const kinds = (await fg.versions(name).all()).map((one) => one.kind);
  assert.deepEqual(kinds, ["delete_all", "delete", "put", "put", "put"]);
  await lock.release();
});

test("a commit does all of it or nothing, over all resources of the lock", async () => {
  const [fg, orders, stock] = [await client(), fresh("orders"), fresh("stock")];
  const lock = await fg.acquire([orders, stock]);
  const { etag } = await lock.put("boxes", "98", { resource: stock });
  const commit = () =>
    lock
      .commit()
      .put(orders, "17.json", '{"boxes":1}', { ifAbsent: true, contentType: "application/json" })
      .put(stock, "boxes", new Blob(["97"]), { ifMatch: etag })
      .delete(orders, "draft.json");
  const done = await commit().send();
  assert.deepEqual(done.resources, [
    { resource: orders, version: 1 },
    { resource: stock, version: 2 },
  ]);
  assert.equal(done.results.length, 3);
  const refused = await failure(commit().send());
  assert.ok(refused instanceof Changed && refused.index === 0);
  assert.equal((await fg.get(stock, "boxes")).text(), "97");
  assert.ok((await failure(lock.commit().send())) instanceof Misuse);
  assert.ok((await failure(lock.commit().put("other", "k", "x").send())) instanceof Misuse);
  assert.ok((await failure(lock.commit().delete(stock, "k").delete(stock, "k").send())) instanceof Misuse);
  await lock.commit().expectVersion(stock, 2).delete(stock, "boxes").send();
  await lock.release();
});

test("an update reads, changes and writes, again if somebody was faster", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name, { numbers: false });
  const rival = fg.lent(name, { token: lock.token, id: lock.id });
  let rounds = 0;
  const written = await lock.update("count.txt", async (old) => {
    rounds += 1;
    if (rounds === 1) await rival.put("count.txt", "10");
    return String(Number(old?.text() ?? "0") + 1);
  });
  assert.deepEqual([rounds, written?.version], [2, 2]);
  assert.equal((await fg.get(name, "count.txt")).text(), "11");
  assert.equal(await lock.update("count.txt", () => KEEP), undefined);
  interface Stats {
    runs: number;
  }
  const count = (old: Stats | undefined): Stats => ({ runs: (old?.runs ?? 0) + 1 });
  await lock.updateJson<Stats>("stats.json", count);
  assert.deepEqual(await lock.updateJson<Stats>("stats.json", count), { runs: 2 });
  assert.ok((await failure(lock.updateJson("nan.json", () => ({ x: NaN })))) instanceof Misuse);
  await lock.updateJson<Stats>("stats.json", () => undefined);
  await lock.update("count.txt", () => DELETE);
  assert.deepEqual(await fg.list(name).all(), []);
  await lock.release();
  await fg.update(name, "visits.txt", (old) => `${old?.text() ?? ""}x`, { wait: "60s" });
  assert.equal((await fg.get(name, "visits.txt")).text(), "x");
});

test("a write with a key of one's own takes effect once", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name);
  const first = await lock.put("k", "paid", { idempotencyKey: "message-17" });
  const second = await lock.put("k", "paid", { idempotencyKey: "message-17" });
  assert.deepEqual([second.replayed, second.version], [true, first.version]);
  const reused = await failure(lock.put("k", "paid twice", { idempotencyKey: "message-17" }));
  assert.ok(reused instanceof Misuse && reused.code === "idempotency-key-reused");
  const before = await lock.once("message-17", () => assert.fail("it was done before"));
  assert.ok(before.done === "before" && before.operation.version === 1);
  const now = await lock.once("message-18", async () => lock.put("k", "more", { idempotencyKey: "message-18" }));
  assert.ok(now.done === "now" && now.value.version === 2);
  assert.equal((await fg.operationByKey(name, "message-18"))?.outcome, "applied");
  await lock.release();
});

test("writes at the same time all take effect, each once", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name);
  const writes = await Promise.all(Array.from({ length: 40 }, (_, at) => lock.put(`k${at}`, String(at))));
  assert.equal(new Set(writes.map((written) => written.version)).size, 40);
  await lock.release();
  const ordered = await fg.acquire(name, { ordered: true });
  const versions = await Promise.all(
    Array.from({ length: 10 }, async (_, at) => (await ordered.put("k", `${at}`)).version),
  );
  assert.deepEqual(
    versions,
    Array.from({ length: 10 }, (_, at) => 41 + at),
  );
  await ordered.release();
});

test("whole objects have a limit, and what is not there is not found", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name);
  await lock.put("k", "12345", { contentType: "text/plain" });
  assert.ok((await failure(fg.get(name, "k", { limit: 4 }))) instanceof Misuse);
  assert.ok((await failure(fg.get(name, "missing"))) instanceof NotFound);
  assert.equal(await fg.getIfPresent(name, "missing"), undefined);
  assert.ok((await failure(fg.head(name, "missing"))) instanceof NotFound);
  const head = await fg.head(name, "k");
  assert.deepEqual([head.size, head.contentType, head.version], [5, "text/plain", 1]);
  const part = await fg.open(name, "k", { range: [1, 3] });
  assert.deepEqual([part.status, await part.text()], [206, "234"]);
  await lock.put("text", "no JSON");
  const text = await fg.get(name, "text");
  assert.throws(() => text.json(), Misuse);
  await lock.release();
});

test("lists come page by page", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name);
  for (let at = 0; at < 7; at += 1) await lock.put(`k${at}`, "x");
  const keys: string[] = [];
  for await (const { key } of fg.list(name, { pageSize: 3 })) keys.push(key);
  assert.deepEqual(keys, ["k0", "k1", "k2", "k3", "k4", "k5", "k6"]);
  const page = await fg.list(name, { pageSize: 5 }).page();
  assert.equal(page.items.length, 5);
  assert.equal((await fg.list(name, { pageSize: 5 }).page(page.next_cursor!)).items.length, 2);
  assert.ok((await fg.locks().all()).some((one) => one.resource === name));
  assert.ok((await fg.resources({ prefix: name }).all()).length >= 1);
  await lock.release();
});

test("a large object goes up and down as a stream, in flat memory", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name);
  const size = 200 << 20;
  const piece = randomBytes(1 << 20);
  const hash = createHash("sha256");
  const folder = await mkdtemp(join(tmpdir(), "fencegate-"));
  let most = 0;
  const measure = (): void => void (most = Math.max(most, process.memoryUsage().rss));
  const stream = async function* () {
    for (let at = 0; at < size; at += piece.length) {
      measure();
      yield piece;
    }
  };
  for (let at = 0; at < size; at += piece.length) hash.update(piece);
  const expected = hash.digest("hex");
  const before = process.memoryUsage().rss;
  const written = await lock.put("large.bin", { stream, size });
  assert.equal(written.sha256, expected);
  const to = join(folder, "large.bin");
  const told = await download(fg, name, "large.bin", to, { onProgress: measure });
  assert.equal(told.size, size);
  const read = createHash("sha256")
    .update(await readFile(to))
    .digest("hex");
  assert.equal(read, expected);
  assert.ok(most - before < 100 << 20, `memory grew by ${(most - before) >> 20} MiB`);
  assert.deepEqual(await readdir(folder), ["large.bin"]);
  await rm(folder, { recursive: true });
  await lock.release();
});

test("a download that fails leaves the file as it was", async () => {
  const [fg, name] = [await client(), fresh()];
  const folder = await mkdtemp(join(tmpdir(), "fencegate-"));
  const path = join(folder, "f");
  await writeFile(path, "before");
  assert.ok((await failure(download(fg, name, "missing", path))) instanceof NotFound);
  assert.equal(await readFile(path, "utf8"), "before");
  assert.deepEqual(await readdir(folder), ["f"]);
  await rm(folder, { recursive: true });
});

test("each committed write is told once, in order, from any place", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name);
  const controller = new AbortController();
  const events = fg.events({ after: "now", signal: controller.signal });
  const first = events.next();
  // The place is known once the stream is open; writes go on until then.
  let isOpen = false;
  void first.then(() => (isOpen = true));
  for (let at = 0; !isOpen; at += 1) {
    await lock.put(`k${at}`, "x");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const seen: FeedEvent[] = [(await first).value as FeedEvent];
  await lock.put("last", "x");
  while (!(seen.at(-1)?.type === "write" && (seen.at(-1) as { write: { key?: string } }).write.key === "last")) {
    seen.push((await events.next()).value as FeedEvent);
  }
  const versions = seen.map((event) => (event.type === "write" ? event.write.version : NaN));
  assert.deepEqual(
    versions,
    [...versions].sort((one, other) => one - other),
  );
  const again = fg.events({ after: seen[0]!.cursor });
  assert.equal(((await again.next()).value as FeedEvent).cursor, seen[1]!.cursor);
  await again.return();
  const waiting = failure(events.next());
  controller.abort(new Error("enough"));
  assert.equal(((await waiting) as Error).message, "enough");
  assert.ok((await failure(fg.events({ after: "nonsense" }).next())) instanceof Misuse);
  const future = await failure(fg.events({ after: "g9-1" }).next());
  assert.ok(future instanceof CursorVoid || future instanceof Misuse, String(future));
  await lock.release();
});

test("operators stop writers, protect, break, and see what was done and refused", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name);
  await lock.put("k", "1");
  await fg.admin.freeze(name, "books are being closed");
  const frozen = await failure(lock.put("k", "2"));
  assert.ok((frozen as { kind?: string }).kind === "ResourceFrozen", String(frozen));
  const riding = lock.put("k", "3", { rideOut: true });
  await fg.admin.unfreeze(name, "books are closed");
  assert.ok((await riding).version >= 2);
  await fg.admin.protect(name, "to be kept until 2036");
  assert.equal(((await failure(lock.deleteAll())) as Misuse).code, "resource-protected");
  await fg.admin.unprotect(name, "2036 has come");
  await fg.admin.break(name, "worker-b hangs");
  const broken = await failure(lock.put("k", "4"));
  assert.ok(broken instanceof LockLost && broken.reason === "broken");
  const acts = (await fg.admin.audit({ resource: name }).all()).map((entry) => entry.action);
  assert.ok(["grant", "freeze", "unfreeze", "protect", "unprotect", "break"].every((act) => acts.includes(act)));
  await until(async () => {
    const refused = await fg.admin.rejections({ resource: name, code: "fence-token-broken" }).all();
    return refused.length === 1;
  });
  assert.deepEqual(await fg.admin.intents().all(), []);
  assert.deepEqual(await fg.admin.doubts(), []);
  const none = await failure(fg.admin.resolveDoubts("none", "nothing there"));
  assert.equal((none as NotFound).code, "upstream-not-found");
  assert.equal(((await failure(fg.admin.resolve(crypto.randomUUID(), "gone"))) as NotFound).class, "NotFound");
});

test("a gateway says what it is, and whether it is ready", async () => {
  const fg = await client();
  const status = await fg.status();
  assert.deepEqual([status.api, status.ledger], [1, "memory"]);
  assert.equal((await fg.ready()).ready, true);
  assert.match((await gateway()).url, /^http:/);
});
