// An acquire under way: its attempts, its guard, and its burial if it comes to nothing (CC14 to CC19).

import type { Inner } from "../client/inner.js";
import { anySignal } from "../client/signals.js";
import { Acquiring, type AcquireHeard } from "../core/acquiring.js";
import { Backoff, portion } from "../core/backoff.js";
import { sent as sentDuration } from "../core/durations.js";
import { Busy, classOfProblem, Unavailable, WouldDeadlock, type FenceError } from "../core/errors.js";
import { RequestIds, uuidv7 } from "../core/ids.js";
import { Lease } from "../core/lease.js";
import { Held } from "../guard/held.js";
import { Lock } from "../guard/lock.js";
import { isHeldHere } from "../guard/registry.js";
import { renewFirst, timesOf, TOO_LATE } from "../guard/renewing.js";
import { s3AccessOf } from "../holding/s3.js";
import { AWAITED_MS, bury } from "../release.js";
import { errorOf, summary, type Failure, type Reply } from "../transport/answer.js";
import { jsonRequest, type Request } from "../transport/request.js";
import type { LockRecord } from "../wire.js";
import type { Wish } from "./wish.js";

/** What came of an attempt: the lock, that it is ours but not in force yet, or anything else. */
type Heard = { is: "granted"; lock: LockRecord & { token: string } } | { is: "draining" } | Failure;

const DRAINING = "the lock is not in force yet: effects of older tokens are under way";

/** Takes a lock. */
export async function acquire(inner: Inner, wish: Wish): Promise<Lock> {
  if (isHeldHere(inner, wish.resources)) {
    throw new WouldDeadlock(
      "this scope holds the lock already, and locks are not re-entrant: it would wait for itself",
    );
  }
  const going = new Acquisition(inner, wish).go();
  // The end of the client waits for what this has to give back.
  void inner.inBackground(going);
  return going;
}

class Acquisition {
  readonly #inner: Inner;
  readonly #wish: Wish;
  readonly #machine: Acquiring;
  readonly #ids = new RequestIds();
  readonly #beganMs: number;
  readonly #untilMs: number;
  #id = uuidv7();
  #backoff = new Backoff();

  constructor(inner: Inner, wish: Wish) {
    this.#inner = inner;
    this.#wish = wish;
    this.#machine = new Acquiring(wish.waitMs);
    this.#beganMs = inner.time.now();
    this.#untilMs = wish.waitMs === 0 ? inner.callUntilMs() : this.#beganMs + wish.waitMs;
  }

