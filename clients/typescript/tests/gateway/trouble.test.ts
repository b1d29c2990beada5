// What becomes of locks and writes when processes, gateways and event loops stand still or go away.

import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, test } from "node:test";
import { Busy, LockLost, OutcomeUnknown, Unavailable, type ClientEvent, type FeedEvent } from "../../src/index.js";
import { fromEnv, nodeFetch, tokenInFile } from "../../src/node/index.js";
import { Fencegate } from "../../src/node/main.js";
import { fakeLock } from "../../src/testing/index.js";
import { client, failure, fresh, gateway, reservedPort, sleep, until } from "./world.js";

const children: ChildProcess[] = [];
after(() => children.forEach((child) => child.kill("SIGKILL")));

/** A gateway that keeps what it knows in a folder, at a fixed address. */
async function serve(folder: string, port: number): Promise<ChildProcess> {
  const args = ["serve", "--listen", `127.0.0.1:${port}`, "--data-dir", join(folder, "data")];
  const program = process.env["FENCE_TEST_GATEWAY"] ?? "fencegate";
  const child = spawn(program, args, { cwd: folder, stdio: "ignore" });
  children.push(child);
  const url = `http://127.0.0.1:${port}/healthz`;
  await until(async () => (await fetch(url).catch(() => undefined))?.ok ?? false);
  return child;
}

async function stop(child: ChildProcess, signal: NodeJS.Signals = "SIGKILL"): Promise<void> {
  const gone = once(child, "exit");
  child.kill(signal);
  await gone;
}

/** A program of one module, run beside this one; its lines come one after another. */
function run(source: string, ...args: string[]): { child: ChildProcess; line: () => Promise<string | undefined> } {
  const main = new URL("../../src/node/main.js", import.meta.url).href;
  const text = `import { Fencegate, LockLost } from ${JSON.stringify(main)};\n${source}`;
  const child = spawn(process.execPath, ["--expose-gc", "--input-type=module", "-e", text, ...args], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  children.push(child);
  const lines = createInterface({ input: child.stdout! })[Symbol.asyncIterator]();
  return { child, line: async () => (await lines.next()).value as string | undefined };
}

test("a holder that was stopped for two ttls is told as lost, before anything of it is sent", async () => {
  const [fg, name] = [await client(), fresh()];
  const source = `
    const fg = new Fencegate(process.argv[1]);
    const lock = await fg.acquire(process.argv[2], { ttl: "1s" });
    console.log("held");
    while (lock.signal.aborted === false) await new Promise((resolve) => setTimeout(resolve, 10));
    const error = await lock.put("k", "late").catch((error) => error);
    console.log(error instanceof LockLost ? error.reason : String(error));
    process.exit(0);
  `;
  const { child, line } = run(source, (await gateway()).url, name);
  assert.equal(await line(), "held");
  child.kill("SIGSTOP");
  await sleep(2_100);
  const rival = await fg.acquire(name, { wait: "60s" });
  await rival.put("k", "the rival's");
  child.kill("SIGCONT");
  assert.equal(await line(), "unconfirmed");
  assert.equal((await fg.get(name, "k")).text(), "the rival's");
  await rival.release();
});

test("a loop that is blocked renews nothing, and learns of it with its next line", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name, { ttl: "1s" });
  const endMs = performance.now() + 2_100;
  while (performance.now() < endMs);
  assert.throws(() => lock.check(), LockLost);
  assert.deepEqual([lock.state, lock.lostReason, lock.signal.aborted], ["lost", "unconfirmed", true]);
  assert.ok((await failure(lock.put("k", "late"))) instanceof LockLost);
});

test("a guard that nobody has any more is released", async () => {
  assert.ok(globalThis.gc !== undefined, "this test needs --expose-gc");
  const [fg, name] = [await client(), fresh()];
  const forget = async (): Promise<void> => {
    await fg.acquire(name);
  };
  await forget();
  assert.equal((await fg.resource(name)).state, "leased");
  await until(async () => {
    globalThis.gc?.();
    await sleep(10);
    return (await fg.resource(name)).state === "released";
  });
});

