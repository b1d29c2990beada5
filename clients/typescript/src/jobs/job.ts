// Runs of a job, each slot of which is done once (CC62, CC63).

import { acquire } from "../acquire/acquire.js";
import { wishOf } from "../acquire/wish.js";
import type { Inner } from "../client/inner.js";
import { anySignal } from "../client/signals.js";
import { portion } from "../core/backoff.js";
import { Busy, GatewayFault, LockLost, Misuse } from "../core/errors.js";
import { uuidv7 } from "../core/ids.js";
import { resourcePath } from "../core/names.js";
import { mustBeFunction } from "../core/options.js";
import {
  begins,
  CAUGHT_UP_MAX,
  caughtUp,
  isNext,
  isOverdue,
  isStuck,
  jobResource,
  slotAt,
  slotText,
  type ShardOf,
} from "../core/slots.js";
import { heldOf } from "../guard/guard.js";
import type { Lock } from "../guard/lock.js";
import { Admin } from "../operators.js";
import { getObject, type StoredObject } from "../reading/object.js";
import { Listing } from "../reading/pages.js";
import { runScope } from "../scope.js";
import type { ObjectEntry, Resource } from "../wire.js";
import type { Commit, Committed } from "../write/commit.js";
import { OutcomeUnknown } from "../write/unknown.js";
import { jsonText, present } from "../write/update.js";
import {
  afterEnd,
  afterStart,
  isSkipped,
  Kept,
  leftover,
  reasonOf,
  runKey,
  type JobDocument,
  type RunRecord,
  type RunStatus,
  type Terms,
} from "./records.js";

const RESOLVED_WITHIN = "60s";
/** How long the lock is waited for that was broken, unless the caller says otherwise. */
const REPLACED_WITHIN = "30s";
/** The longest pause before shards are tried again that somebody else had. */
const LOOKS_AGAIN_MS = 1_000;
const STATE = "state.json";
const JSON_TYPE = "application/json";

/** What came of a call. */
export interface JobEnd<T> {
  /** `held`: somebody else has the lock, and nothing was done. `skipped`: it was too late for the slot. */
  readonly status: "succeeded" | "done before" | "skipped" | "held";
  /** The run: of this call, or the one by which the slot was done before, if that is kept. */
  readonly run: RunRecord | undefined;
  /** What the body gave, if it was run. */
  readonly value: T | undefined;
  /** With `catchUp: "all"` what came of each slot, with `shards` of each part that this call looked after. */
  readonly parts: readonly JobEnd<T>[];
}

/** How a job stands. */
export interface JobState {
  readonly document: JobDocument;
  readonly isRunning: boolean;
  /** A run has begun, and its lock has ended without a record of its end. */
  readonly isLost: boolean;
  readonly isOverdue: boolean;
  readonly isStuck: boolean;
}

/** What a run keeps for the next one of its slot, if it does not get to its end. */
export class Checkpoint {
  readonly #lock: Lock;
  readonly #key: string;

  /** @internal */
  constructor(lock: Lock, key: string) {
    this.#lock = lock;
    this.#key = key;
  }

  /**
   * Stores it, under the lock of the run: a `Uint8Array` as it is, anything else as JSON.
   *
   * @throws LockLost; or as any write.
   */
  async save(value: unknown): Promise<void> {
    if (value instanceof Uint8Array) await this.#lock.put(this.#key, value);
    else await this.#lock.put(this.#key, jsonText(value), { contentType: JSON_TYPE });
  }

