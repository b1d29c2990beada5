// Commands about the client, and about guards that are taken, given back, handed over and lost.

import type { ClientEvent, ClientOptions, LockOptions } from "../../index.js";
import { Lock } from "../../guard/lock.js";
import { Fencegate } from "../../node/main.js";
import type { Fields } from "./fields.js";
import type { State } from "./state.js";
import { Mistake, s3Told, type Told } from "./told.js";

const WARNINGS = ["expiring", "breaking", "revived", "renew_failed", "release_failed"];

/** Makes the client. */
export function makeClient(state: State, fields: Fields, send: typeof fetch): Told {
  const urls = fields.texts("urls");
  const owner = fields.text("owner");
  const options = fields.object("options");
  const tokens = options.texts("auth");
  const auth = tokens.length === 0 ? undefined : () => (tokens.length > 1 ? tokens.shift()! : tokens[0]!);
  const made: ClientOptions = {
    ...state.time.surroundings(send),
    owner,
    auth,
    answerTimeout: options.optional("timeout"),
    callTimeout: options.optional("deadline"),
    writeTimeout: options.optional("write_deadline"),
    headers: options.words("headers"),
    onEvent: (event: ClientEvent) => {
      if (!WARNINGS.includes(event.type) || !("resources" in event)) return;
      state.event("warning", { warning: event.type, lock: state.named(event.resources) });
    },
  };
  options.end();
  fields.end();
  state.client = new Fencegate(urls, made);
  return {};
}

interface Wish {
  readonly name: string;
  readonly resources: readonly string[];
  readonly inside: string | undefined;
  readonly onLost: "raise" | "ignore" | undefined;
  readonly options: LockOptions;
}

function wishIn(fields: Fields, signal: AbortSignal): Wish {
  const [name, resources] = [fields.text("lock"), fields.texts("resources")];
  const [inside, onLost] = [fields.optional("inside"), fields.optional("on_lost") as Wish["onLost"]];
  const options: LockOptions = {
    signal,
    ttl: fields.optional("ttl"),
    wait: fields.optional("wait"),
    maxHold: fields.optional("max_hold"),
    metadata: fields.words("metadata"),
    onlyIfExists: fields.flag("only_if_exists"),
    onUncertain: fields.optional("on_uncertain") as LockOptions["onUncertain"],
    watch: fields.flag("watch"),
    numbers: fields.flag("numbers"),
    ordered: fields.flag("ordered"),
    stallAfter: fields.optional("stall_after"),
    retries: fields.number("attempts") === 1 ? false : undefined,
  };
  fields.end();
  return { name, resources, inside, onLost, options };
}

/** Takes a lock. */
export async function acquire(state: State, fields: Fields, signal: AbortSignal): Promise<Told> {
  const wish = wishIn(fields, signal);
  const take = (): Promise<Lock> => state.client.acquire(wish.resources, wish.options);
  if (wish.inside === undefined) return state.keep(wish.name, await take());
  const { inside } = wish;
  const lock = await new Promise<Lock>((resolve, reject) => {
    // In the scope of the body, which goes on meanwhile.
    state.body(inside).tell(async () => (take().then(resolve, reject), false));
  });
  return state.keep(wish.name, lock);
}

/** Takes a lock, or nothing. */
export async function attempt(state: State, fields: Fields, signal: AbortSignal): Promise<Told | null> {
  const { name, resources, options } = wishIn(fields, signal);
  const { wait, ...terms } = options;
  if (wait !== undefined) throw new Mistake("what is tried does not wait");
  const lock = await state.client.tryLock(resources, terms);
  return lock && state.keep(name, lock);
}

/** Runs a body that ends when it is told to, or by the signal of the lock. */
export async function run(state: State, fields: Fields, signal: AbortSignal): Promise<Told> {
  const { name, resources, options, onLost } = wishIn(fields, signal);
  const live = async (lock: Lock): Promise<string> => {
    const body = state.newBody(name);
    state.event("entered", state.keep(name, lock));
    await body.live(onLost === "ignore" ? undefined : lock.signal);
    return "the body's";
  };
  return { value: await state.client.lock(resources, { ...options, onLost }, live) };
}

/** In what state a guard is. */
export function stateOf(state: State, fields: Fields): Told {
  const guard = state.guard(fields.text("lock"));
  fields.end();
  const access = guard instanceof Lock ? guard.s3 : undefined;
  return { state: guard.state, reason: guard.lostReason, token: guard.token, s3: s3Told(access) };
}

/** Raises a fence. */
export async function fence(state: State, fields: Fields, signal: AbortSignal): Promise<Told> {
  const [name, resource, order] = [fields.text("lock"), fields.text("resource"), fields.optional("order")];
  const force = fields.flag("force");
  fields.end();
  return state.keepFence(name, await state.client.fence(resource, { order, force, signal }));
}

/** Takes up what was handed over, or writes under a token that another process holds. */
export async function adopt(state: State, fields: Fields, signal: AbortSignal): Promise<Told> {
  const [name, handoff] = [fields.text("lock"), fields.optional("handoff")];
  const [id, token, resources] = [fields.optional("lock_id"), fields.optional("token"), fields.texts("resources")];
  fields.end();
  if (handoff !== undefined) return state.keep(name, await state.client.adopt(handoff, { signal }));
  if (id === undefined || token === undefined) throw new Mistake("a handoff, or an id and a token");
  return state.keepFence(name, state.client.lent(resources, { token, id }));
}

/** Stands for election, and leads until it is told to end. */
export async function elect(state: State, fields: Fields, signal: AbortSignal): Promise<Told> {
  const [election, name] = [fields.text("election"), fields.text("name")];
  const stopGrace = fields.optional("stop_grace");
  fields.end();
  const lead = async (lock: Lock): Promise<void> => {
    const body = state.newBody(election);
    state.event("leading", { election });
    lock.signal.addEventListener("abort", () => state.event("stopping", { election }), { once: true });
    await body.live();
  };
  await state.client.elect(name, { stopGrace, signal }, lead);
  return {};
}

/** Takes the shards that it can get. */
export async function shards(state: State, fields: Fields, signal: AbortSignal): Promise<Told> {
  const [stream, name, n] = [fields.text("stream"), fields.text("name"), fields.number("n") ?? 0];
  fields.end();
  for await (const { index, lock } of state.client.shards(name, n, { signal })) {
    state.event("shard", { ...state.keep(`${stream}${index}`, lock), stream });
  }
  return {};
}