  async go(): Promise<Lock> {
    const inner = this.#inner;
    if (this.#wish.signal !== undefined) inner.platform.allowListeners(this.#wish.signal);
    const { signal, done } = anySignal(this.#wish.signal, inner.closing.signal);
    try {
      const lock = await this.#attempts(signal);
      inner.called("acquire", this.#beganMs, this.#ids.attempts);
      return lock;
    } catch (error) {
      inner.called("acquire", this.#beganMs, this.#ids.attempts, error);
      // Waits for the burial, so that whoever is told that nothing is held can rely on it (CC18).
      await this.#bury();
      throw error;
    } finally {
      done();
    }
  }

  async #attempts(signal: AbortSignal): Promise<Lock> {
    const { time } = this.#inner;
    for (;;) {
      signal.throwIfAborted();
      // 1. One attempt, under the id of this acquire.
      const sentMs = time.now();
      const waitMs = this.#machine.waitMs(this.#untilMs - sentMs);
      this.#machine.sent();
      const reply = await this.#inner.transport.attempt(this.#request(waitMs), this.#ids.next(), signal);
      const heard = await heardIn(reply);
      if (heard.is === "nothing") await this.#inner.noteSlowness(heard);
      // 2. What it says, and what follows.
      const taken = await this.#follow(heard, sentMs, waitMs ?? 0, signal);
      if (taken !== undefined) return taken;
    }
  }

  /** Does what follows from an answer; gives the lock once it is ours. */
  async #follow(heard: Heard, sentMs: number, waitMs: number, signal: AbortSignal): Promise<Lock | undefined> {
    const { time } = this.#inner;
    const next = this.#machine.judge(saidBy(heard));
    const nowMs = time.now();
    const leftMs = this.#untilMs - nowMs;
    let pauseMs: number | undefined;
    switch (next.do) {
      case "take": {
        // Whoever gave up meanwhile, or closed the client, gets no guard.
        signal.throwIfAborted();
        const lock = heard.is === "granted" ? await this.#take(heard.lock, sentMs, signal) : undefined;
        if (lock !== undefined) return lock;
        pauseMs = this.#machine.wasted() === "anew" ? await this.#anew() : undefined;
        break;
      }
      case "wait-on":
        // A gateway that did not wait as it was asked to is not asked at once.
        if (nowMs < sentMs + Math.floor(waitMs / 2)) pauseMs = this.#backoff.next(time.draw(), undefined, leftMs);
        else {
          this.#backoff = new Backoff();
          pauseMs = leftMs > 0 ? 0 : undefined;
        }
        break;
      case "again": {
        const againMs = this.#wish.retries ? this.#backoff.next(time.draw(), next.floorMs, leftMs) : undefined;
        pauseMs = againMs !== undefined && againMs < leftMs ? againMs : undefined;
        break;
      }
      case "anew":
        pauseMs = await this.#anew();
        break;
      case "later":
        pauseMs = 1_000 + portion(4_000, time.draw());
        break;
      case "give-up":
        pauseMs = undefined;
    }
    if (pauseMs === undefined) throw errorIn(heard, this.#ids.attempts);
    if (pauseMs > 0) {
      this.#inner.tell({ type: "retry", call: "acquire", attempt: this.#ids.attempts, detail: summaryOf(heard) });
      await time.sleepUntil(time.now() + pauseMs, signal);
    }
    return undefined;
  }

  #request(waitMs: number | undefined): Request {
    const { resources, owner, ttlMs, maxHoldMs, metadata, writers, onlyIfExists } = this.#wish;
    // A field is sent only if the caller set it: older gateways refuse those that they do not know (CC59).
    const body = {
      ...(resources.length === 1 ? { resource: resources[0] } : { resources }),
      owner,
      id: this.#id,
      ttl: sentDuration(ttlMs),
      max_hold: maxHoldMs === undefined ? undefined : sentDuration(maxHoldMs),
      metadata,
      only_if_exists: onlyIfExists || undefined,
      wait: waitMs === undefined ? undefined : sentDuration(waitMs),
      writers: writers.length === 0 ? undefined : writers,
    };
    return jsonRequest("/locks", body, { waitMs });
  }

  /**
   * The old id is over: another one, after a pause. What may be left of the old one is given back first, or the new one
   * would find it in its way.
   */
  async #anew(): Promise<number | undefined> {
    await this.#bury();
    this.#id = uuidv7();
    const leftMs = this.#untilMs - this.#inner.time.now();
    return leftMs > 0 ? this.#backoff.next(this.#inner.time.draw(), undefined, leftMs) : undefined;
  }

  /** Gives back what may be left of the id. */
  async #bury(): Promise<void> {
    if (!this.#machine.mayBeLeft) return;
    this.#machine.forget();
    const { resources, ttlMs } = this.#wish;
    await bury({ inner: this.#inner, id: this.#id, resources, ttlMs }, AWAITED_MS);
  }

  /**
   * A guard for the grant, whose time begins with the grant and not with the wait before it; `undefined`: it is over
   * already, or too little of it is left (CC19).
   */
  async #take(lock: LockRecord & { token: string }, sentMs: number, signal: AbortSignal): Promise<Lock | undefined> {
    const inner = this.#inner;
    const wish = this.#wish;
    const nowMs = inner.time.now();
    const times = timesOf(lock);
    const granted = new Lease(nowMs, sentMs, times, wish.terms, inner.time.draw());
    // Nobody knows when in the wait it was granted: where that matters, its clock begins with a renewal.
    const isProven = times.ttlMs !== null && granted.canBegin(nowMs);
    const lease = isProven ? granted : Lease.unproven(nowMs, times.ttlMs, wish.terms, inner.time.draw());
    const held = new Held(inner, {
      id: this.#id,
      token: lock.token,
      resources: Array.isArray(lock.resources) ? [...lock.resources].sort() : wish.resources,
      owner: wish.owner,
      versions: versionsOf(lock),
      principal: lock.principal ?? undefined,
      writers: lock.writers ?? [],
      s3: lock.s3 == null ? undefined : s3AccessOf(lock.s3),
      isOurs: true,
      isNumbered: wish.isNumbered,
      isOrdered: wish.isOrdered,
      lease,
    });
    if (!isProven && !(await isConfirmed(held, times.leftMs, signal))) return undefined;
    this.#machine.forget();
    inner.tell({ type: "acquired", resources: held.resources, waitedMs: inner.time.now() - this.#beganMs });
    return new Lock(held, wish.isWatched);
  }
}

/** Renews a new guard; one that is not confirmed ends, and its id is buried by whoever asked for it. */
async function isConfirmed(held: Held, leftMs: number | null, signal: AbortSignal): Promise<boolean> {
  try {
    await renewFirst(held, leftMs, signal);
    return true;
  } catch {
    held.ended("unconfirmed");
    signal.throwIfAborted();
    return false;
  }
}

/** The versions of the resources of a lock. */
export function versionsOf(lock: LockRecord): Map<string, number> {
  return new Map((lock.versions ?? []).map((version, at) => [lock.resources[at] ?? "", version]));
}

async function heardIn(reply: Reply): Promise<Heard> {
  if (reply.is !== "done") return reply;
  const read = await reply.json<LockRecord | null>();
  if (read.is === "foreign") return noLock();
  if (read.is !== "read") return read;
  const lock = read.value;
  if (typeof lock !== "object" || lock === null) return noLock();
  if (lock.token == null || lock.state === "draining") return { is: "draining" };
  if (lock.s3 != null && s3AccessOf(lock.s3) === undefined) return noLock();
  return typeof lock.token === "string" ? { is: "granted", lock: lock as LockRecord & { token: string } } : noLock();
}

/** As a gateway in between that answers nonsense: again, elsewhere perhaps. */
function noLock(): Failure {
  return { is: "foreign", status: 502, detail: "no lock in the answer" };
}

function saidBy(heard: Heard): AcquireHeard {
  switch (heard.is) {
    case "granted":
    case "draining":
      return { is: heard.is };
    case "problem": {
      const { code, retry_after_ms } = heard.problem;
      return { is: "problem", code, class: classOfProblem(heard.problem), retryAfterMs: retry_after_ms ?? undefined };
    }
    case "foreign":
      return { is: "foreign", status: heard.status };
    case "nothing":
      return { is: heard.wasSent ? "unanswered" : "unsent" };
    case "unsendable":
      return { is: "unsendable" };
  }
}

function summaryOf(heard: Heard): string {
  if (heard.is === "granted") return TOO_LATE;
  return heard.is === "draining" ? DRAINING : summary(heard);
}

function errorIn(heard: Heard, attempts: number): FenceError {
  if (heard.is === "granted") return new Unavailable({ detail: TOO_LATE, attempts });
  if (heard.is === "draining") return new Busy({ detail: DRAINING, attempts }, undefined, "ResourceDraining");
  return errorOf(heard, attempts);
}