test("a guard that is kept in an open scope is not collected", async () => {
  const [fg, name] = [await client(), fresh()];
  await fg.lock(name, { ttl: "30s" }, async () => {
    for (let turn = 0; turn < 20; turn += 1) {
      globalThis.gc?.();
      await sleep(20);
    }
    assert.equal((await fg.resource(name)).state, "leased");
  });
});

test("a forgotten guard does not keep a process alive, and an open scope does", async () => {
  const [fg, name, other] = [await client(), fresh(), fresh()];
  const forgotten = run(
    `globalThis.lock = await new Fencegate(process.argv[1]).acquire(process.argv[2], { ttl: "10m" });
     console.log("held");
     // By then the events of the lock are followed.
     setTimeout(() => console.log("the end"), 5500);`,
    (await gateway()).url,
    name,
  );
  assert.equal(await forgotten.line(), "held");
  assert.equal(await forgotten.line(), "the end");
  const [code] = (await once(forgotten.child, "exit")) as [number];
  assert.equal(code, 0);
  const open = run(
    `await new Fencegate(process.argv[1]).lock(process.argv[2], { ttl: "9s", watch: false }, async (lock) => {
       console.log("held");
       await new Promise((resolve) => lock.signal.addEventListener("abort", resolve));
     }).catch((error) => console.log(error.reason));`,
    (await gateway()).url,
    other,
  );
  assert.equal(await open.line(), "held");
  await fg.admin.break(other, "enough");
  assert.equal(await open.line(), "broken");
});

test("no rejection is ever unhandled", async () => {
  const name = fresh();
  const { child, line } = run(
    `process.on("unhandledRejection", (error) => { console.log("unhandled", error); process.exit(1); });
     process.on("warning", (warning) => { console.log("warned", warning); process.exit(1); });
     const calm = new Fencegate(process.argv[1]);
     const fg = new Fencegate(process.argv[1], { answerTimeout: "300ms", callTimeout: "60s", writeTimeout: "500ms" });
     const lock = await fg.acquire(process.argv[2], { ttl: "1s" });
     const rest = [
       lock.put("k", "x"),
       lock.transfer("b"),
       fg.acquire("other", { wait: "1s", signal: AbortSignal.timeout(50) }),
       fg.get("r", "k", { signal: AbortSignal.timeout(1) }),
       fg.elect("e", () => Promise.reject(new Error("own"))),
     ];
     await Promise.allSettled(rest);
     const { signal } = new AbortController();
     const many = await Promise.all(Array.from({ length: 30 }, (_, at) => calm.acquire("m" + at, { signal })));
     await Promise.all(many.map((one) => one.put("k", "x", { signal })));
     await Promise.all(many.map((one) => one.release()));
     console.log("up");
     await new Promise((resolve) => setTimeout(resolve, 2500));
     await fg.close("100ms");
     console.log("done");
     process.exit(0);`,
    (await gateway()).url,
    name,
  );
  assert.equal(await line(), "up");
  await (await gateway()).pause();
  try {
    assert.equal(await line(), "done");
  } finally {
    (await gateway()).resume();
  }
  if (child.exitCode === null) await once(child, "exit");
});

test("a gateway that answers nothing: the guard is uncertain, holds on, and is held again", async () => {
  const events: ClientEvent[] = [];
  const fg = await client({ onEvent: (event) => events.push(event) });
  const lock = await fg.acquire(fresh(), { ttl: "1s", onUncertain: "hold" });
  await (await gateway()).pause();
  try {
    await until(() => lock.state === "uncertain");
    assert.equal(lock.signal.aborted, false);
  } finally {
    (await gateway()).resume();
  }
  await until(() => lock.state === "held");
  assert.ok(events.some((event) => event.type === "revived") && events.some((event) => event.type === "expiring"));
  await lock.put("k", "still mine");
  await lock.release();
});

test("a write that nobody answers is unknown, and is resolved once somebody does", async () => {
  const [fg, name] = [await client({ answerTimeout: "200ms" }), fresh()];
  const lock = await fg.acquire(name, { onUncertain: "hold" });
  await fg.status();
  await (await gateway()).pause();
  let error: unknown;
  try {
    error = await failure(lock.put("k", "hello", { within: "2s" }));
  } finally {
    (await gateway()).resume();
  }
  assert.ok(error instanceof OutcomeUnknown && error.resource === name && error.key !== undefined, String(error));
  // What the gateway had not begun when the caller hung up may never begin.
  const settled = await error.resolve();
  const stored = await fg.getIfPresent(name, "k");
  assert.equal(settled.outcome, stored === undefined ? "not_applied" : "applied");
  if (stored !== undefined) assert.equal(stored.text(), "hello");
  await lock.release();
});

