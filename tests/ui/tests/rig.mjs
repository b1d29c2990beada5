// What the tests stand on: a real gateway, a real browser, and callers who take locks and write.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { chromium } from "playwright-core";
import { reservedPort } from "../../ports.mjs";

const GATEWAY = process.env.FENCE_TEST_GATEWAY ?? "";
/** The command line that runs jobs: what is tested is what it writes. */
export const fence = process.env.FENCE_TEST_FENCE ?? join(dirname(GATEWAY), "fence");
const CHROMIUM = process.env.FENCE_TEST_CHROMIUM ?? "/usr/bin/chromium";
/** What takes longer hangs: how soon something comes says nothing. */
const HANGS_MS = 120_000;
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Starts a gateway in memory; it ends with the test. */
export async function dev(t, ...flags) {
  const child = spawn(GATEWAY, ["dev", "--listen", "127.0.0.1:0", ...flags], { stdio: ["pipe", "pipe", "inherit"] });
  t.after(async () => {
    await endJobs(t);
    child.kill("SIGKILL");
  });
  const [line] = await once(createInterface({ input: child.stdout }), "line");
  return new Callers(JSON.parse(line).url);
}

/** Starts a gateway with a directory, which can be killed and started anew at the same address. */
export async function serve(t) {
  const home = await mkdtemp(join(tmpdir(), "fence-ui-"));
  let child;
  const listen = `127.0.0.1:${await reservedPort()}`;
  const start = async () => {
    const args = ["serve", "--listen", listen, "--data-dir", join(home, "data"), "--log", "info"];
    child = spawn(GATEWAY, args, { stdio: ["ignore", "ignore", "pipe"] });
    for await (const line of createInterface({ input: child.stderr })) if (line.includes(" listening on ")) break;
    child.stderr.resume();
  };
  const kill = async () => {
    child.kill("SIGKILL");
    await once(child, "exit");
  };
  t.after(async () => {
    await endJobs(t);
    child.kill("SIGKILL");
    await rm(home, { recursive: true, force: true });
  });
  await start();
  return { callers: new Callers(`http://${listen}`), start, kill };
}

/** Callers of a gateway. */
export class Callers {
  constructor(url, key) {
    this.url = url;
    this.key = key;
  }

  async call(method, path, body, headers = {}) {
    const options = { method, headers: { ...headers }, body };
    if (this.key) options.headers.authorization = `Bearer ${this.key}`;
    const answer = await fetch(this.url + path, options);
    const text = await answer.text();
    return { status: answer.status, body: text.startsWith("{") ? JSON.parse(text) : text };
  }

  /** As a browser asks, with headers that `fetch` would set itself. */
  async browse(path, headers) {
    const asked = request(this.url + path, { headers }).end();
    const [answer] = await once(asked, "response");
    answer.resume();
    return { status: answer.statusCode, headers: answer.headers };
  }

  post(path, body) {
    return this.call("POST", path, JSON.stringify(body), { "content-type": "application/json" });
  }

  async lock(owner, resource, ttl = "60s", more = {}) {
    const { status, body } = await this.post("/locks", { owner, resource, ttl, ...more });
    assert.equal(status, 201, JSON.stringify(body));
    return body;
  }

  put(lock, key, content, type = "text/plain") {
    const name = encodeURIComponent(lock.resources[0]);
    const path = key.split("/").map(encodeURIComponent).join("/");
    return this.call("PUT", `/resources/${name}/objects/${path}`, content, {
      "x-fence-token": lock.token,
      "content-type": type,
    });
  }
}

/** The processes of `fence job` that a test has started. */
const jobs = new WeakMap();

/** Ends them while their gateway is there, so that they end what they have started. */
async function endJobs(t) {
  for (const { child, ended } of jobs.get(t) ?? []) {
    child.kill("SIGTERM");
    await Promise.race([ended, sleep(HANGS_MS)]);
    child.kill("SIGKILL");
    for (const from of [child.stdout, child.stderr]) from.destroy();
  }
}

/** A process of `fence job`. `ended` gives its exit code and what it said. */
export function job(t, callers, args, { owner, key = callers.key } = {}) {
  const settings = {
    FENCE_URL: callers.url,
    ...(owner && { FENCE_OWNER: owner }),
    ...(key && { FENCE_AUTH_TOKEN: key }),
  };
  const env = { ...process.env, ...settings };
  const child = spawn(fence, ["job", ...args], { env, stdio: ["ignore", "pipe", "pipe"] });
  const said = [];
  for (const from of [child.stdout, child.stderr]) from.on("data", (bytes) => said.push(bytes));
  const ended = once(child, "exit").then(([code]) => ({ code, said: Buffer.concat(said).toString() }));
  jobs.set(t, [...(jobs.get(t) ?? []), { child, ended }]);
  return { child, ended };
}

/** One that is waited for; it ends with this code. */
export async function jobDone(t, callers, args, code = 0, more = {}) {
  const { ended } = job(t, callers, args, more);
  const found = await ended;
  assert.equal(found.code, code, found.said);
}