  /** What was saved last: a `Uint8Array`, or a value out of JSON. Nothing checks that it is a `T`. */
  async load<T = unknown>(): Promise<T | undefined> {
    const { inner, resources } = heldOf(this.#lock);
    const found = await present(getObject(inner, resources[0]!, this.#key, {}));
    return found?.contentType === JSON_TYPE ? found.json<T>() : (found?.bytes as T | undefined);
  }
}

/** A run, as its body sees it. */
export interface Run {
  /** Its id, for others who are to tell runs apart. */
  readonly id: string;
  readonly job: string;
  /** As `20261122T020000Z`; with a dash and eight characters behind it for a slot of its own. */
  readonly slot: string;
  /** Which run of its slot it is, from 1. */
  readonly attempt: number;
  readonly shard: number | undefined;
  readonly shards: number | undefined;
  /** Whether there is a checkpoint of an earlier run of this slot. */
  readonly isResumed: boolean;
  readonly checkpoint: Checkpoint;
  /** The lock of the job, under which the run writes. */
  readonly lock: Lock;
  /** Aborted when the lock is lost, when the option `signal` is, and after `maxRuntime`: the body should end then. */
  readonly signal: AbortSignal;
}

/** The body of a run. */
export type RunBody<T> = (run: Run) => T | Promise<T>;

/** One attempt: what came of it, and what its body failed with. */
type Attempt<T> = { readonly end: JobEnd<T>; readonly failure?: { readonly error: unknown } };

/** A job. */
export class Job {
  readonly #inner: Inner;
  readonly #terms: Terms;

  /** @internal */
  constructor(inner: Inner, terms: Terms) {
    this.#inner = inner;
    this.#terms = terms;
  }

  /**
   * Runs the job, unless its slot is done.
   *
   * @throws What the body throws, after that was recorded. LockLost: nothing of the end was recorded. OutcomeUnknown:
   * nobody knows whether it was. Misuse: nobody knows any more whether this slot was done. What `acquire` throws, but
   * that somebody else has the lock.
   */
  async run<T>(body: RunBody<T>): Promise<JobEnd<T>> {
    mustBeFunction("run()", "the body of the run", body);
    const { everyMs, shard, shards, slot: named } = this.#terms;
    const slot = everyMs === undefined ? named : slotAt(everyMs, await gatewaySecond(this.#inner));
    if (shards !== undefined) return this.#shards(shards, slot, body);
    return new Part(this.#inner, this.#terms, shard, slot, body).run();
  }

  /** Runs all shards that nobody else runs, again and again until the slot of all of them is done. */
  async #shards<T>(count: number, slot: number | undefined, body: RunBody<T>): Promise<JobEnd<T>> {
    const { time } = this.#inner;
    const parts: JobEnd<T>[] = [];
    const failures: unknown[] = [];
    let left = Array.from({ length: count }, (_, index) => index);
    let held: number[] = [];
    const work = async (): Promise<void> => {
      while (left.length > 0) {
        const [index] = left.splice(Math.floor(time.draw() * left.length), 1);
        try {
          const part = new Part(this.#inner, this.#terms, { index: index!, count }, slot, body);
          const end = await part.run();
          if (end.status === "held") held.push(index!);
          else parts.push(end);
        } catch (error) {
          // The others are done all the same.
          failures.push(error);
        }
      }
    };
    while (left.length > 0) {
      await Promise.all(Array.from({ length: Math.min(this.#terms.concurrency, left.length) }, work));
      this.#terms.signal?.throwIfAborted();
      [left, held] = [held, []];
      const pauseMs = LOOKS_AGAIN_MS / 2 + portion(LOOKS_AGAIN_MS / 2, time.draw());
      if (left.length > 0) await time.sleepUntil(time.now() + pauseMs, this.#terms.signal);
    }
    if (failures.length > 0) throw failures[0];
    const came = (status: JobEnd<T>["status"]): boolean => parts.some((end) => end.status === status);
    const status = came("succeeded") ? "succeeded" : came("skipped") ? "skipped" : "done before";
    return { status, run: undefined, value: undefined, parts };
  }

  /**
   * How the job stands, or the shard that `shard` names; `undefined`: it never ran.
   *
   * @throws Misuse: the job has `shards`, each of which has a state of its own.
   */
  async state(): Promise<JobState | undefined> {
    const { name, shard, shards } = this.#terms;
    if (shards !== undefined) throw new Misuse("each shard has a state of its own: name it with the option shard");
    const resource = jobResource(name, shard);
    const document = (await present(getObject(this.#inner, resource, STATE, {})))?.json<JobDocument>();
    if (document === undefined) return undefined;
    const now = await gatewaySecond(this.#inner);
    const lock = await lockOf(this.#inner, resource);
    const { expect = {}, running, recent = [], last_success: success } = document;
    const isHeld = ["leased", "breaking", "draining"].includes(lock.state);
    const isRunning = isHeld && running?.acquired_at === lock.acquired_at;
    return {
      document,
      isRunning,
      isLost: running !== undefined && !isRunning,
      isOverdue: isOverdue(success?.slot, now, expect.every_ms, expect.overdue_after_ms),
      isStuck: isRunning && isStuck(lock.age_ms, expect.max_runtime_ms, recent),
    };
  }
}

/** A job without shards, or one shard of it, in one call. */
class Part<T> {
  readonly #inner: Inner;
  readonly #terms: Terms;
  readonly #shard: ShardOf | undefined;
  readonly #body: RunBody<T>;
  readonly #resource: string;
  #newest: number | undefined;
  /** The slots that are caught up after this one. */
  #left: number[] = [];
  /** The slot of its own that is tried again. */
  #again: string | undefined;

  constructor(inner: Inner, terms: Terms, shard: ShardOf | undefined, newest: number | undefined, body: RunBody<T>) {
    this.#inner = inner;
    this.#terms = terms;
    this.#shard = shard;
    this.#newest = newest;
    this.#body = body;
    this.#resource = jobResource(terms.name, shard);
  }

  async run(): Promise<JobEnd<T>> {
    const { catchUp, everyMs } = this.#terms;
    const newest = this.#newest;
    if (newest === undefined || everyMs === undefined || catchUp !== "all") {
      return this.#slot(newest, newest === undefined ? "manual" : "schedule");
    }
    const parts: JobEnd<T>[] = [];
    this.#left = await this.#missed((await this.#read(STATE))?.json<JobDocument>(), everyMs, newest);
    while (this.#left.length > 0 && parts.length < CAUGHT_UP_MAX) {
      const slot = this.#left.shift()!;
      parts.push(await this.#slot(slot, this.#trigger(slot)));
      if (parts.at(-1)?.status === "held") break;
    }
    return { ...parts.at(-1)!, parts };
  }

  async #missed(state: JobDocument | undefined, everyMs: number, newest: number): Promise<number[]> {
    const last = state?.last_slot;
    if (state === undefined || last === undefined) return [newest];
    return caughtUp(everyMs, newest, begins(last), await this.#isDone(state, last));
  }

  /** The reason for which a slot is run that is due. */
  #trigger(slot: number): string {
    return slot === this.#newest ? "schedule" : "catch_up";
  }

  /** Says whether the last slot is done. Its object is read only if the state does not tell. */
  async #isDone({ last: run, forgotten_through: forgotten = "" }: JobDocument, last: string): Promise<boolean> {
    const isTold = run?.slot === last && (run.status === "succeeded" || run.status === "skipped");
    // A forgotten slot counts as done: nobody can tell, so it is not begun again.
    return isTold || last <= forgotten || (await this.#read(`slots/${last}.json`)) !== undefined;
  }

  /** The slot that comes first, if another does: others may have begun slots while the lock was waited for. */
  async #instead(state: JobDocument | undefined, slot: number): Promise<number | undefined> {
    const { everyMs } = this.#terms;
    const last = state?.last_slot;
    if (everyMs === undefined || state === undefined || last === undefined || last === slotText(slot)) return undefined;
    if (isNext(everyMs, slot, begins(last), await this.#isDone(state, last))) return undefined;
    const newest = slotAt(everyMs, await gatewaySecond(this.#inner));
    const [first, ...others] = await this.#missed(state, everyMs, newest);
    if (first === slot) return undefined;
    [this.#newest, this.#left] = [newest, others];
    return first;
  }

  /** Runs one slot, again if its body failed and the caller wants that. */
  async #slot(wanted: number | undefined, trigger: string): Promise<JobEnd<T>> {
    const { backoffMs, retries, signal } = this.#terms;
    const { time } = this.#inner;
    let slot = wanted;
    let failed: Attempt<T>["failure"];
    for (let number = 0; ; number += 1) {
      const { end, failure } = await this.#once(slot, number === 0 ? trigger : "retry");
      // Somebody else goes on with it, and what this body failed with was its end here.
      if (failed !== undefined && end.status === "held") throw failed.error;
      if (failure === undefined) return end;
      failed = failure;
      if (number === retries || signal?.aborted) throw failure.error;
      // A retry is of the slot that failed, also if that was not the one asked for.
      if (slot === undefined) this.#again = end.run?.slot;
      else slot = begins(end.run!.slot);
      await time.sleepUntil(time.now() + backoffMs * 2 ** Math.min(number, 16), signal);
    }
  }

  async #once(slot: number | undefined, trigger: string): Promise<Attempt<T>> {
    const done = slot === undefined ? undefined : await this.#done(slotText(slot));
    if (done !== undefined) return done;
    const taken = await this.#take(slot);
    if (taken === undefined) return { end: { status: "held", run: undefined, value: undefined, parts: [] } };
    let attempt: Attempt<T> | undefined;
    try {
      await runScope(taken.lock, { onLost: "raise", signal: undefined }, async (lock) => {
        attempt = await this.#under(lock, slot, trigger, taken.reason);
      });
    } catch (error) {
      // What becomes of the lock once the end is recorded is no matter.
      if (attempt === undefined || !(error instanceof LockLost)) throw error;
    }
    return attempt!;
  }

  /** Takes the lock, and gives the reason for which its holder was replaced, if so. `undefined`: somebody has it. */
  async #take(slot: number | undefined): Promise<{ lock: Lock; reason?: string | undefined } | undefined> {
    const { lock: options, overlap, reason, wait } = this.#terms;
    const take = async (waits: Terms["wait"]): Promise<Lock | undefined> => {
      try {
        return await acquire(this.#inner, wishOf(this.#inner, this.#resource, { ...options, wait: waits }));
      } catch (error) {
        if (error instanceof Busy && (error.kind === "LockHeld" || error.kind === "WaitElapsed")) return undefined;
        throw error;
      }
    };
    const lock = await take(overlap === "wait" ? (wait ?? "forever") : undefined);
    if (lock !== undefined) return { lock };
    if (overlap !== "replace") return undefined;
    // What is too late to begin ends nobody's run.
    if (isSkipped(this.#terms, slot, await gatewaySecond(this.#inner))) return undefined;
    await new Admin(this.#inner).break(this.#resource, reason!);
    const other = await take(wait ?? REPLACED_WITHIN);
    return other && { lock: other, reason };
  }

  /** Runs a slot under the lock. */
  async #under(
    lock: Lock,
    slot: number | undefined,
    trigger: string,
    replaced: string | undefined,
  ): Promise<Attempt<T>> {
    const terms = this.#terms;
    const resource = this.#resource;
    const id = uuidv7();
    const found = await this.#read(STATE);
    const before = found?.json<JobDocument>();
    if (before !== undefined && before.v !== 1) throw new Misuse(`the state of ${resource} is that of a newer client`);
    let named = slot === undefined ? this.#unfinished(before) : slotText(slot);
    if (named !== undefined) {
      const done = await this.#done(named);
      if (done !== undefined) return done;
      if (slot !== undefined && terms.catchUp === "all" && trigger !== "retry") {
        const first = await this.#instead(before, slot);
        if (first !== undefined) return this.#under(lock, first, this.#trigger(first), replaced);
      }
      if (!named.includes("-") && named <= (before?.forgotten_through ?? "")) {
        throw new Misuse(`nobody knows any more whether ${named} was done: its runs are not kept`);
      }
    }
    const now = named === undefined || terms.catchUp === "none" ? await gatewaySecond(this.#inner) : 0;
    named ??= `${slotText(now)}-${id.slice(-8)}`;
    const path = `${resourcePath(resource)}/objects`;
    const entries = await new Listing<ObjectEntry>(this.#inner, "list", path, { prefix: "runs/" }).all();
    const kept = new Kept(entries.map(({ key }) => key));
    const left = leftover(before, replaced);
    const attempt = Math.max(kept.attempts(named), left?.slot === named ? left.attempt : 0) + 1;
    const { host, pid, program } = this.#inner.platform;
    // What is tried again was begun in time.
    const isLate = trigger !== "retry" && isSkipped(terms, slot, now);
    const checkpoint = `checkpoints/${named}`;
    const isResumed = !isLate && terms.resumes && (await this.#read(checkpoint)) !== undefined;
    const earlier = isResumed ? await this.#read(`runs/${named}.${attempt - 1}.json`) : undefined;
    const record: RunRecord = {
      v: 1,
      run: id,
      job: terms.name,
      ...(this.#shard && { shard: this.#shard.index, shards: this.#shard.count }),
      slot: named,
      attempt,
      status: isLate ? "skipped" : "started",
      owner: lock.owner,
      host: host(),
      ...(pid > 0 && { pid }),
      ...(program !== undefined && { program }),
      trigger,
      acquired_at: (await lockOf(this.#inner, resource)).acquired_at,
      ...(isLate
        ? { started_at: nowText(), finished_at: nowText(), reason: "it was too late for this slot" }
        : { started_at: nowText(), ...(earlier && { resumed_from: `${named}.${attempt - 1}` }) }),
    };
    const commit = lock.commit();
    if (left !== undefined) this.#put(commit, runKey(left), left);
    this.#put(commit, runKey(record), record, { ifAbsent: true });
    if (attempt > 1 && !isResumed) commit.delete(resource, checkpoint);
    let state = afterStart(before, terms, left, record);
    if (isLate) state = this.#forget(commit, state, kept, record, left);
    this.#put(commit, STATE, state, found === undefined ? { ifAbsent: true } : { ifMatch: found.etag });
    if (isLate || terms.isClaimed) this.#settle(commit, record);
    const committed = await sure(commit);
    if (isLate) return { end: { status: "skipped", run: record, value: undefined, parts: [] } };
    return this.#work(lock, record, isResumed, (ended) => this.#end(lock, ended, state, kept, tagOf(committed)));
  }

  /** The slot that a run goes on with that names none. */
  #unfinished(state: JobDocument | undefined): string | undefined {
    if (this.#again !== undefined) return this.#again;
    const last = state?.running ?? state?.last;
    const isOver = last === undefined || last.status === "succeeded" || last.status === "skipped";
    return isOver || !this.#terms.resumes ? undefined : last.slot;
  }

  /** Runs the body, and records what came of it. */
  async #work(
    lock: Lock,
    record: RunRecord,
    isResumed: boolean,
    end: (record: RunRecord) => Promise<void>,
  ): Promise<Attempt<T>> {
    const { time } = this.#inner;
    const { expect, signal: told } = this.#terms;
    const beganMs = time.now();
    const mostMs = expect.max_runtime_ms;
    const tooLong = new AbortController();
    const late = (): void => tooLong.abort(new DOMException(`the run took longer than ${mostMs} ms`, "TimeoutError"));
    const stop = mostMs === undefined ? undefined : time.at(beganMs + mostMs, late);
    const { signal, done } = anySignal(lock.signal, told, tooLong.signal);
    const { run: id, job, slot, attempt, shard, shards } = record;
    const checkpoint = new Checkpoint(lock, `checkpoints/${slot}`);
    const run: Run = { id, job, slot, attempt, shard, shards, isResumed, checkpoint, lock, signal };
    const ended = async (status: RunStatus, reason?: string): Promise<RunRecord> => {
      const took = { finished_at: nowText(), duration_ms: time.now() - beganMs, fence: lock.token };
      const made = { ...record, status, ...took, ...(reason !== undefined && { reason }) };
      await end(made);
      return made;
    };
    let value: T;
    try {
      value = await (0, this.#body)(run);
      // Whatever it gives that was told to end: it may have stopped half-way, and politely.
      if (tooLong.signal.aborted) throw tooLong.signal.reason;
      if (told?.aborted) throw told.reason;
    } catch (error) {
      const isTold = told?.aborted && (error === told.reason || (error as Error | null)?.name === "AbortError");
      const [status, reason] = tooLong.signal.aborted
        ? (["timed_out", undefined] as const)
        : ([isTold ? "cancelled" : "failed", reasonOf(error)] as const);
      const made = await ended(status, reason);
      const failure = { error: status === "timed_out" ? (tooLong.signal.reason as unknown) : error };
      return { end: { status: "succeeded", run: made, value: undefined, parts: [] }, failure };
    } finally {
      stop?.();
      done();
    }
    return { end: { status: "succeeded", run: await ended("succeeded"), value, parts: [] } };
  }

  /** The commit that ends a run. */
  async #end(lock: Lock, record: RunRecord, state: JobDocument, kept: Kept, tag: string | undefined): Promise<void> {
    const ifMatch = tag ?? (await this.#read(STATE))?.etag;
    const commit = lock.commit();
    this.#put(commit, runKey(record), record);
    this.#put(commit, STATE, this.#forget(commit, afterEnd(state, record), kept, record), { ifMatch });
    if (record.status === "succeeded") {
      commit.delete(this.#resource, `checkpoints/${record.slot}`);
      if (!this.#terms.isClaimed) this.#settle(commit, record);
    }
    await sure(commit);
  }

  /** The slot is done with that. */
  #settle(commit: Commit, record: RunRecord): void {
    const { run, slot, status } = record;
    this.#put(commit, `slots/${slot}.json`, { v: 1, run, object: runKey(record), status }, { ifAbsent: true });
  }

  /** Removes what is beyond what is kept, but not what the same commit stores. */
  #forget(commit: Commit, state: JobDocument, kept: Kept, record: RunRecord, left?: RunRecord): JobDocument {
    const { objects, forgotten } = kept.beyond(this.#terms.keep, record, left);
    for (const key of objects) commit.delete(this.#resource, key);
    const { forgotten_through: before = "" } = state;
    return forgotten === undefined || forgotten <= before ? state : { ...state, forgotten_through: forgotten };
  }

  #put(
    commit: Commit,
    key: string,
    value: object,
    condition: { ifAbsent?: boolean; ifMatch?: string | undefined } = {},
  ) {
    commit.put(this.#resource, key, jsonText(value), { contentType: JSON_TYPE, ...condition });
  }

  /** By which run the slot is done. */
  async #done(slot: string): Promise<Attempt<T> | undefined> {
    const done = (await this.#read(`slots/${slot}.json`))?.json<{ object: string }>();
    if (done === undefined) return undefined;
    const run = (await this.#read(done.object))?.json<RunRecord>();
    return { end: { status: "done before", run, value: undefined, parts: [] } };
  }

  #read(key: string): Promise<StoredObject | undefined> {
    return present(getObject(this.#inner, this.#resource, key, {}));
  }
}

/** Sends a commit, and finds out what became of it. `undefined`: it took effect, and nobody knows more. */
async function sure(commit: Commit): Promise<Committed | undefined> {
  try {
    return await commit.send();
  } catch (error) {
    if (!(error instanceof OutcomeUnknown)) throw error;
    const settled = await error.resolve({ within: RESOLVED_WITHIN });
    if (settled.outcome === "not_applied") throw settled.error;
    return undefined;
  }
}

/** The tag of the state that a commit stored, if its answer said so. */
function tagOf(committed: Committed | undefined): string | undefined {
  return committed?.results.find(({ key }) => key === STATE)?.etag ?? undefined;
}

/** What the gateway says of the lock, as it says it. */
function lockOf(inner: Inner, resource: string): Promise<Resource> {
  return inner.json("resource", { method: "GET", path: resourcePath(resource) });
}

/** What time it is, by the one clock that all hosts ask. */
async function gatewaySecond(inner: Inner): Promise<number> {
  const answer = await inner.call("status", { method: "GET", path: "/status" });
  await answer.json();
  const at = Date.parse(answer.headers.get("date") ?? "");
  if (Number.isNaN(at)) throw new GatewayFault("the answer has no Date: something on the way took it out");
  return at / 1000;
}

/** A time for people. */
function nowText(): string {
  return new Date().toISOString();
}
