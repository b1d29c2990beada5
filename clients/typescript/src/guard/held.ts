// What all parts of the client know of one guard: its token, its clock, its signal. The public guards refer to it, and
// it does not refer to them, so that a guard that nobody has any more can be noticed.

import type { Inner } from "../client/inner.js";
import { Turn } from "../client/turn.js";
import { isDeadEverywhere, lossReasonOf, type LossReason } from "../core/classes.js";
import { detailsOf, LockLost, type Problem } from "../core/errors.js";
import { Lease, type Effects, type GuardState, type LeaseInput } from "../core/lease.js";
import type { S3Access } from "../holding/s3.js";
import { AWAITED_MS, bury, buryLater, type Burial } from "../release.js";
import { isServer } from "../transport/runtime.js";
import type { Stop } from "../transport/time.js";
import { Numbers } from "./numbers.js";
import { beginRenewal } from "./renewing.js";
import { follow } from "./watching.js";

/** How long a lock is held before its events are followed: short sections never pay for it (CC39). */
const WATCHED_AFTER_MS = 5_000;

/** What a guard is made of. */
export interface Grant {
  readonly id: string;
  readonly token: string;
  readonly resources: readonly string[];
  readonly owner: string;
  /** The versions of the resources when it was granted, as far as they are known. */
  readonly versions?: ReadonlyMap<string, number>;
  /** Whose it is, as the gateway said. */
  readonly principal?: string | undefined;
  /** Who else may write under it, as the gateway said. */
  readonly writers?: readonly string[];
  /** What S3 tools write with under it, as the answer said that granted it. No later answer changes it (CC14b). */
  readonly s3?: S3Access | undefined;
  /** Whether the lock is ours to give back. Not so for a fence, or a token that was lent. */
  readonly isOurs: boolean;
  /** Whether writes have numbers (CC23). Not so if several processes share the token. */
  readonly isNumbered: boolean;
  /** With it, one write at a time. */
  readonly isOrdered: boolean;
  readonly lease: Lease;
}

/** One guard. */
export class Held {
  readonly inner: Inner;
  readonly grant: Grant;
  readonly resources: readonly string[];
  readonly isNumbered: boolean;
  readonly numbers = new Numbers();
  readonly inOrder: Turn | undefined;
  /** Had by whoever renews it: answers never overtake each other. */
  readonly renewing = new Turn();
  readonly grantedMs: number;
  readonly lease: Lease;
  /** Whether a transfer is under way: what is heard of a successor is no loss. */
  isTransferring = false;
  readonly #signal = new AbortController();
  /** What the gateway said when it was lost, if it said something. */
  #lossProblem: Problem | undefined;
  /** Why an operator breaks it, in the operator's words, as heard last. */
  #words: string | undefined;
  #isBuried = false;
  #hasEnded = false;
  readonly #ends: (() => void)[] = [];
  /** When its events are followed; `undefined`: never, or they are. */
  #watchesMs: number | undefined;
  #armedMs = Infinity;
  #disarm: Stop | undefined;

