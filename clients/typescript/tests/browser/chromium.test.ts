// The built modules in a real browser: a page takes a lock, writes, reads, keeps the lock by renewals, and loses it.

import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join, normalize } from "node:path";
import { test } from "node:test";
import { chromium } from "playwright-core";
import type * as fencegate from "../../src/index.js";
import { startGateway } from "../../src/testing/index.js";
import { clientsFolder } from "../vectors/load.js";

const CHROMIUM = process.env["FENCE_TEST_CHROMIUM"] ?? "/usr/bin/chromium";
const FLAGS =
  "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking " +
  "--disable-component-update --disable-sync";

/** A page on loopback, and the built modules beside it. */
async function serve(): Promise<{ origin: string; close: () => void }> {
  const dist = join(clientsFolder(), "typescript/dist");
  const server = createServer((request, response) => {
    const path = normalize(request.url ?? "/");
    const name = join(dist, path.replace(/^\/dist\//, ""));
    if (path === "/") response.setHeader("content-type", "text/html").end("<!doctype html><title>a page</title>");
    else if (path.endsWith(".js") && existsSync(name)) {
      response.setHeader("content-type", "text/javascript").end(readFileSync(name));
    } else response.writeHead(404).end();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  return { origin: `http://127.0.0.1:${port}`, close: () => server.close() };
}

/** What the page does; it runs in the browser. */
async function inPage([url, phase]: readonly [string, "begin" | "end"]): Promise<Record<string, unknown>> {
  const modules = "/dist/index.js";
  const { Fencegate, LockLost, Misuse } = (await import(modules)) as typeof fencegate;
  const page = globalThis as unknown as { fg: fencegate.Fencegate; lock: fencegate.Lock };
  if (phase === "end") {
    await new Promise<void>((resolve) => {
      if (page.lock.signal.aborted) resolve();
      page.lock.signal.addEventListener("abort", () => resolve());
    });
    const bounced = await page.lock.put("a.txt", "late").catch((error: unknown) => error);
    return { reason: (page.lock.signal.reason as fencegate.LockLost).reason, bounced: bounced instanceof LockLost };
  }
  let renewals = 0;
  page.fg = new Fencegate(url, { onEvent: (event) => void (renewals += Number(event.type === "renewed")) });
  page.lock = await page.fg.acquire("page", { ttl: "9s", wait: "60s" });
  const written = await page.lock.put("a.txt", "hello", { contentType: "text/plain" });
  const large = await page.lock.put("large.bin", new Blob([new Uint8Array(3 << 20)]));
  const stream = await page.lock.put("s", new Blob(["x"]).stream()).catch((error: unknown) => error);
  await page.lock.commit().put("page", "b.txt", "b").delete("page", "none").send();
  // One comes with each third of the ttl.
  while (page.lock.state === "held" && renewals < 4) await new Promise((resolve) => setTimeout(resolve, 20));
  let scoped = "";
  await page.fg.lock("other", async (lock) => {
    scoped = lock.state;
  });
  const changed = await page.lock.put("a.txt", "x", { ifAbsent: true }).catch((error: Error) => error.name);
  const response = await page.fg.open("page", "large.bin");
  for await (const event of page.fg.events()) {
    if (event.type === "write") break;
  }
  return {
    owner: page.fg.owner,
    version: written.version,
    sha256: large.sha256,
    isRefused: stream instanceof Misuse,
    text: (await page.fg.get("page", "a.txt")).text(),
    bytes: (await response.arrayBuffer()).byteLength,
    keys: (await page.fg.list("page").all()).map(({ key }) => key),
    state: page.lock.state,
    scoped,
    changed,
  };
}

test("a page takes a lock, writes, keeps it, and loses it", async () => {
  assert.ok(existsSync(CHROMIUM), `this test needs Chromium at ${CHROMIUM}, or FENCE_TEST_CHROMIUM`);
  const { origin, close } = await serve();
  const gateway = await startGateway({ args: ["--cors-origin", origin] });
  const profile = await mkdtemp(join(tmpdir(), "fencegate-chromium-"));
  const browser = await chromium.launchPersistentContext(profile, {
    executablePath: CHROMIUM,
    headless: true,
    args: FLAGS.split(" "),
  });
  try {
    const page = browser.pages()[0] ?? (await browser.newPage());
    const errors: string[] = [];
    page.on("pageerror", (error) => errors.push(String(error)));
    await page.goto(origin);
    const begun = await page.evaluate(inPage, [gateway.url, "begin"] as const);
    assert.match(String(begun["owner"]), new RegExp(`^${origin.slice("http://".length)}:0:[0-9a-f]{8}$`));
    assert.equal((begun["sha256"] as string).length, 64);
    const { owner: _owner, sha256: _sha256, ...rest } = begun;
    assert.deepEqual(rest, {
      version: 1,
      isRefused: true,
      text: "hello",
      bytes: 3 << 20,
      keys: ["a.txt", "b.txt", "large.bin"],
      state: "held",
      scoped: "held",
      changed: "Changed",
    });
    const ending = page.evaluate(inPage, [gateway.url, "end"] as const);
    const rival = await gateway.takeOver("page");
    const ended = await ending;
    assert.ok(["superseded", "broken"].includes(String(ended["reason"])));
    assert.equal(ended["bounced"], true);
    assert.equal((await gateway.client.get("page", "a.txt")).text(), "hello");
    assert.deepEqual(errors, []);
    await rival.release();
  } finally {
    await browser.close();
    await gateway.kill();
    close();
    await rm(profile, { recursive: true, force: true });
  }
});
