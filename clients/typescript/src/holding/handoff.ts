// Hands a lock over to another process, without a moment in which nobody holds it (CC50).

import { versionsOf } from "../acquire/acquire.js";
import { CALL, type CallOptions, type Inner } from "../client/inner.js";
import { lossReasonOf } from "../core/classes.js";
import { FenceError, GatewayFault, Misuse, Unavailable } from "../core/errors.js";
import { isUuid, uuidv7 } from "../core/ids.js";
import { Lease } from "../core/lease.js";
import { ownerName, principalName } from "../core/names.js";
import { checked, type Names } from "../core/options.js";
import { base64, fromBase64 } from "../core/sha256.js";
import { Held } from "../guard/held.js";
import { Lock } from "../guard/lock.js";
import { renewFirst, renewNow, timesOf } from "../guard/renewing.js";
import { AWAITED_MS, bury } from "../release.js";
import { jsonRequest } from "../transport/request.js";
import type { LockRecord } from "../wire.js";

/** How long a lock that nobody knows of is given back, before the guard looks whether it is good still. */
const GIVEN_UP_WITHIN_MS = 60_000;
const PREFIX = "fence1:";

/** Who gets a lock that is handed over. */
export interface Successor {
  /** What it calls itself, shown to everybody. */
  readonly owner: string;
  /** The principal whose the lock will be; by default it stays the caller's. */
  readonly principal?: string | undefined;
}

const SUCCESSOR_NAMES: Names<Successor> = { owner: "text", principal: "text" };

/** What a handoff tells. */
interface HandedOver {
  readonly id: string;
  readonly token: string;
  readonly resources: readonly string[];
  readonly owner: string;
  readonly principal: string | undefined;
}

/** A lock on its way to its successor. Whoever reads it can take the lock: treat it as a secret. */
export class Handoff {
  readonly #id: string;
  readonly #token: string;
  readonly resources: readonly string[];
  readonly owner: string;
  /** The principal whose it is, where rules of access are in force. */
  readonly principal: string | undefined;

  private constructor({ id, token, resources, owner, principal }: HandedOver) {
    this.#id = id;
    this.#token = token;
    this.resources = resources;
    this.owner = owner;
    this.principal = principal;
  }

  /** @internal */
  static of(handed: HandedOver): Handoff {
    return new Handoff(handed);
  }

  /** The id of the successor's lock. */
  get id(): string {
    return this.#id;
  }

  /** Its token. */
  get token(): string {
    return this.#token;
  }

  /** One line of text, for a message. */
  toText(): string {
    const { id, token, resources, owner, principal } = this;
    const json = new TextEncoder().encode(JSON.stringify({ id, token, resources, owner, principal }));
    return PREFIX + base64(json).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
  }

  /**
   * Reads that line.
   *
   * @throws Misuse: it is no such line.
   */
  static fromText(text: string): Handoff {
    const line = text.trim();
    const coded = line.slice(PREFIX.length).replaceAll("-", "+").replaceAll("_", "/");
    const json = line.startsWith(PREFIX) ? fromBase64(coded) : undefined;
    const handoff = json && handoffOf(new TextDecoder().decode(json));
    if (handoff === undefined) throw new Misuse("a handoff is one line that begins with fence1:");
    return handoff;
  }
}

function handoffOf(json: string): Handoff | undefined {
  let read: Partial<Record<keyof Handoff, unknown>> | null;
  try {
    read = JSON.parse(json) as typeof read;
  } catch {
    return undefined;
  }
  const { id, token, resources, owner, principal } = read ?? {};
  const isNames = Array.isArray(resources) && resources.length >= 1 && resources.length <= 32;
  const isTexts = isNames && resources.every((name) => typeof name === "string");
  if (typeof id !== "string" || !isUuid(id) || typeof owner !== "string" || !isTexts || !isTokenText(token)) {
    return undefined;
  }
  const known = typeof principal === "string" ? principal : undefined;
  return Handoff.of({ id, token, resources: resources as string[], owner, principal: known });
}

/** Whether that is a token: digits, from 1. */
export function isTokenText(token: unknown): token is string {
  return typeof token === "string" && /^[1-9][0-9]{0,18}$/.test(token);
}

