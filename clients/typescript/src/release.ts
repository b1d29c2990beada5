// Gives locks back, and buries ids whose grant may still be on its way (CC18, CC43).

import type { Inner } from "./client/inner.js";
import { Backoff } from "./core/backoff.js";
import { RequestIds } from "./core/ids.js";
import { floorMs, summary, type Reply } from "./transport/answer.js";

/** How long the holder waits for its release to be answered. */
export const AWAITED_MS = 5_000;
/** A lock that was not given back is over this long after its ttl, at the latest. */
const AFTER_TTL_MS = 60_000;
/** The longest pause between two attempts that nobody waits for. */
const PAUSE_MS = 30_000;

/** An id to be given back, whether or not a lock was granted under it. */
export interface Burial {
  readonly inner: Inner;
  readonly id: string;
  readonly resources: readonly string[];
  /** The lock's ttl, after which it is over by itself; `null`: never, so that nobody ever stops asking. */
  readonly ttlMs: number | null;
}

/**
 * Gives an id back in the background, and waits for that up to so long. Gives `true` once it is answered: nothing of
 * the id will ever take effect any more.
 */
export async function bury(burial: Burial, withinMs: number): Promise<boolean> {
  const going = burial.inner.inBackground(untilAnswered(burial));
  return (await burial.inner.time.within(withinMs, going)) ?? false;
}

/** The same, without waiting. */
export function buryLater(burial: Burial): void {
  void burial.inner.inBackground(untilAnswered(burial));
}

/** Asks until a 2xx says that the id is over, or a gateway that the lock is not ours. */
async function untilAnswered({ inner, id, resources, ttlMs }: Burial): Promise<boolean> {
  const { time } = inner;
  const beganMs = time.now();
  const untilMs = ttlMs === null ? Infinity : beganMs + ttlMs + AFTER_TTL_MS;
  const ids = new RequestIds();
  const backoff = new Backoff();
  for (;;) {
    const reply = await attempt(inner, id, ids.next());
    if (reply?.is === "done") {
      reply.discard();
      return true;
    }
    if (ids.attempts === 1) {
      inner.tell({ type: "release_failed", resources, detail: reply === undefined ? "it failed" : summary(reply) });
    }
    // Another principal's, such as a successor's: it is not ours to give back, and never will be.
    if (reply?.is === "problem" && reply.problem.code === "lock-not-found") return false;
    const now = time.now();
    if (now >= untilMs || inner.closed.signal.aborted) return false;
    // The longer nobody answers, the less often is asked.
    const pauseMs = backoff.next(time.draw(), reply && floorMs(reply), PAUSE_MS) ?? PAUSE_MS;
    const patientMs = Math.min(PAUSE_MS, Math.floor((now - beganMs) / 8));
    await time.sleepUntil(now + Math.max(10, pauseMs, patientMs), inner.closed.signal, false);
  }
}

/** One attempt. A credential that fails in its own way is an attempt that failed. */
async function attempt(inner: Inner, id: string, requestId: string): Promise<Reply | undefined> {
  try {
    return await inner.transport.attempt({ method: "DELETE", path: `/locks/${id}` }, requestId, inner.closed.signal);
  } catch {
    return undefined;
  }
}
