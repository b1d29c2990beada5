// A lock without a gateway, which can be lost.

import type { LossReason } from "../core/classes.js";
import { Misuse } from "../core/errors.js";
import { uuidv7 } from "../core/ids.js";
import { Lease } from "../core/lease.js";
import { innerOf } from "../client/options.js";
import { heldOf } from "../guard/guard.js";
import { Held } from "../guard/held.js";
import { Lock } from "../guard/lock.js";
import { nodePlatform } from "../node/platform.js";

/** A lock that is lost when it is told to be. */
export class FakeLock extends Lock {
  /** Loses it for this reason: its signal is aborted. */
  lose(reason: LossReason = "superseded"): void {
    heldOf(this).learn({ on: "lost", reason });
  }
}

/** A lock on these resources. */
export function fakeLock(resources: readonly string[], token: string): FakeLock {
  const refuse: typeof fetch = () => Promise.reject(new Misuse("a fake lock has no gateway"));
  const inner = innerOf("http://fake.invalid", { fetch: refuse, owner: "fake", retries: false }, nodePlatform);
  const now = inner.time.now();
  const lease = new Lease(now, now, { leftMs: null, ttlMs: null }, { onUncertain: "stop", isRenewed: false }, 0.5);
  const terms = { owner: "fake", isOurs: false, isNumbered: true, isOrdered: false, lease };
  return new FakeLock(new Held(inner, { id: uuidv7(), token, resources, ...terms }), false);
}
