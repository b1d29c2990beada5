// Follows the events of a lock (CC39): a loss is known before the next renewal tells it. Silence means nothing: the
// deadline alone decides.

import { portion } from "../core/backoff.js";
import type { LossReason } from "../core/classes.js";
import { RequestIds } from "../core/ids.js";
import { SseParser } from "../core/sse.js";
import type { Answer } from "../transport/answer.js";
import { STREAM_IDLE_MS, type Request } from "../transport/request.js";
import type { LockEvent } from "../wire.js";
import type { Held } from "./held.js";
import { breaking } from "./renewing.js";

/** A gateway that refuses a stream is not asked for one for so long. */
const REFUSED_MS = 60_000;
/** A stream that lasted for so long was a good one. */
const GOOD_MS = 30_000;
const PAUSE_MS = 500;
const PAUSE_MS_MAX = 30_000;

const REASONS: Record<string, LossReason> = {
  superseded: "superseded",
  broken: "broken",
  void: "void",
  released: "released_elsewhere",
};

/** Follows until the guard is over. */
export async function follow(held: Held): Promise<void> {
  const { inner } = held;
  const { time } = inner;
  const over = new AbortController();
  held.onEnd(() => over.abort());
  let pauseMs = PAUSE_MS;
  while (held.isLive) {
    const beganMs = time.now();
    // Of the streams that a client may have, those of locks are the first to do without.
    const give = inner.streamsRefusedUntilMs <= beganMs ? inner.takeStream() : undefined;
    try {
      if (give !== undefined) await once(held, over.signal);
    } finally {
      give?.();
    }
    // Whoever ends streams at once is asked less and less often.
    pauseMs = time.now() > beganMs + GOOD_MS ? PAUSE_MS : Math.min(PAUSE_MS_MAX, pauseMs * 2);
    const fromMs = Math.max(time.now(), inner.streamsRefusedUntilMs);
    await time.sleepUntil(fromMs + Math.floor(pauseMs / 2) + portion(pauseMs, time.draw()), over.signal, false);
  }
}

async function once(held: Held, over: AbortSignal): Promise<void> {
  const request: Request = {
    method: "GET",
    path: `/locks/${held.grant.id}/events`,
    headers: { accept: "text/event-stream" },
    idleMs: STREAM_IDLE_MS,
    isBackground: true,
  };
  const reply = await held.inner.transport.attempt(request, new RequestIds().next(), over);
  if (reply.is === "done") return read(held, reply);
  const status = reply.is === "problem" ? reply.problem.status : reply.is === "foreign" ? reply.status : 0;
  if (status === 429 || status === 503) held.inner.streamsRefusedUntilMs = held.inner.time.now() + REFUSED_MS;
  if (reply.is === "problem") held.refused(reply.problem);
}

async function read(held: Held, answer: Answer): Promise<void> {
  const parser = new SseParser();
  while (held.isLive) {
    const piece = await answer.next();
    if (piece === undefined || "is" in piece) return;
    for (const item of parser.push(piece)) {
      if (item.is === "too-long") return answer.discard();
      if (item.is === "event") learn(held, item.event, item.data);
    }
  }
  answer.discard();
}

function learn(held: Held, name: string, data: string): void {
  let event: LockEvent | null;
  try {
    event = JSON.parse(data) as LockEvent | null;
  } catch {
    return;
  }
  if (typeof event?.state !== "string") return;
  if (event.state === "broken" || event.state === "breaking") held.heardWhy(event.reason);
  if (name === "lost" || name === "released") {
    held.learn({ on: "lost", reason: REASONS[event.state] ?? "gone" });
  } else if (name === "breaking") {
    // Nobody knows how long the event was on its way: the lock is asked for the time.
    breaking(held);
  }
}
