// What goes over the wire when servers answer oddly, callers give up, or nobody holds on to a guard: scripted servers,
// and a gateway behind a slow proxy.

import assert from "node:assert/strict";
import { connect, createServer, type Socket } from "node:net";
import { once } from "node:events";
import { Readable } from "node:stream";
import { after, test } from "node:test";
import { OutcomeUnknown, type Fence, type LockLost } from "../../src/index.js";
import { nodeFetch } from "../../src/node/index.js";
import { Fencegate } from "../../src/node/main.js";
import { client, failure, fresh, gateway, sleep, unlessItHangs, until } from "./world.js";

const ends: (() => void)[] = [];
after(() => ends.forEach((end) => end()));

/** A server that does with each connection what it is told to. Gives its URL. */
async function serve(connected: (socket: Socket) => void): Promise<string> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket.on("error", () => {}));
    connected(socket);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  ends.push(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return `http://127.0.0.1:${(server.address() as { port: number }).port}`;
}

/** Hands on each request whole: its head and its body may arrive apart. */
function requests(socket: Socket, handle: (request: Buffer) => unknown): void {
  let come = Buffer.alloc(0);
  socket.on("data", (data) => {
    come = Buffer.concat([come, data]);
    for (let end = come.indexOf("\r\n\r\n"); end >= 0; end = come.indexOf("\r\n\r\n")) {
      const length = /\r\ncontent-length: *(\d+)/i.exec(come.toString("latin1", 0, end))?.[1] ?? 0;
      const size = end + 4 + Number(length);
      if (come.length < size) return;
      const request = come.subarray(0, size);
      come = come.subarray(size);
      handle(request);
    }
  });
}

/** A server that answers each request with what is given for it. */
function answering(said: (request: string) => string | undefined | Promise<string | undefined>): Promise<string> {
  return serve((socket) => {
    requests(socket, async (data) => {
      const answer = await said(data.toString("latin1"));
      if (answer !== undefined) socket.write(answer);
    });
  });
}

/** The answer of a gateway to a request. */
function answer(request: string, status: number, body: unknown): string {
  const text = JSON.stringify(body);
  const id = /x-request-id: ([^\r]+)/i.exec(request)?.[1];
  return `HTTP/1.1 ${status} X\r\nx-request-id: ${id}\r\ncontent-length: ${text.length}\r\n\r\n${text}`;
}

/** The lock that a request asks for. */
function granted(request: string, ttl: number | null = 60_000): string {
  const { id } = JSON.parse(request.split("\r\n\r\n")[1]!) as { id: string };
  const times = { ttl_ms: ttl, expires_in_ms: ttl, confirm_within_ms: 60_000 };
  return answer(request, 200, { id, resource: "r", resources: ["r"], token: "5", state: "leased", ...times });
}

/** What a proxy does with a request: it passes it on, or not, or ends the connection. */
type Handle = (method: string, pass: () => void, socket: Socket) => void;

/** A client of the gateway, through a proxy that does this with each request. */
async function through(handle: Handle): Promise<Fencegate> {
  const { port } = new URL((await gateway()).url);
  const url = await serve((socket) => {
    const there = connect(Number(port), "127.0.0.1").on("error", () => {});
    there.on("data", (data) => socket.write(data));
    socket.on("close", () => there.destroy());
    requests(socket, (data) => {
      handle(data.toString("latin1", 0, 6).split(" ")[0]!, () => void there.write(data), socket);
    });
  });
  return new Fencegate(url);
}

/** A gateway behind a proxy that holds writes back until they may go; what came to it, in order. */
async function holding(): Promise<{ fg: Fencegate; seen: string[]; go: () => void }> {
  const seen: string[] = [];
  let go = (): void => {};
  const mayGo = new Promise<void>((resolve) => (go = resolve));
  const fg = await through((method, pass) => {
    if (method === "PUT" || method === "DELETE") seen.push(method);
    if (method === "PUT") void mayGo.then(pass);
    else pass();
  });
  return { fg, seen, go };
}