test("a write that is given up with its lock is known for good", async () => {
  const [fg, name] = [await client({ answerTimeout: "200ms" }), fresh()];
  const lock = await fg.acquire(name, { onUncertain: "hold" });
  await (await gateway()).pause();
  let error: unknown;
  try {
    error = await failure(lock.put("k", "hello", { within: "2s" }));
  } finally {
    (await gateway()).resume();
  }
  assert.ok(error instanceof OutcomeUnknown);
  const settled = await error.abandon();
  assert.equal(lock.state, "released");
  const stored = await fg.getIfPresent(name, "k");
  assert.equal(settled.outcome, stored === undefined ? "not_applied" : "applied");
});

test("nobody there: nothing was applied, and that is certain", async () => {
  const fg = new Fencegate(`http://127.0.0.1:${await reservedPort()}`, { callTimeout: "2s" });
  const error = await failure(fg.acquire("r"));
  assert.ok(error instanceof Unavailable, String(error));
  const plain = new Fencegate(`http://127.0.0.1:${await reservedPort()}`, { callTimeout: "2s", fetch });
  assert.ok((await failure(plain.acquire("r"))) instanceof Unavailable);
});

test("the next gateway is asked where the first is not there", async () => {
  const name = fresh();
  const fg = new Fencegate([`http://127.0.0.1:${await reservedPort()}`, (await gateway()).url]);
  assert.equal(await fg.lock(name, async (lock) => (await lock.put("k", "x")).version), 1);
});

test("waiting, writing and following go on across a restart of the gateway", async () => {
  const folder = await mkdtemp(join(tmpdir(), "fencegate-"));
  const port = await reservedPort();
  let server = serve(folder, port);
  await server;
  const fg = new Fencegate(`http://127.0.0.1:${port}`);
  const lock = await fg.acquire("r", { ttl: "10m" });
  const first = await lock.put("k", "1");
  const events = fg.events();
  assert.equal(((await events.next()).value as FeedEvent).type, "write");
  // 1. A waiter keeps its place, and an upload that is cut in the middle is sent again.
  const waiting = fg.acquire("r", { wait: "forever" });
  const size = 8 << 20;
  const body = Buffer.alloc(size, "x");
  let attempts = 0;
  const stream = async function* () {
    attempts += 1;
    yield body.subarray(0, size / 2);
    if (attempts === 1) {
      await stop(await server);
      server = serve(folder, port);
    }
    yield body.subarray(size / 2);
  };
  const next = events.next();
  const written = await lock.put("large", { stream, size });
  assert.ok(attempts >= 2);
  assert.equal(written.version, first.version + 1);
  assert.equal(written.sha256, createHash("sha256").update(body).digest("hex"));
  // 2. The feed goes on behind what it told.
  const event = (await next).value as FeedEvent;
  assert.ok(event.type === "write" && event.write.version === 2);
  await events.return();
  // 3. The waiter gets the lock, and is not the one before.
  await lock.release();
  const second = await waiting;
  assert.ok(BigInt(second.token) > BigInt(lock.token));
  await second.put("k", "2");
  await second.release();
  await fg.close("1s");
  await stop(await server, "SIGTERM");
  await rm(folder, { recursive: true });
});

test("a held lock survives a restart that is shorter than its ttl", async () => {
  const folder = await mkdtemp(join(tmpdir(), "fencegate-"));
  const port = await reservedPort();
  const server = await serve(folder, port);
  let renewals = 0;
  const fg = new Fencegate(`http://127.0.0.1:${port}`, {
    onEvent: (event) => void (renewals += Number(event.type === "renewed")),
  });
  const lock = await fg.acquire("r", { ttl: "20s" });
  await stop(server);
  const [again, before] = [await serve(folder, port), renewals];
  await until(() => lock.state !== "held" || renewals > before);
  assert.equal(lock.state, "held");
  await lock.put("k", "still mine");
  assert.ok((await failure(fg.acquire("r"))) instanceof Busy);
  await lock.release();
  await fg.close("1s");
  await stop(again);
  await rm(folder, { recursive: true });
});