  constructor(inner: Inner, grant: Grant) {
    this.inner = inner;
    this.grant = grant;
    this.resources = grant.resources;
    this.isNumbered = grant.isNumbered;
    this.inOrder = grant.isOrdered ? new Turn() : undefined;
    this.grantedMs = inner.time.now();
    this.lease = grant.lease;
    inner.platform.allowListeners(this.#signal.signal);
    inner.guards.add(this);
  }

  /** Begins to keep the guard: gives the signal in time, and has it renewed (CC38). */
  keep(isWatched: boolean): void {
    if (isWatched && isServer) this.#watchesMs = this.grantedMs + WATCHED_AFTER_MS;
    this.#arm();
  }

  /** The signal, given once (CC35). */
  get signal(): AbortSignal {
    return this.#signal.signal;
  }

  /** The state as of now. */
  get state(): GuardState {
    this.look();
    return this.lease.state;
  }

  /** Whether it is held or uncertain, as of now. */
  get isLive(): boolean {
    this.look();
    return this.lease.isLive;
  }

  /** Why it was lost, as of now; `undefined`: it was not. */
  get lostReason(): LossReason | undefined {
    this.look();
    return this.lease.reason;
  }

  /** Compares the clock with the deadline. */
  look(): void {
    this.#carryOut(this.lease.tick(this.inner.time.now()));
  }

  /** Something was learnt, from this problem if it was one. */
  learn(input: LeaseInput, problem?: Problem): void {
    const isSuccessor = this.isTransferring && input.on === "lost" && input.reason === "superseded";
    if (isSuccessor) return;
    this.#carryOut(this.lease.on(this.inner.time.now(), input, this.inner.time.draw()), problem);
    // A sign of life only puts off what is waited for.
    if (input.on !== "beat") this.#arm();
  }

  /** The lease was changed without anything being learnt. */
  changed(): void {
    this.#arm();
  }

  /** An operator breaks it, or has, for this reason. */
  heardWhy(words: string | null | undefined): void {
    if (typeof words === "string") this.#words = words;
  }

  /** A gateway refused something of this guard: is it over? */
  refused(problem: Problem): void {
    const reason = lossReasonOf(problem.code);
    if (reason !== undefined) this.learn({ on: "lost", reason }, problem);
  }

  /**
   * A write may be begun (CC21).
   *
   * @throws LockLost
   */
  check(): void {
    const { state } = this;
    if (state === "lost") throw this.loss();
    if (state === "released") throw new LockLost("released");
  }

  /** Why it was lost, with what the gateway said of it. Each call that ends by it has an error of its own. */
  loss(): LockLost {
    const problem = this.#lossProblem;
    const reason = this.lease.reason ?? "gone";
    const words = reason === "broken" ? this.#words : undefined;
    return new LockLost(reason, problem && detailsOf(problem, 1), problem, words);
  }

  /** How its lock is given back. */
  burial(id = this.grant.id): Burial {
    return { inner: this.inner, id, resources: this.resources, ttlMs: this.lease.ttlMs };
  }

  /** Calls the function once the guard is over, however that comes. */
  onEnd(end: () => void): void {
    if (this.#hasEnded) end();
    else this.#ends.push(end);
  }

  /** The guard is over: no renewals, and the hook is told, once. */
  ended(reason: LossReason): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    const { inner, resources } = this;
    inner.guards.remove(this);
    this.#disarm?.();
    this.#ends.splice(0).forEach((end) => end());
    inner.tell({ type: "ended", resources, reason, heldMs: inner.time.now() - this.grantedMs });
  }

  /** Ends the guard and gives its lock back; `true` once a gateway has confirmed it. */
  async giveBack(): Promise<boolean> {
    const { time } = this.inner;
    const beganMs = time.now();
    // 1. No renewals any more, and no new writes.
    const before = this.state;
    const reason = this.lease.reason;
    this.learn({ on: "release" });
    if (before === "held" || before === "uncertain") this.ended("released");
    if (!this.grant.isOurs) return true;
    if (reason !== undefined && isDeadEverywhere(reason, this.resources.length)) return true;
    if (before === "lost") return this.bury(AWAITED_MS);
    // 2. What is under way is waited for (CC43), by a second release as well.
    await time.within(AWAITED_MS, this.numbers.allEnded());
    // 3. The rest of the time is the gateway's.
    return this.bury(Math.max(100, AWAITED_MS - (time.now() - beganMs)));
  }

  /** Ends the guard as if it were released, whatever state it is in, and has a gateway confirm it. */
  async bury(withinMs: number): Promise<boolean> {
    if (this.isLive) {
      this.learn({ on: "release" });
      this.ended("released");
    }
    this.#isBuried ||= await bury(this.burial(), withinMs);
    return this.#isBuried;
  }

  /**
   * Nobody has the guard any more: it ends, and its lock is given back in the background, after the writes that are
   * under way.
   */
  drop(): void {
    if (!this.isLive) return;
    this.learn({ on: "release" });
    this.ended("released");
    if (!this.grant.isOurs) return;
    const { inner } = this;
    const ending = inner.time.within(AWAITED_MS, this.numbers.allEnded());
    void inner.inBackground(ending.then(() => buryLater(this.burial())));
  }

  #carryOut({ warning, signal }: Effects, problem?: Problem): void {
    const { inner, resources } = this;
    if (warning !== undefined) {
      const { is, ...times } = warning;
      inner.tell({ type: is, resources, ...times } as Parameters<Inner["tell"]>[0]);
    }
    if (signal === undefined) return;
    this.#lossProblem = problem;
    this.ended(signal);
    this.#signal.abort(this.loss());
    // Where it may still be there, the gateway is told that it is over, so that others can have it and late copies of
    // writes bounce (CC46).
    if (this.grant.isOurs && !isDeadEverywhere(signal, resources.length)) buryLater(this.burial());
  }

  /** Sets the timer for the next moment that matters, unless it is set for one before that. */
  #arm(): void {
    if (this.#hasEnded) return;
    const wakeMs = Math.min(this.lease.wakeMs ?? Infinity, this.#watchesMs ?? Infinity);
    if (wakeMs >= this.#armedMs) return;
    this.#disarm?.();
    this.#armedMs = wakeMs;
    this.#disarm = this.inner.time.at(wakeMs, () => this.#wake());
  }

  #wake(): void {
    this.#armedMs = Infinity;
    // 1. The clock first: a process that was stopped learns it before anything else happens (CC37).
    this.look();
    const nowMs = this.inner.time.now();
    // 2. What is due.
    if (this.lease.dueMs !== null && this.lease.dueMs <= nowMs) beginRenewal(this, nowMs);
    if (this.#watchesMs !== undefined && this.#watchesMs <= nowMs) {
      this.#watchesMs = undefined;
      void this.inner.inBackground(follow(this));
    }
    // 3. Until the next moment that matters.
    this.#arm();
  }
}
