// A body under a lock: it is told by the lock's signal, and the lock is given back when it ends (CC43 to CC46).

import type { LossReason } from "./core/classes.js";
import { LockLost } from "./core/errors.js";
import { leave, type BodyEnd } from "./core/leaving.js";
import { heldOf } from "./guard/guard.js";
import type { Lock } from "./guard/lock.js";
import { inScope } from "./guard/registry.js";

/** How a scope behaves. */
export interface ScopeTerms {
  /** What the scope gives if the lock was lost, but its body ended well: by default, `raise`, that it was lost. */
  readonly onLost: "raise" | "ignore";
  /** The caller's own signal. */
  readonly signal: AbortSignal | undefined;
}

/** Runs the body, and gives the lock back. */
export async function runScope<T>(lock: Lock, terms: ScopeTerms, body: (lock: Lock) => T | Promise<T>): Promise<T> {
  // The timers of guards do not keep a process alive; an open scope does.
  const letGo = heldOf(lock).inner.time.keepAlive();
  let value: T | undefined;
  let failure: unknown;
  let end: BodyEnd = "returned";
  try {
    value = await inScope(heldOf(lock), async () => body(lock));
  } catch (error) {
    failure = error;
    end = howItFailed(error, lock, terms.signal);
  }
  // The lock is asked here, so that it is not collected before.
  const { outcome, release } = leave(end, heldOf(lock).lostReason, terms.onLost);
  try {
    if (release === "awaited") await lock.release();
    else if (release === "background") heldOf(lock).drop();
  } finally {
    letGo();
  }
  if (outcome.is === "lost") throw lossOf(lock, outcome.reason);
  if (outcome.is === "value") return value as T;
  throw failure;
}

function howItFailed(error: unknown, lock: Lock, signal: AbortSignal | undefined): BodyEnd {
  const { signal: lost } = lock;
  if (lost.aborted && (error === lost.reason || isAbort(error) || isSameLoss(error, lost.reason))) return "cancelled";
  return signal?.aborted && error === signal.reason ? "dropped" : "failed";
}

function isAbort(error: unknown): boolean {
  return (error as { name?: unknown } | null)?.name === "AbortError";
}

/** What a write of this lock was told, or `check()`. */
function isSameLoss(error: unknown, loss: unknown): boolean {
  return error instanceof LockLost && loss instanceof LockLost && error.reason === loss.reason;
}

function lossOf(lock: Lock, reason: LossReason): LockLost {
  const loss = heldOf(lock).loss();
  return loss.reason === reason ? loss : new LockLost(reason);
}
