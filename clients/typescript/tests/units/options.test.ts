// No option is dropped: a name that is none and a value of the wrong kind are refused, before anything is sent.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { innerOfClient } from "../../src/client/fencegate.js";
import { Misuse, type Handoff } from "../../src/index.js";
import { job } from "../../src/jobs/index.js";
import { download, fromEnv, nodeFetch } from "../../src/node/index.js";
import { Fencegate } from "../../src/node/main.js";
import { fakeLock, startGateway } from "../../src/testing/index.js";
import { OutcomeUnknown } from "../../src/write/unknown.js";
import { clientsFolder } from "../vectors/load.js";

const URL = "http://localhost:1";
const HANDOFF = { id: "01890a5d-ac96-774b-bcce-b302099a8057", token: "1", resources: ["r"] } as unknown as Handoff;
let requests = 0;
const counted: typeof fetch = () => {
  requests += 1;
  return Promise.reject(new TypeError("nothing is to be sent"));
};
const fg = new Fencegate(URL, { fetch: counted, retries: false });
const lock = fakeLock("r");
const unknown = OutcomeUnknown.ofForward(innerOfClient(fg), "r", undefined, { detail: "cut off", attempts: 1 });

type Call = (options: never) => unknown;

/** Every call that takes options, by the name that the declarations give it. */
const CALLS: Record<string, Call> = {
  "Fencegate.constructor": (o) => new Fencegate(URL, o),
  "Fencegate.lock": (o) => fg.lock("r", o, () => {}),
  "Fencegate.acquire": (o) => fg.acquire("r", o),
  "Fencegate.tryLock": (o) => fg.tryLock("r", o),
  "Fencegate.fence": (o) => fg.fence("r", o),
  "Fencegate.adopt": (o) => fg.adopt(HANDOFF, o),
  "Fencegate.lent": (o) => fg.lent("r", o),
  "Fencegate.elect": (o) => fg.elect("r", o, () => {}),
  "Fencegate.observe": (o) => fg.observe("r", o),
  "Fencegate.shards": (o) => fg.shards("r", 2, o),
  "Fencegate.update": (o) => fg.update("r", "k", () => "", o),
  "Fencegate.get": (o) => fg.get("r", "k", o),
  "Fencegate.getIfPresent": (o) => fg.getIfPresent("r", "k", o),
  "Fencegate.open": (o) => fg.open("r", "k", o),
  "Fencegate.head": (o) => fg.head("r", "k", o),
  "Fencegate.list": (o) => fg.list("r", o),
  "Fencegate.versions": (o) => fg.versions("r", o),
  "Fencegate.resource": (o) => fg.resource("r", o),
  "Fencegate.resources": (o) => fg.resources(o),
  "Fencegate.locks": (o) => fg.locks(o),
  "Fencegate.waiters": (o) => fg.waiters("r", o),
  "Fencegate.events": (o) => fg.events(o),
  "Fencegate.operation": (o) => fg.operation("1", o),
  "Fencegate.operationByKey": (o) => fg.operationByKey("r", "k", o),
  "Fencegate.s3Access": (o) => fg.s3Access(HANDOFF.id, o),
  "Fencegate.status": (o) => fg.status(o),
  "Fencegate.ready": (o) => fg.ready(o),
  "Guard.put": (o) => lock.put("k", "", o),
  "Guard.delete": (o) => lock.delete("k", o),
  "Guard.deleteAll": (o) => lock.deleteAll(o),
  "Guard.update": (o) => lock.update("k", () => "", o),
  "Guard.updateJson": (o) => lock.updateJson("k", () => 1, o),
  "Guard.once": (o) => lock.once("k", async () => {}, o),
  "Guard.upstream": (o) => lock.upstream("u", "POST", "x", o),
  "Commit.put": (o) => lock.commit().put("r", "k", "", o),
  "Commit.delete": (o) => lock.commit().delete("r", "k", o),
  "Commit.send": (o) => lock.commit().put("r", "k", "").send(o),
  "Lock.renew": (o) => lock.renew(o),
  "Lock.transfer": (o) => lock.transfer("b", o),
  "OutcomeUnknown.resolve": (o) => unknown.resolve(o),
  "OutcomeUnknown.abandon": (o) => unknown.abandon(o),
  "Admin.break": (o) => fg.admin.break("r", "why", o),
  "Admin.freeze": (o) => fg.admin.freeze("r", "why", o),
  "Admin.unfreeze": (o) => fg.admin.unfreeze("r", "why", o),
  "Admin.protect": (o) => fg.admin.protect("r", "why", o),
  "Admin.unprotect": (o) => fg.admin.unprotect("r", "why", o),
  "Admin.audit": (o) => fg.admin.audit(o),
  "Admin.rejections": (o) => fg.admin.rejections(o),
  "Admin.intents": (o) => fg.admin.intents(o),
  "Admin.doubts": (o) => fg.admin.doubts(o),
  "Admin.resolve": (o) => fg.admin.resolve("1", "why", o),
  "Admin.resolveDoubts": (o) => fg.admin.resolveDoubts("u", "why", o),
  job: (o) => job(fg, "j", o),
  download: (o) => download(fg, "r", "k", "/nowhere/file", o),
  fromEnv: (o) => fromEnv(o),
  nodeFetch: (o) => nodeFetch(o),
  startGateway: (o) => startGateway(o),
  fakeLock: (o) => fakeLock("r", o),
};
/** The names of options of a call that has no `signal`. */
const NEAR: Record<string, [wrong: string, right: string]> = {
  "Fencegate.constructor": ["onwer", "owner"],
  "Fencegate.lent": ["tokn", "token"],
  "Commit.put": ["ifAbsnt", "ifAbsent"],
  "Commit.delete": ["ifmatch", "ifMatch"],
  fromEnv: ["onwer", "owner"],
  nodeFetch: ["certs", "cert"],
  startGateway: ["arg", "args"],
  fakeLock: ["tokn", "token"],
};