/** Hands the lock of a guard to a successor. */
export async function transfer(held: Held, to: string | Successor, options: CallOptions): Promise<Handoff> {
  const successor = typeof to === "string" ? { owner: to } : checked("transfer()", to, SUCCESSOR_NAMES);
  const owner = ownerName(successor.owner);
  const principal = successor.principal === undefined ? undefined : principalName(successor.principal);
  const id = uuidv7();
  const { inner } = held;
  held.check();
  // 1. No renewal beside it, which would hear of the successor; no news of it either.
  return held.renewing.with(async () => {
    held.isTransferring = true;
    // 2. What is under way under the old token ends first, or it bounces.
    await inner.time.within(AWAITED_MS, held.numbers.allEnded());
    // 3. The call, always with the same id: until it is answered, the successor's lock may exist.
    const request = jsonRequest(`/locks/${held.grant.id}/transfer`, { owner, id, principal });
    try {
      const lock = await inner.json<LockRecord>("transfer", request, options);
      if (!isTokenText(lock.token)) throw new GatewayFault("the lock was handed over, but the answer has no token");
      held.learn({ on: "lost", reason: "transferred" });
      held.ended("transferred");
      return Handoff.of({ ...lock, token: lock.token, principal: lock.principal ?? undefined });
    } catch (error) {
      held.isTransferring = false;
      // A gateway that refused the only attempt: there is no successor, and this guard is as it was.
      if (!isDefiniteRefusal(error)) void inner.inBackground(giveUp(held, id));
      const reason = error instanceof FenceError && error.code !== undefined ? lossReasonOf(error.code) : undefined;
      if (reason !== undefined) held.learn({ on: "lost", reason });
      throw error;
    }
  });
}

function isDefiniteRefusal(error: unknown): boolean {
  const isDoubtful = error instanceof Unavailable || error instanceof GatewayFault;
  return error instanceof FenceError && error.attempts <= 1 && error.code !== undefined && !isDoubtful;
}

/** Gives a successor's lock back that nobody knows of, and lets the guard know whether it is still good. */
async function giveUp(held: Held, id: string): Promise<void> {
  await bury(held.burial(id), GIVEN_UP_WITHIN_MS);
  await renewNow(held);
}

/** Options of a lock that is taken up. */
export interface AdoptOptions extends CallOptions {
  /** Writes have numbers: only if nobody else writes, or has written, under this token (CC40). */
  readonly numbers?: boolean | undefined;
  /** What the guard does when its deadline has passed without an answer; by default it is lost. */
  readonly onUncertain?: "stop" | "hold" | undefined;
}

const ADOPT_NAMES: Names<AdoptOptions> = { ...CALL, numbers: "flag", onUncertain: { stop: true, hold: true } };

/** Takes up a lock that was handed over: renews it at once, which shows that it is good. */
export async function adopt(inner: Inner, handoff: Handoff, options: AdoptOptions): Promise<Lock> {
  checked("adopt()", options, ADOPT_NAMES);
  const { time } = inner;
  const sentMs = time.now();
  const request = jsonRequest(`/locks/${handoff.id}/renew`, {});
  const lock = await inner.json<LockRecord>("adopt", request, { signal: options.signal });
  const writers = lock.writers ?? [];
  const terms = { onUncertain: options.onUncertain ?? "stop", isRenewed: true } as const;
  const times = timesOf(lock);
  const nowMs = time.now();
  const known = new Lease(nowMs, sentMs, times, terms, time.draw());
  // Of several attempts the answered one may have been sent long after the first.
  const isProven = known.canBegin(nowMs);
  const held = new Held(inner, {
    id: handoff.id,
    token: handoff.token,
    resources: Array.isArray(lock.resources) ? [...lock.resources].sort() : handoff.resources,
    owner: handoff.owner,
    versions: versionsOf(lock),
    principal: lock.principal ?? undefined,
    writers,
    isOurs: true,
    isNumbered: (options.numbers ?? false) && writers.length === 0,
    isOrdered: false,
    lease: isProven ? known : Lease.unproven(nowMs, times.ttlMs, terms, time.draw()),
  });
  if (!isProven) await renewFirst(held, times.leftMs, options.signal);
  held.check();
  return new Lock(held, true);
}