function lent(fg: Fencegate): Fence {
  return fg.lent("r", { token: "5", id: "01890a5d-ac96-774b-bcce-b302099a8057" });
}

test("the body of a DELETE has a length, so that nobody takes it for a request", async () => {
  const text = "GET /smuggled HTTP/1.1\r\n\r\n";
  for (const body of [text, new Blob([text]).stream()]) {
    let seen = "";
    const url = await answering((data) => ((seen += data), "HTTP/1.1 600 X\r\ncontent-length: 0\r\n\r\n"));
    const fg = new Fencegate(url, { retries: false });
    await failure(lent(fg).upstream("u", "DELETE", "x", { body }));
    assert.match(seen, /^DELETE [^]*\r\n(content-length: 26|transfer-encoding: chunked)\r\n/i);
  }
});

test("an answer that is none ends the attempt, and leaves a write unknown", async () => {
  for (const status of ["999 X", "600 X", "099 X", "101 X\r\nconnection: upgrade\r\nupgrade: x"]) {
    const url = await answering((data) => data && `HTTP/1.1 ${status}\r\ncontent-length: 0\r\n\r\n`);
    // The answer ends it, and no time.
    const fg = new Fencegate(url, { answerTimeout: "1h", callTimeout: "1h", writeTimeout: "1h", retries: false });
    const ended = await unlessItHangs(failure(fg.status()));
    assert.equal((ended as Error).name, "Unavailable", status);
    const write = await unlessItHangs(failure(lent(fg).upstream("u", "POST", "x", { body: "b" })));
    assert.equal((write as Error).name, "OutcomeUnknown", status);
  }
});

test("what Node refuses to send is not sent", async () => {
  const sending = nodeFetch()("http://127.0.0.1:1", { headers: { a: "b\n" } });
  const { cause } = (await failure(sending)) as { cause: { syscall?: string } };
  assert.equal(cause.syscall, "connect");
});

test("an abort is heard while a request is made ready, and closes the body", async () => {
  let puts = 0;
  const url = await answering((data) => void (puts += Number(data.startsWith("PUT"))));
  let isClosed = false;
  const source = new ReadableStream<Uint8Array>({ cancel: () => void (isClosed = true) });
  const controller = new AbortController();
  const stream = async (): Promise<ReadableStream<Uint8Array>> => (controller.abort("enough"), await sleep(50), source);
  const fg = new Fencegate(url, { retries: false });
  const { signal } = controller;
  const error = await failure(lent(fg).put("k", { stream, size: 3 }, { signal, digest: false }));
  assert.deepEqual([error, puts], ["enough", 0]);
  await until(() => isClosed);
});

test("a body that was opened is closed if nothing could be sent", async () => {
  const url = await answering(() => undefined);
  ends.pop()?.();
  for (const send of [fetch, nodeFetch()]) {
    const source = new Readable({ read() {} });
    const stream = () => source;
    const fg = new Fencegate(url, { retries: false, fetch: send });
    assert.equal(((await failure(lent(fg).put("k", { stream, size: 3 }))) as Error).name, "Unavailable");
    await until(() => source.destroyed);
  }
});

test("an abort right after the call is heard", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name);
  const controller = new AbortController();
  const waiting = failure((await client()).acquire(name, { wait: "3s", signal: controller.signal }));
  controller.abort("enough");
  assert.equal(await waiting, "enough");
  await lock.release();
});

/** Collects what nobody has, some times over. */
async function collect(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) {
    globalThis.gc!();
    await sleep(20);
  }
}

test("a guard is not collected while its write is under way, or its commit is there", async () => {
  const [{ fg, seen, go }, name] = [await holding(), fresh()];
  const write = async () => (await fg.acquire(name)).put("k", "v");
  const writing = write();
  await until(() => seen.length === 1);
  await collect();
  // Comes after what a guard that is collected would send.
  await fg.status();
  assert.deepEqual(seen, ["PUT"]);
  go();
  assert.equal((await writing).version, 1);
  await until(async () => (await collect(), seen.length === 2));
  const begin = async () => (await fg.acquire(name)).commit().put(name, "k", "w");
  const commit = await begin();
  await collect();
  assert.equal((await commit.send()).resources[0]?.version, 2);
});

