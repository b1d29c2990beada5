// What a dialog sends, what it says, and what the command under it does: one thing. Without a browser, by the page's own modules.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { once } from "node:events";
import { readFileSync, readdirSync } from "node:fs";
import { createServer } from "node:http";
import { delimiter, dirname, join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { dev, eventually, fence, job, jobDone } from "./rig.mjs";

const PAGE = fileURLToPath(new URL("../../../gateway/ui/", import.meta.url));
/** Where the page's modules believe to be; what they ask there goes to the gateway of the test. */
const ORIGIN = "http://page.test";
let gateway = "";

const browsers = {
  document: { body: { dataset: { mode: "full" } } },
  location: new URL(`${ORIGIN}/ui/`),
  sessionStorage: { getItem: () => null },
};
for (const [name, value] of Object.entries(browsers)) Object.defineProperty(globalThis, name, { value });
const fetched = globalThis.fetch;
globalThis.fetch = (url, options) => fetched(String(url).replace(ORIGIN, gateway), options);
after(() => (globalThis.fetch = fetched));

const { at, post } = await import("../../../gateway/ui/api.js");
const { actionsOn, breaking, preselected } = await import("../../../gateway/ui/parts/actions.js");
const { breakingRun, runningNow } = await import("../../../gateway/ui/parts/jobactions.js");
const { resolve, resolveDoubts } = await import("../../../gateway/ui/views/intents.js");
const { jobOf } = await import("../../../gateway/ui/jobs/record.js");

const FORM = { after: "", slot: "", resume: false, reason: "it's late & hangs" };
const REQUEST = "0190a1b2-0000-7000-8000-000000000000";
const MINUTE = 60_000;
/** The promise of each choice of a break, for a lock that has ten minutes left. */
const PROMISED = {
  "when it expires anyway": [8 * MINUTE, 10 * MINUTE],
  now: null,
  "in 30 s": [1, MINUTE / 2],
  "in 5 min": [4 * MINUTE, 5 * MINUTE],
};

const JSON_BODY = { "content-type": "application/json" };
/** Headers that are not of one connection alone. @param {Record<string, any>} headers */
const plain = (headers) =>
  Object.fromEntries(
    Object.entries(headers).filter(([name]) => !/^(host|connection|keep-alive|transfer-encoding|date)$/.test(name)),
  );

/** Stands before a gateway, and notes what is asked to be changed. What is `answered` here does not get there. */
async function recorder(t, callers, answered = {}) {
  const seen = [];
  const server = createServer(async (asked, answer) => {
    const chunks = [];
    for await (const chunk of asked) chunks.push(chunk);
    const [path, body] = [asked.url, Buffer.concat(chunks)];
    if (asked.method !== "GET")
      seen.push({ method: asked.method, path: decodeURIComponent(path), body: body.toString() });
    const headers = plain(asked.headers);
    if (answered[path])
      return answer
        .writeHead(200, { ...JSON_BODY, "x-request-id": headers["x-request-id"] ?? "none" })
        .end(JSON.stringify(answered[path]));
    const of = await fetched(callers.url + path, {
      method: asked.method,
      headers,
      body: body.length > 0 ? body : undefined,
    });
    answer.writeHead(of.status, plain(Object.fromEntries(of.headers))).end(Buffer.from(await of.arrayBuffer()));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => (server.closeAllConnections(), server.close()));
  const url = `http://127.0.0.1:${server.address().port}`;
  return { url, taken: () => seen.splice(0) };
}

/** Presses the button, and gives what that sends. */
async function pressed({ url, taken }, action, form) {
  gateway = url;
  if (action.act) await action.act(form);
  else await post(at(action.call(form)[0]), action.call(form)[1]);
  return taken();
}

/** Runs the command as if pasted into a shell, and gives what it sends. `--yes` answers for the person at the terminal. */
async function pasted({ url, taken }, action, form) {
  const asks = /^fence (job )?break /;
  const command = action
    .command(form)
    .replace(ORIGIN, url)
    .replace(asks, (words) => `${words}--yes `);
  const env = { ...process.env, PATH: dirname(fence) + delimiter + process.env.PATH, FENCE_URL: url };
  await promisify(execFile)("sh", ["-c", command], { env });
  return taken();
}

/** A request without what only says in which form it came. */
const meant = ({ method, path, body }) => ({ method, path, body: inMs(JSON.parse(body)) });
const inMs = (body) => (body.after === undefined ? body : { ...body, after: ms(body.after) });
/** @param {string} text A duration as the wire has it. */
const ms = (text) => Number.parseInt(text, 10) * { ms: 1, s: 1000, m: MINUTE, h: 60 * MINUTE }[text.replace(/\d+/, "")];

/** Presses and pastes, each on a resource of its own kind, and compares. */
async function same(recorded, actions, form) {
  const [mine, theirs] = [await pressed(recorded, actions[0], form), await pasted(recorded, actions[1], form)];
  assert.ok(mine.length > 0, `${actions[0].title} sends nothing`);
  assert.deepEqual(theirs.map(meant), mine.map(meant), actions[0].command(form));
}

test("each dialog of the page is tried here", () => {
  const files = readdirSync(PAGE, { recursive: true }).filter((name) => /^(parts|views)\/.*\.js$/.test(String(name)));
  const makes =
    /@returns \{(?:import\([^)]*\)\.)?Action\} ?\*\/\s*(?:export )?(?:const|function) (\w+)|@returns \{(?:import\([^)]*\)\.)?Action\}\s*\*\/\s*(?:export )?(?:const|function) (\w+)/g;
  const made = files.flatMap((name) =>
    [...readFileSync(join(PAGE, String(name)), "utf8").matchAll(makes)].map((of) => of[1] ?? of[2]),
  );
  const commands = files.flatMap(
    (name) => readFileSync(join(PAGE, String(name)), "utf8").match(/^\s*command: \(/gm) ?? [],
  );
  assert.deepEqual(made.sort(), ["breaking", "breakingRun", "mark", "resolve", "resolveDoubts", "runningNow"]);
  assert.equal(commands.length, made.length, "each has one command");
});

/** Breaks a lock that has ten minutes left by each choice, pressed and pasted, and compares with what the choice promises. */
async function eachChoice(t, callers, resource, make) {
  const recorded = await recorder(t, callers);
  const path = `/resources/${resource}`;
  const look = async () => (await callers.call("GET", path)).body;
  const anew = async () => {
    await callers.post(`${path}/break`, { reason: "anew" });
    await callers.lock("worker-a", resource, "10m");
    return make(await look());
  };
  const { chooses } = await anew();
  assert.equal(preselected(await anew()), chooses[0][0]);
  assert.deepEqual(
    chooses.map(([, text]) => text.replace(/ \(.*/, "")),
    Object.keys(PROMISED),
  );
  for (const [after, text] of chooses) {
    const sent = [];
    for (const way of [pressed, pasted]) {
      sent.push(await way(recorded, await anew(), { ...FORM, after }));
      const { state, breaks_in_ms: due } = await look();
      const promised = PROMISED[text.replace(/ \(.*/, "")];
      const isSo =
        promised === null ? state === "broken" : state === "breaking" && due >= promised[0] && due <= promised[1];
      assert.ok(isSo, `${text}, ${way.name}: ${state}, due in ${due}`);
    }
    assert.deepEqual(sent[1].map(meant), sent[0].map(meant), text);
  }
}

test("a break does what its choice says, and what its command does", async (t) => {
  await eachChoice(t, await dev(t), "r", (held) => breaking(held, 0));
});

test("a break of a run does what its choice says, and what its command does", async (t) => {
  const callers = await dev(t);
  await jobDone(t, callers, ["run", "books", "--", "true"]);
  await eachChoice(t, callers, "job:books", (held) => breakingRun(jobOf("job:books"), held, null, 0));
});

test("a lock that does not expire ends at a time that somebody has chosen", async (t) => {
  const callers = await dev(t);
  for (let sent = 0; sent < 2; sent++)
    await callers.post("/locks", { owner: "a", resource: "r", ttl: "infinite", id: REQUEST });
  const { body } = await callers.call("GET", "/resources/r");
  assert.equal(body.expires_in_ms, null);
  const action = breaking(body, 0);
  assert.equal(preselected(action), "");
  assert.deepEqual(
    action.chooses?.map(([, text]) => text),
    Object.keys(PROMISED).slice(1),
  );
  assert.match(action.what, /does not expire: say when it ends/);
});

test("marks, resolutions and requests are sent as their commands send them", async (t) => {
  const callers = await dev(t);
  const operation = REQUEST;
  const resolved = { operation, resource: "r", outcome: "unknown", resolved: 1 };
  const recorded = await recorder(t, callers, {
    [`/admin/intents/${operation}/resolve`]: resolved,
    "/admin/intents/resolve": resolved,
  });
  await callers.lock("worker-a", "r");
  for (const more of [{}, { frozen: "x", protected: "y" }]) {
    const resource = { resource: "r", state: "released", queue_length: 0, ...more };
    for (const { action } of actionsOn(resource, 0)) await same(recorded, [action, action], FORM);
  }
  const intent = { operation, resource: "r", upstream: "crm", method: "PUT", path: "/x", in_flight: true };
  await same(recorded, [resolve(intent), resolve(intent)], FORM);
  const doubt = { upstream: "crm" };
  await same(recorded, [resolveDoubts(doubt), resolveDoubts(doubt)], FORM);

  // A request is an object in the inbox, by whoever asks: its id, its time and its author are its own.
  job(t, callers, ["agent", "books", "--", "sleep", "1000"], { owner: "agent-1" });
  await eventually(
    "the agent waits",
    async () => (await callers.call("GET", "/resources/job-agent:books")).body.state === "leased",
  );
  for (const form of [FORM, { ...FORM, slot: "2026-02-28T00:00:00Z", resume: true }]) {
    const asked = [];
    for (const way of [pressed, pasted]) {
      const sent = await way(
        recorded,
        runningNow(jobOf("job:books"), { owner: "agent-1" }, null, () => Date.now()),
        form,
      );
      const [{ path, body }] = sent.filter(({ method }) => method === "PUT");
      const { request, by, requested_at, ...wish } = JSON.parse(body);
      assert.ok(
        path.endsWith(`/job-inbox:books/objects/requests/${request}.json`) && by && Date.parse(requested_at),
        path,
      );
      asked.push(wish);
    }
    assert.deepEqual(asked[1], asked[0]);
  }
});
