#!/usr/bin/env node
// Does with this library what a scenario says, one JSON command a line. The protocol is in the README of the
// conformance scenarios. With `--real-time` time passes by itself, for real gateways; with `--fetch` requests go
// through the platform's own `fetch`, instead of Node's HTTP client.

import { createInterface } from "node:readline";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { nodeFetch } from "../node/http.js";
import { Fields } from "./driver/fields.js";
import * as guards from "./driver/guards.js";
import * as reading from "./driver/reading.js";
import { State } from "./driver/state.js";
import { DriverTime } from "./driver/time.js";
import { Mistake, told } from "./driver/told.js";
import * as writes from "./driver/writes.js";

/** What this driver has beyond what all need. */
const FEATURES = "run deadlock download events elect stop observe shards upstream stall watch s3 block drop".split(" ");

const state = new State(new DriverTime(!process.argv.includes("--real-time")));
// Node's client has a limit of real time for connections: with virtual time only one that hangs needs it.
const patient = state.time.isVirtual ? { connectTimeoutMs: 60_000 } : {};
const send = process.argv.includes("--fetch") ? fetch : nodeFetch(patient);

/** Collects what nobody has any more. */
function collect(): void {
  setFlagsFromString("--expose-gc");
  (runInNewContext("gc") as () => void)();
}

type Command = (fields: Fields, signal: AbortSignal) => unknown;

const COMMANDS: Record<string, Command> = {
  client: (fields) => guards.makeClient(state, fields, send),
  acquire: (fields, signal) => guards.acquire(state, fields, signal),
  try: (fields, signal) => guards.attempt(state, fields, signal),
  run: (fields, signal) => guards.run(state, fields, signal),
  state: (fields) => guards.stateOf(state, fields),
  fence: (fields, signal) => guards.fence(state, fields, signal),
  adopt: (fields, signal) => guards.adopt(state, fields, signal),
  elect: (fields, signal) => guards.elect(state, fields, signal),
  shards: (fields, signal) => guards.shards(state, fields, signal),
  put: (fields, signal) => writes.put(state, fields, signal),
  delete: (fields, signal) => writes.remove(state, fields, signal, false),
  delete_all: (fields, signal) => writes.remove(state, fields, signal, true),
  commit: (fields, signal) => writes.commit(state, fields, signal),
  update: (fields, signal) => writes.update(state, fields, signal),
  upstream: (fields, signal) => writes.upstream(state, fields, signal),
  resolve: (fields, signal) => writes.resolve(state, fields, signal),
  abandon: (fields, signal) => writes.abandon(state, fields, signal),
  get: (fields, signal) => reading.get(state, fields, signal),
  open: (fields, signal) => reading.open(state, fields, signal),
  download: (fields, signal) => reading.download(state, fields, signal),
  list: (fields, signal) => reading.list(state, fields, signal),
  find: (fields, signal) => reading.find(state, fields, signal),
  events: (fields, signal) => reading.events(state, fields, signal),
  observe: (fields, signal) => reading.observe(state, fields, signal),
  async release(fields) {
    const lock = state.lock(fields.text("lock"));
    fields.end();
    return { confirmed: await lock.release() };
  },
  leave(fields) {
    const name = fields.optional("lock") ?? fields.text("election");
    const how = fields.text("how");
    fields.end();
    state.leave(name, how);
    return {};
  },
  async transfer(fields, signal) {
    const [lock, owner] = [state.lock(fields.text("lock")), fields.text("owner")];
    fields.end();
    return { handoff: (await lock.transfer(owner, { signal })).toText() };
  },
  async break(fields, signal) {
    const [resource, reason, after] = [fields.text("resource"), fields.text("reason"), fields.optional("after")];
    fields.end();
    await state.client.admin.break(resource, reason, { after, signal });
    return {};
  },
  beat(fields) {
    const lock = state.lock(fields.text("lock"));
    fields.end();
    lock.beat();
    return {};
  },
  block(fields) {
    const ms = fields.number("ms") ?? 0;
    fields.end();
    // As work does that awaits nothing.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
    return {};
  },
  drop(fields) {
    const name = fields.text("lock");
    fields.end();
    state.forget(name);
    collect();
    return {};
  },
  cancel(fields) {
    const call = fields.number("call") ?? 0;
    fields.end();
    state.cancel(call);
    return {};
  },
  advance(fields) {
    const [ms, leap] = [fields.number("ms") ?? 0, fields.flag("leap") ?? false];
    fields.end();
    return state.time.advance(ms, leap);
  },
  async close() {
    const closing = state.client.close("1s");
    if (state.time.isVirtual) await state.time.advance(1_000, false);
    await closing;
    return {};
  },
};

async function carryOut(line: string): Promise<void> {
  const { id, do: name, ...fields } = JSON.parse(line) as { id: number; do: string };
  const signal = state.runs(id);
  const at = (): number => state.time.now();
  try {
    const command = COMMANDS[name];
    if (command === undefined) throw new Mistake(`there is no command ${name}`);
    const ok = await command(new Fields(fields), signal);
    state.say({ id, at: at(), ok });
  } catch (error) {
    state.say({ id, at: at(), error: told(state, error, signal) });
  } finally {
    state.ran(id);
  }
  if (name === "close") process.exit(0);
}

state.say({ driver: "typescript", virtual_time: state.time.isVirtual, features: FEATURES });
createInterface({ input: process.stdin })
  .on("line", (line) => void carryOut(line))
  .on("close", () => process.exit(0));