test("an unknown outcome that is kept does not keep its guard", async () => {
  const name = fresh();
  const fg = await through((method, pass, socket) => void (method === "PUT" ? socket.destroy() : pass()));
  const write = async () => failure((await fg.acquire(name)).put("k", "v", { retries: false }));
  const unknown = await write();
  await until(async () => (await collect(), (await fg.resource(name)).state === "released"));
  // Kept until here, as by a caller that means to resolve it later.
  assert.ok(unknown instanceof OutcomeUnknown);
  assert.match(unknown.stack ?? "", /^OutcomeUnknown: the outcome of the write/);
});

test("a guard that is dropped waits for its writes", async () => {
  const [{ fg, seen, go }, name] = [await holding(), fresh()];
  const { heldOf } = await import("../../src/guard/guard.js");
  const lock = await fg.acquire(name);
  const writing = lock.put("k", "v");
  await until(() => seen.length === 1);
  heldOf(lock).drop();
  await fg.status();
  assert.deepEqual(seen, ["PUT"]);
  go();
  assert.equal((await writing).version, 1);
  await until(async () => (await fg.resource(name)).state === "released");
});

test("a second release waits for the writes that the first one waits for", async () => {
  const [{ fg, seen, go }, name] = [await holding(), fresh()];
  const lock = await fg.acquire(name);
  const writing = lock.put("k", "v");
  await until(() => seen.length === 1);
  const releases = Promise.all([lock.release(), lock.release()]);
  await fg.status();
  assert.deepEqual(seen, ["PUT"]);
  go();
  assert.deepEqual(await releases, [true, true]);
  assert.equal((await writing).version, 1);
});

test("a write that is given up before it was sent opens no number", async () => {
  let [isFirstSent, thirds, answerFirst] = [false, 0, (): void => {}];
  const mayAnswer = new Promise<void>((resolve) => (answerFirst = resolve));
  const url = await serve((socket) => {
    requests(socket, async (data) => {
      const request = data.toString("latin1");
      if (request.startsWith("POST /locks ")) socket.write(granted(request));
      else if (request.includes("/operations?")) socket.write(answer(request, 200, { items: [] }));
      else if (request.includes("/objects/one")) {
        isFirstSent = true;
        await mayAnswer;
        socket.write(answer(request, 201, { version: 1, operation: "a" }));
      } else if (!request.includes("/objects/three")) socket.write(answer(request, 200, {}));
      else if ((thirds += 1) === 1) socket.destroy();
      else socket.write(answer(request, 412, { code: "version-mismatch", detail: "d", title: "t", status: 412 }));
    });
  });
  const fg = new Fencegate(url);
  const lock = await fg.acquire("r", { ordered: true, watch: false });
  const first = lock.put("one", "x");
  await until(() => isFirstSent);
  const controller = new AbortController();
  const second = failure(lock.put("two", "x", { signal: controller.signal }));
  controller.abort("enough");
  // It hears that when its turn comes.
  answerFirst();
  assert.equal(await second, "enough");
  await first;
  assert.equal(((await failure(lock.put("three", "x", { ifAbsent: true }))) as Error).name, "Changed");
});

test("a tracer that fails, or gives no header, fails no call", async () => {
  const fails = (): never => {
    throw new TypeError("the tracer's");
  };
  for (const traceparent of [fails, () => "a\nb", () => 7 as never]) {
    const fg = await client({ traceparent });
    const lock = await fg.acquire(fresh());
    assert.equal((await lock.put("k", "v")).version, 1);
    await lock.release();
  }
});

test("an answer ends an upload that nobody reads", async () => {
  let isClosed = false;
  async function* endless() {
    try {
      for (;;) yield Buffer.alloc(65_536);
    } finally {
      isClosed = true;
    }
  }
  const url = await serve((socket) => {
    socket.once("data", (data) => {
      socket.pause();
      const problem = { code: "payload-too-large", detail: "d", title: "t", status: 413 };
      socket.write(answer(data.toString("latin1"), 413, problem));
    });
  });
  await failure(lent(new Fencegate(url)).put("k", endless()));
  await until(() => isClosed);
});

