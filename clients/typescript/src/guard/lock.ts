// A lock in hand: it renews itself until it is released, lost, or nobody has it any more.

import { CALL, type CallOptions } from "../client/inner.js";
import { ttlMs, type Duration } from "../core/durations.js";
import { checked, type Names } from "../core/options.js";
import { asyncDispose } from "../dispose.js";
import { transfer, type Handoff, type Successor } from "../holding/handoff.js";
import type { S3Access } from "../holding/s3.js";
import { Guard, heldOf } from "./guard.js";
import type { Held } from "./held.js";
import { renewNow } from "./renewing.js";

/** Options of a renewal. */
export interface RenewOptions extends CallOptions {
  /** What the lock lasts from now on without renewal: `1s` to `24h`, or `infinite`. */
  readonly ttl?: Duration | undefined;
}

const RENEW_NAMES: Names<RenewOptions> = { ...CALL, ttl: "value" };

/** A lock in hand. It renews itself; `release` gives it back. */
export class Lock extends Guard {
  /** @internal */
  constructor(held: Held, isWatched: boolean) {
    super(held);
    held.keep(isWatched);
  }

  /** The principal whose it is, where rules of access are in force: the token is good for it and its writers alone. */
  get principal(): string | undefined {
    return heldOf(this).grant.principal;
  }

  /** Who else may write under its token: principals, and roles as `role:NAME`. */
  get writers(): readonly string[] {
    return heldOf(this).grant.writers ?? [];
  }

  /**
   * What S3 tools write with under this lock, as the gateway said when it granted it: `new S3Client(lock.s3)`. The key
   * names this lock's token for ever, so it never changes. `undefined` if none of the resources lies in a bucket, or if
   * the lock was taken up from its predecessor: then `s3Access(lock.id)` of the client asks for it.
   */
  get s3(): S3Access | undefined {
    return heldOf(this).grant.s3;
  }

  /** Milliseconds until the deadline, by the client's clock; `undefined`: it does not expire. 0 once it has passed. */
  get remainingMs(): number | undefined {
    return this.#until(heldOf(this).lease.deadlineMs);
  }

  /** Milliseconds until an operator's break takes effect, if one is due. */
  get breaksInMs(): number | undefined {
    return this.#until(heldOf(this).lease.breaksMs);
  }

  #until(atMs: number | null): number | undefined {
    return atMs === null ? undefined : Math.max(0, atMs - heldOf(this).inner.time.now());
  }

  /** A sign of life: with `stallAfter` renewals stop when none came for so long. */
  beat(): void {
    heldOf(this).learn({ on: "beat" });
  }

  /**
   * Renews it now, for instance before something that takes long. Renewals go on by themselves.
   *
   * @throws LockLost; Unavailable: nobody answered in time; Misuse: the ttl is none.
   */
  async renew(options: RenewOptions = {}): Promise<void> {
    const { ttl, signal } = checked("renew()", options, RENEW_NAMES);
    await renewNow(heldOf(this), ttl === undefined ? undefined : ttlMs(ttl), signal);
  }

  /**
   * Gives it back: waits for writes that are under way, then up to 5 s in all for the gateway's answer; without one, it
   * goes on in the background. Never fails: a lock that is lost needs no release.
   *
   * Gives `true` if a gateway has confirmed it: no copy of any write of this lock takes effect any more.
   */
  async release(): Promise<boolean> {
    return heldOf(this).giveBack();
  }

  /**
   * Hands the lock to a successor of this name, or of another principal. The guard ends with that, without a signal; if
   * the transfer fails, it goes on as before, unless it is not known whether it took effect: then it is given up.
   *
   * @throws LockLost; Denied: it may not be handed to that principal; Unavailable: nobody answered in time.
   */
  async transfer(to: string | Successor, options: CallOptions = {}): Promise<Handoff> {
    return await transfer(heldOf(this), to, checked("transfer()", options, CALL));
  }

  /** For `await using`: gives the lock back at the end of the block. Never fails; `check()` tells of a loss. */
  async [asyncDispose](): Promise<void> {
    await this.release();
  }
}
