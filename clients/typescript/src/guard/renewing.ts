// Renewals, in batches (CC31, CC32): whoever is due takes all others along that were not confirmed for a while.

import type { Inner } from "../client/inner.js";
import { unlessAborted } from "../client/signals.js";
import { lossReasonOf } from "../core/classes.js";
import { sent as sentDuration } from "../core/durations.js";
import { errorOfProblem, Misuse, Unavailable, type FenceError, type Problem } from "../core/errors.js";
import { RequestIds } from "../core/ids.js";
import type { Times } from "../core/lease.js";
import { errorOf, isRetried, nothing, summary, type Failure } from "../transport/answer.js";
import { jsonRequest } from "../transport/request.js";
import type { LockRecord, RenewManyAnswer } from "../wire.js";
import type { Held } from "./held.js";

/** The most locks of one call. */
const BATCH_MAX = 1_000;
/** The pause before the next try of a renewal that the holder asked for. */
const AGAIN_MS = 100;

/** What a gateway says of one lock: how it stands, or why it was not renewed. */
type Told =
  | { is: "renewed"; lock: LockRecord }
  | { is: "refused"; code: string; problem?: Problem; words?: string | null | undefined };

/** Renews a guard that is due, and takes others along. Does not wait for the answer. */
export function beginRenewal(first: Held, nowMs: number): void {
  const latenessMs = nowMs - (first.lease.dueMs ?? nowMs);
  if (!first.renewing.tryTake()) return first.lease.renewalBegan(nowMs);
  const patienceMs = first.lease.attemptMs;
  const batch = [first];
  for (const other of first.inner.guards.all()) {
    if (batch.length === BATCH_MAX) break;
    // Not those that would have to wait longer than they may: the batch has the patience of the first.
    const joins = other !== first && other.lease.joins(nowMs) && other.lease.attemptMs >= patienceMs;
    if (joins && other.renewing.tryTake()) batch.push(other);
  }
  // Whatever becomes of this attempt, the next is not before it is over.
  for (const held of batch) {
    held.lease.renewalBegan(nowMs);
    held.changed();
  }
  void first.inner.inBackground(renew(first.inner, batch, patienceMs, latenessMs));
}

async function renew(inner: Inner, batch: readonly Held[], withinMs: number, latenessMs: number): Promise<void> {
  try {
    const sentMs = inner.time.now();
    const ids = batch.map((held) => held.grant.id);
    const told = await ask(inner, ids, withinMs);
    for (const held of batch) {
      if (!(told instanceof Map)) {
        failed(held, summary(told));
        continue;
      }
      const one = told.get(held.grant.id);
      if (one === undefined) failed(held, "the gateway left it out of its answer");
      else learn(held, sentMs, one, latenessMs);
    }
  } finally {
    for (const held of batch) held.renewing.give();
  }
}

/** One call for these locks. Head and body of the answer are bounded alike. */
async function ask(
  inner: Inner,
  ids: readonly string[],
  withinMs: number,
  ttlMs?: number | null,
  signal?: AbortSignal,
): Promise<Map<string, Told> | Failure> {
  const ttl = ttlMs === undefined ? undefined : sentDuration(ttlMs);
  const only = ids.length === 1 ? ids[0] : undefined;
  const limit = { withinMs: withinMs - Math.floor(withinMs / 10) };
  const request =
    only === undefined
      ? jsonRequest("/locks/renew", { ids, ttl }, limit)
      : jsonRequest(`/locks/${only}/renew`, { ttl }, limit);
  const controller = new AbortController();
  const asking = inner.transport.attempt(request, new RequestIds().next(), controller.signal).then(async (reply) => {
    if (reply.is === "problem" && only !== undefined && isAboutLock(reply.problem.code)) {
      const { problem } = reply;
      return new Map<string, Told>([[only, { is: "refused", code: problem.code, problem }]]);
    }
    if (reply.is !== "done") return reply;
    const read = await reply.json<LockRecord & RenewManyAnswer>();
    return read.is === "read" ? toldBy(read.value, only) : read;
  });
  try {
    const told = await inner.time.within(withinMs, unlessAborted(asking, signal));
    if (signal?.aborted) throw signal.reason;
    return told ?? nothing(true, true, `no answer within ${withinMs} ms`);
  } finally {
    controller.abort();
  }
}

function toldBy(answer: LockRecord & RenewManyAnswer, only: string | undefined): Map<string, Told> {
  if (only !== undefined) return new Map([[only, { is: "renewed", lock: answer }]]);
  const told = new Map<string, Told>();
  for (const { id, lock, code, reason } of answer.items) {
    if (lock != null) told.set(id, { is: "renewed", lock });
    else if (code != null) told.set(id, { is: "refused", code, words: reason });
  }
  return told;
}

function isAboutLock(code: string): boolean {
  return lossReasonOf(code) !== undefined || code === "lock-breaking";
}