/** What a call fails with, however it does. */
async function failure(call: Call, options: unknown): Promise<Error> {
  requests = 0;
  try {
    await call(options as never);
  } catch (error) {
    assert.equal(requests, 0, "something was sent");
    return error as Error;
  }
  throw new assert.AssertionError({ message: "it was taken" });
}

process.env.FENCE_URL = URL;

test("every call that takes options is tried here", () => {
  const folder = join(clientsFolder(), "typescript/dist");
  const entries = ["client", "guard", "write", "jobs", "node", "testing"].flatMap((part) =>
    readdirSync(join(folder, part))
      .filter((name) => name.endsWith(".d.ts"))
      .map((name) => join(part, name)),
  );
  const found = new Set<string>();
  for (const name of ["operators.d.ts", ...entries]) {
    const text = readFileSync(join(folder, name), "utf8");
    const classes = [...text.matchAll(/^export declare class (\w+)[^]*?^}/gm)];
    // What is no part of the package's own face is made by it alone.
    for (const [body, owner] of classes.filter(([, owner]) => owner !== "Inner")) {
      const methods = body.matchAll(/^ {4}(\w+)(?:<\w+>)?\([^;]*?\b(?:options|lent)\??: \w/gm);
      for (const [, method] of methods) found.add(`${owner}.${method}`);
    }
    const isEntry = /^(jobs\/index|node\/|testing\/index)/.test(name);
    const functions = text.matchAll(/^export declare function (\w+)(?:<\w+>)?\([^;]*?\boptions\??: \w/gm);
    if (isEntry) for (const [, name] of functions) found.add(name!);
  }
  assert.deepEqual([...found].sort(), Object.keys(CALLS).sort());
});

for (const [name, call] of Object.entries(CALLS)) {
  test(`${name} refuses an option that is none`, async () => {
    const [wrong, right] = NEAR[name] ?? ["singal", "signal"];
    const near = await failure(call, { [wrong]: undefined });
    assert.ok(near instanceof Misuse, String(near));
    assert.match(near.message, new RegExp(`no option ${wrong}: is it ${right}\\?`));
    const far = await failure(call, { zzzzzzzz: 1 });
    assert.ok(far instanceof Misuse, String(far));
    assert.match(far.message, new RegExp(`no option zzzzzzzz; there are .*${right}`));
    assert.ok((await failure(call, null)) instanceof Misuse);
  });
}

test("a wait is not dropped where the call has its own, nor a prefix where there is none", async () => {
  for (const name of ["Fencegate.tryLock", "Fencegate.elect", "Fencegate.shards"]) {
    assert.match((await failure(CALLS[name]!, { wait: "5s" })).message, /no option wait/);
  }
  assert.match((await failure(CALLS["Fencegate.waiters"]!, { prefix: "a" })).message, /no option prefix/);
  const successor = { owner: "b", pricipal: "p" };
  assert.match((await failure(() => lock.transfer(successor), {})).message, /pricipal: is it principal\?/);
});

const NO_TIMES = [NaN, -1, 1.5, Infinity, true, null, "30", "30 s", ["30s"], 30n, {}];
const NO_FLAGS = ["no", 0, 1, null];
const NO_SIGNALS = [new AbortController(), "5s", 5_000, null];
const VALUES: [name: string, option: string, values: unknown[]][] = [
  ["Fencegate.acquire", "ttl", [...NO_TIMES, 0, "25h"]],
  ["Fencegate.acquire", "wait", NO_TIMES.filter((value) => value !== null)],
  ["Fencegate.acquire", "maxHold", [...NO_TIMES, "31d"]],
  ["Fencegate.acquire", "stallAfter", [...NO_TIMES, 0]],
  ["Fencegate.acquire", "watch", NO_FLAGS],
  ["Fencegate.acquire", "ordered", NO_FLAGS],
  ["Fencegate.acquire", "numbers", NO_FLAGS],
  ["Fencegate.acquire", "onlyIfExists", NO_FLAGS],
  ["Fencegate.acquire", "retries", [...NO_FLAGS, 3]],
  ["Fencegate.acquire", "onUncertain", ["Hold", true]],
  ["Fencegate.acquire", "signal", NO_SIGNALS],
  ["Fencegate.lock", "onLost", ["ignored", () => {}]],
  ["Fencegate.elect", "stopGrace", NO_TIMES],
  ["Fencegate.elect", "rejoin", NO_FLAGS],
  ["Fencegate.adopt", "onUncertain", ["Hold"]],
  ["Fencegate.adopt", "numbers", NO_FLAGS],
  ["Fencegate.fence", "force", NO_FLAGS],
  ["Fencegate.fence", "order", [0, -1, NaN, true, "x"]],
  ["Fencegate.get", "limit", [NaN, -1, "16", true]],
  ["Fencegate.get", "version", [NaN, 0, "1", true]],
  ["Fencegate.list", "pageSize", [NaN, 0, 1_001, "5", true, 1.5]],
  ["Fencegate.events", "onVoid", ["ignore"]],
  ["Guard.put", "ifAbsent", NO_FLAGS],
  ["Guard.put", "digest", NO_FLAGS],
  ["Guard.put", "rideOut", NO_FLAGS],
  ["Guard.put", "within", [...NO_TIMES, 0]],
  ["Guard.put", "contentType", [5, null]],
  ["Guard.put", "idempotencyKey", [5, null]],
  ["Guard.put", "ifMatch", [17, null]],
  ["Commit.put", "ifAbsent", NO_FLAGS],
  ["Lock.renew", "ttl", NO_TIMES],
  ["Fencegate.constructor", "ttl", NO_TIMES.filter((value) => value !== null)],
  ["Fencegate.constructor", "callTimeout", [...NO_TIMES, 0]],
  ["Fencegate.constructor", "retries", [...NO_FLAGS, 3]],
  ["Fencegate.constructor", "auth", [5, "", null]],
  ["Fencegate.constructor", "onEvent", ["log"]],
  ["Fencegate.constructor", "traceparent", ["00-1"]],
  ["Fencegate.constructor", "fetch", [null, {}]],
  ["job", "every", NO_TIMES],
  ["job", "retries", [NaN, -1, 1.5, "3", true]],
  ["job", "keep", [0, "3", true]],
  ["job", "resume", NO_FLAGS],
  ["job", "once", ["twice"]],
  ["nodeFetch", "connectTimeoutMs", [NaN, 0, -1, "3s", true]],
];

for (const [name, option, values] of VALUES) {
  test(`${name} refuses a value of ${option} of the wrong kind`, async () => {
    for (const value of values) {
      const error = await failure(CALLS[name]!, { [option]: value });
      assert.ok(error instanceof Misuse, `${String(value)}: ${String(error)}`);
    }
  });
}

test("a signal of another kind than the platform's own is one", async () => {
  const own = { aborted: true, reason: new Error("mine"), addEventListener: () => {}, throwIfAborted: () => {} };
  const error = await fg.status({ signal: own as never }).catch((error: unknown) => error);
  assert.ok(!(error instanceof Misuse), String(error));
});

test("the options stand between the name and the function to run", async () => {
  for (const call of [
    () => fg.elect("r", (() => {}) as never, { ttl: "5s" } as never),
    () => fg.lock("r", (() => {}) as never, { ttl: "5s" } as never),
    () => fg.elect("r", { ttl: "5s" } as never),
    () => fg.update("r", "k", { ttl: "5s" } as never),
    () => lock.once("k", {} as never),
    () => job(fg, "j").run({} as never),
  ]) {
    assert.ok((await failure(call, {})) instanceof Misuse);
  }
});

test("an option that is undefined hides nothing that the environment says", () => {
  process.env.FENCE_OWNER = "from the environment";
  assert.equal(fromEnv({ owner: undefined }).owner, "from the environment");
  assert.equal(fromEnv({ owner: "given" }).owner, "given");
});