test("a lock without a gateway shows work how a loss is told", async () => {
  const lock = fakeLock("invoices:2026", { token: "7" });
  assert.deepEqual([lock.token, lock.state, lock.headers()["X-Fence-Token"]], ["7", "held", "7"]);
  const error = await failure(lock.put("k", "x"));
  assert.match(String(error), /fake lock/);
  lock.lose("broken");
  assert.ok(lock.signal.aborted && (lock.signal.reason as LockLost).reason === "broken");
  assert.throws(() => lock.check(), LockLost);
});

test("the environment describes a client", async () => {
  const before = { ...process.env };
  const folder = await mkdtemp(join(tmpdir(), "fencegate-"));
  try {
    delete process.env["FENCE_URL"];
    assert.throws(() => fromEnv(), /FENCE_URL/);
    process.env["FENCE_URL"] = (await gateway()).url;
    process.env["FENCE_OWNER"] = "from-env";
    process.env["FENCE_AUTH_TOKEN_FILE"] = join(folder, "token");
    const fg = fromEnv();
    const missing = await failure(fg.status());
    assert.equal((missing as Error).name, "Denied");
    await writeFile(join(folder, "token"), " \n");
    assert.match(String(await failure(tokenInFile(join(folder, "token"))())), /is empty/);
    await writeFile(join(folder, "token"), "secret\n");
    assert.equal((await fg.status()).api, 1);
    assert.equal(fg.owner, "from-env");
    const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (const [named, sent] of [
      [trace, trace],
      ["00-nonsense", null],
      [trace.toUpperCase(), null],
    ] as const) {
      process.env["TRACEPARENT"] = named;
      let seen: string | null = "nothing was sent";
      const send: typeof fetch = (input, init) => {
        seen = new Headers(init?.headers).get("traceparent");
        return fetch(input, init);
      };
      assert.equal((await fromEnv({ fetch: send }).status()).api, 1);
      assert.equal(seen, sent);
    }
    process.env["FENCE_AUTH_TOKEN"] = "another";
    assert.throws(() => fromEnv(), /one of them/);
    delete process.env["FENCE_AUTH_TOKEN"];
    process.env["FENCE_CERT_FILE"] = join(folder, "token");
    assert.throws(() => fromEnv(), /both or none/);
    process.env["FENCE_CA_FILE"] = join(folder, "missing");
    assert.throws(() => fromEnv(), /FENCE_C/);
    assert.equal(await readFile(join(folder, "token"), "utf8"), "secret\n");
  } finally {
    process.env = before;
    await rm(folder, { recursive: true });
  }
});

test("both transports of Node do the same", async () => {
  for (const send of [fetch, nodeFetch()]) {
    const [fg, name] = [await client({ fetch: send }), fresh()];
    const lock = await fg.acquire(name);
    const large = Buffer.alloc(3 << 20, "y");
    await lock.put("large", large);
    await lock.put("blob", new Blob([large]));
    assert.equal((await fg.get(name, "large")).size, large.length);
    assert.equal((await fg.head(name, "blob")).size, large.length);
    assert.equal((await (await fg.open(name, "blob")).blob()).size, large.length);
    await lock.release();
  }
});

test("neither tokens nor ids are shown by what is printed or told", async () => {
  const events: ClientEvent[] = [];
  const [fg, name] = [await client({ onEvent: (event) => events.push(event), answerTimeout: "200ms" }), fresh()];
  const lock = await fg.acquire(name, { ttl: "1s" });
  const { inspect } = await import("node:util");
  await (await gateway()).pause();
  const error = await failure(lock.renew({ signal: AbortSignal.timeout(300) }));
  const unknown = await failure(lock.put("k", "x", { within: "200ms" }));
  (await gateway()).resume();
  const handoff = await (await fg.acquire(fresh())).transfer("b");
  const shown = [lock, error, unknown, handoff, fg, events].map((one) => inspect(one, { depth: 9, showHidden: false }));
  for (const secret of [lock.id, handoff.id]) {
    const found = shown.find((text) => text.includes(secret));
    assert.equal(found, undefined);
  }
  assert.ok(events.length > 0);
});