function learn(held: Held, sentMs: number, told: Told, latenessMs: number): void {
  if (told.is === "renewed") {
    held.learn({ on: "renewed", sentMs, ...timesOf(told.lock) });
    const headroomMs = Math.max(0, (held.lease.deadlineMs ?? Infinity) - held.inner.time.now());
    return held.inner.tell({ type: "renewed", headroomMs, latenessMs });
  }
  const reason = lossReasonOf(told.code);
  held.heardWhy(told.words ?? told.problem?.reason);
  if (told.code === "lock-breaking") breaking(held);
  else if (reason !== undefined) held.learn({ on: "lost", reason }, told.problem);
  else failed(held, told.code);
}

function failed(held: Held, detail: string): void {
  held.learn({ on: "failed" });
  held.inner.tell({ type: "renew_failed", resources: held.resources, detail });
}

/** What is left of a lock, and its ttl; `null`: for ever. */
export function timesOf(lock: LockRecord): Times {
  return { leftMs: lock.expires_in_ms ?? lock.confirm_within_ms ?? null, ttlMs: lock.ttl_ms ?? null };
}

/**
 * An operator is about to break it (CC34): renewals stop, and it is asked when. Until that is known, the deadline is
 * the end.
 */
export function breaking(held: Held): void {
  held.lease.stopRenewing();
  void held.inner.inBackground(askWhen(held));
}

async function askWhen(held: Held): Promise<void> {
  const { inner } = held;
  const { time } = inner;
  while (held.isLive && !inner.closed.signal.aborted) {
    const sentMs = time.now();
    const request = { method: "GET", path: `/locks/${held.grant.id}` } as const;
    const reply = await inner.transport.attempt(request, new RequestIds().next());
    const read = reply.is === "done" ? await reply.json<LockRecord>() : undefined;
    if (read?.is === "read") {
      held.heardWhy(read.value.reason);
      return held.learn({ on: "breaking", sentMs, leftMs: Math.max(0, read.value.expires_in_ms ?? 0) });
    }
    await time.sleepUntil(time.now() + 1_000, undefined, false);
  }
}

/** Why a lock that was granted is not given out (CC19). */
export const TOO_LATE = "the lock was granted, but too little of its ttl is left: answers take too long for it";

/**
 * Renews a guard before it is given out, so that its time begins now, as long as the lock can be there; it may last for
 * `leftMs` from now on (CC19). Fails if it is over, if nobody answers, or if less is left than a holder needs.
 */
export async function renewFirst(held: Held, leftMs: number | null, signal?: AbortSignal): Promise<void> {
  const { inner } = held;
  const endsMs = inner.time.now() + (leftMs ?? Infinity);
  await renewUntil(held, undefined, signal, Math.min(inner.callUntilMs(), endsMs));
  held.learn({ on: "beat" });
  held.check();
  if (!held.lease.canBegin(inner.time.now())) throw new Unavailable({ detail: TOO_LATE });
}

/**
 * A renewal that the holder asked for: until it is answered, or the deadline of the call has passed. With a ttl the
 * lock keeps that (`null`: infinite).
 */
export async function renewNow(held: Held, ttlMs?: number | null, signal?: AbortSignal): Promise<void> {
  held.learn({ on: "beat" });
  await renewUntil(held, ttlMs, signal, held.inner.callUntilMs());
}

async function renewUntil(
  held: Held,
  ttlMs: number | null | undefined,
  signal: AbortSignal | undefined,
  untilMs: number,
): Promise<void> {
  const { inner } = held;
  const { time } = inner;
  await held.renewing.with(async () => {
    for (;;) {
      held.check();
      const sentMs = time.now();
      if (ttlMs !== undefined) {
        // It may take effect although nobody hears of it: from now on the shorter of the two counts.
        held.lease.ttlAsked(sentMs, ttlMs);
        held.changed();
      }
      const told = await ask(inner, [held.grant.id], Math.min(inner.callWithinMs, held.lease.attemptMs), ttlMs, signal);
      if (told instanceof Map) return conclude(held, sentMs, told.get(held.grant.id), ttlMs);
      if (!isRetried(told) || time.now() + AGAIN_MS >= untilMs) throw errorOf(told, 1);
      await time.sleepUntil(time.now() + AGAIN_MS, signal);
    }
  });
}

function conclude(held: Held, sentMs: number, told: Told | undefined, ttlMs: number | null | undefined): void {
  if (told === undefined) throw new Misuse("the gateway left the lock out of its answer");
  if (told.is === "renewed" && ttlMs !== undefined) held.lease.ttlKnown(told.lock.ttl_ms ?? null);
  learn(held, sentMs, told, 0);
  held.check();
  if (told.is === "refused") throw refusal(told.code, told.problem);
}

function refusal(code: string, problem: Problem | undefined): FenceError {
  return problem === undefined ? new Misuse(`the lock was not renewed: ${code}`) : errorOfProblem(problem, 1);
}