/** What a function gives, once that is something. */
export async function eventually(what, probe) {
  const end = performance.now() + HANGS_MS;
  while (performance.now() < end) {
    const found = await probe();
    if (found) return found;
    await sleep(50);
  }
  assert.fail(`${what}: it never is so`);
}

/** The state of a job, once it is as wanted. */
export function stateOf(callers, resource, isWanted = (_) => true) {
  return eventually(resource, async () => {
    const path = `/resources/${encodeURIComponent(resource)}/objects/state.json`;
    const { status, body } = await callers.call("GET", path);
    return status === 200 && isWanted(body) && body;
  });
}

/** A job that runs until it is ended; or for so many seconds, if nobody is left to end it. */
export async function running(t, callers, name, args = [], { seconds = 1800, ...more } = {}) {
  const found = job(t, callers, ["run", name, ...args, "--", "sleep", `${seconds}`], more);
  await stateOf(callers, `job:${name}`, (state) => state.running);
  return found;
}

/** A run whose holder was killed, and whose lock has ended without a word. */
export async function lost(t, callers, name, more = {}) {
  const { child, ended } = await running(t, callers, name, ["--ttl", "1s"], { seconds: 20, ...more });
  child.kill("SIGKILL");
  await ended;
  await sleep(1_300);
}

/** A key, and the line of the rules of access that knows it. */
export async function newKey() {
  const { stdout, stderr } = await promisify(execFile)(GATEWAY, ["keys", "new"]);
  const lines = `${stdout}\n${stderr}`;
  const key = /fgk_\S+/.exec(lines)?.[0];
  const line = /\{ id = .*\}/.exec(lines)?.[0];
  assert.ok(key && line, lines);
  return { key, line };
}

let started;

/** The browser that all tests of a file share. */
async function browser() {
  started ??= chromium.launch({ executablePath: CHROMIUM, args: FLAGS, headless: true });
  return started;
}

/** Ends it. */
export async function closeBrowser() {
  await (await started)?.close();
}

/**
 * Opens the page, and sees to it that nothing is asked of any other origin, that the policy is not violated, and that
 * nothing goes wrong unseen. `first` runs in the page before anything else.
 */
export async function open(t, callers, view = "", { context: wanted = {}, allows = [], first } = {}) {
  const context = await (await browser()).newContext({ viewport: { width: 1280, height: 800 }, ...wanted });
  context.setDefaultTimeout(HANGS_MS);
  const page = await context.newPage();
  const asked = new Set();
  asking.set(page, asked);
  // What waits for something to happen may take for ever.
  page.on("request", (one) => /[?&]wait=/.test(one.url()) || asked.add(one));
  for (const event of ["response", "requestfinished", "requestfailed"])
    page.on(event, (one) => asked.delete(event === "response" ? one.request() : one));
  const wrong = [];
  page.on("request", (asked) => {
    const { origin, protocol } = new URL(asked.url());
    if (origin !== callers.url && protocol !== "blob:" && protocol !== "data:") wrong.push(`asked ${asked.url()}`);
  });
  page.on("pageerror", (error) => wrong.push(`threw ${error.stack}`));
  page.on("console", (message) => {
    const text = message.text();
    const isExpected = text.startsWith("Failed to load resource") || allows.some((allowed) => text.includes(allowed));
    if (message.type() === "error" && !isExpected) wrong.push(`said ${text}`);
  });
  await page.addInitScript(() => {
    globalThis.violations = [];
    document.addEventListener("securitypolicyviolation", (event) =>
      globalThis.violations.push(`${event.violatedDirective} ${event.blockedURI}`),
    );
  });
  if (first) await page.addInitScript(first);
  t.after(async () => {
    const violations = await page.evaluate(() => globalThis.violations).catch(() => []);
    await context.close();
    assert.deepEqual([...wrong, ...violations], []);
  });
  await page.goto(`${callers.url}/ui/${view && `#/${view}`}`);
  return page;
}

/** What an opened page has asked for and has no answer to. */
const asking = new WeakMap();

/** Goes to another view of an opened page, until that is drawn, with what it knows by then. */
export const goTo = (page, view) =>
  page.evaluate(
    (to) =>
      new Promise((resolve) => {
        const hash = `#/${to}`;
        if (location.hash === hash) return resolve(undefined);
        const drawn = () => requestAnimationFrame(() => requestAnimationFrame(resolve));
        addEventListener("hashchange", drawn, { once: true });
        location.hash = hash;
      }),
    view,
  );

/** Waits until a view has what it asks for at first, and has drawn it. */
export async function settled(page) {
  for (let quiet = 0; quiet < 3;) {
    const isDrawn = await page.evaluate(async () => {
      await new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
      const main = document.querySelector("main");
      return main?.querySelector("h1") && !main.textContent.includes("Loading …");
    });
    quiet = isDrawn && asking.get(page).size === 0 ? quiet + 1 : 0;
  }
}

/** Waits until a view has asked once more how its resource is, and has drawn what it heard. */
export async function redrawn(page) {
  const asked = await page.waitForRequest((one) => one.url().includes("/resources/"));
  await asked.response();
  await settled(page);
}

/** The row of a table in which a text is. */
export const row = (page, text) => page.getByRole("row").filter({ hasText: text });

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