test("a client that is closed keeps no connection", async () => {
  let open = 0;
  const url = await serve((socket) => {
    open += 1;
    socket.on("close", () => (open -= 1));
    requests(socket, (data) => socket.write(answer(data.toString("latin1"), 200, {})));
  });
  const fg = new Fencegate(url);
  await fg.status();
  assert.equal(open, 1);
  await fg.close();
  await until(() => open === 0);
});

test("a loop that was blocked reads the answer that is there", async () => {
  const [fg, name] = [await client({ answerTimeout: "3s", retries: false }), fresh()];
  const lock = await (await client()).acquire(name);
  const waiting = failure(fg.acquire(name, { wait: "1s" }));
  await sleep(50);
  // From here on the loop comes to its timers first, and then to what was received.
  await new Promise((resolve) => setImmediate(resolve));
  // Longer than wait and answer may take.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 6_000);
  assert.equal(((await waiting) as Error).name, "Busy");
  await lock.release();
});

test("the caller's abort is heard while a grant is confirmed, and the lock is given back", async () => {
  let isBuried = false;
  const controller = new AbortController();
  const url = await answering((request) => {
    if (request.startsWith("POST /locks ")) return granted(request, null);
    // Nobody answers the one that would confirm it.
    if (!request.startsWith("DELETE")) return void controller.abort("enough");
    isBuried = true;
    return answer(request, 200, { released: true });
  });
  const acquiring = failure(new Fencegate(url).acquire("r", { ttl: "infinite", signal: controller.signal }));
  assert.equal(await unlessItHangs(acquiring), "enough");
  assert.ok(isBuried);
});

test("a client that is closed as a grant comes gives no guard, and gives the lock back", async () => {
  let isBuried = false;
  const url = await answering((request) => {
    if (request.startsWith("POST /locks ")) return granted(request);
    isBuried ||= request.startsWith("DELETE");
    return answer(request, 200, { released: true });
  });
  let closed: Promise<void> | undefined;
  const direct = nodeFetch();
  const fg: Fencegate = new Fencegate(url, {
    async fetch(input, init) {
      const response = await direct(input, init);
      if (String(input).endsWith("/locks")) {
        const bytes = await response.arrayBuffer();
        // Between the answer and the guard.
        response.arrayBuffer = async () => (queueMicrotask(() => (closed = fg.close())), bytes);
      }
      return response;
    },
  });
  const error = await failure(fg.acquire("r", { watch: false }));
  assert.match(String(error), /the client was closed/);
  await closed;
  assert.ok(isBuried);
});

test("a fixed credential is not shown again after a 401, and a function is asked again", async () => {
  for (const [auth, times] of [["fixed", 1] as const, [() => "asked", 2] as const]) {
    let asked = 0;
    const url = await answering((request) => {
      asked += 1;
      return answer(request, 401, { code: "credentials-invalid", detail: "d", title: "t", status: 401 });
    });
    assert.equal(((await failure(new Fencegate(url, { auth }).status())) as Error).name, "Denied");
    assert.equal(asked, times);
  }
});

test("each write that a lost guard refuses has an error of its own", async () => {
  const stale = { code: "fence-token-stale", detail: "d", title: "t", status: 412 };
  const url = await answering((request) => {
    if (request.startsWith("POST /locks ")) return granted(request);
    return request.startsWith("PUT") ? answer(request, 412, stale) : answer(request, 200, { released: true });
  });
  // The first learns that the lock is lost, and the others, which wait for their turn, find it so.
  const lock = await new Fencegate(url).acquire("r", { watch: false, ordered: true });
  const keys = ["x", "y", "z"];
  const failures = await Promise.all(keys.map((idempotencyKey) => failure(lock.put("a", "1", { idempotencyKey }))));
  assert.deepEqual(
    failures.map((error) => (error as LockLost).write?.key),
    keys,
  );
});
