// One leader among many candidates (CC52).

import { acquire } from "../acquire/acquire.js";
import { wishOf, type LockOptions } from "../acquire/wish.js";
import { CALL, type Inner } from "../client/inner.js";
import { portion } from "../core/backoff.js";
import { durationMs, type Duration } from "../core/durations.js";
import { checked, type Names } from "../core/options.js";
import { heldOf } from "../guard/guard.js";
import type { Lock } from "../guard/lock.js";
import { inScope } from "../guard/registry.js";

/** Options of a candidacy. */
export interface ElectOptions extends Pick<LockOptions, "ttl" | "owner" | "writers" | "signal"> {
  /** How long to wait, after a loss, until the work has ended; by default 10 s. */
  readonly stopGrace?: Duration | undefined;
  /** `false`: ends with the loss of the leadership, as `LockLost`, instead of standing again. */
  readonly rejoin?: boolean | undefined;
}

const NAMES: Names<ElectOptions> = {
  ...CALL,
  ttl: "value",
  owner: "text",
  writers: "value",
  stopGrace: "value",
  rejoin: "flag",
};

/** Waits for the leadership, runs `work`, and stands again if it is lost. */
export async function elect<T>(
  inner: Inner,
  name: string,
  options: ElectOptions,
  work: (lock: Lock) => T | Promise<T>,
): Promise<T> {
  const { stopGrace = "10s", rejoin = true, ...candidacy } = checked("elect()", options, NAMES);
  const graceMs = durationMs(stopGrace, "stopGrace");
  const wish = wishOf(inner, name, { ...candidacy, wait: "forever" });
  const { time } = inner;
  for (;;) {
    const lock = await acquire(inner, wish);
    const working = inScope(heldOf(lock), async () => work(lock));
    const letGo = time.keepAlive();
    try {
      if ((await firstOf(working, lock.signal)) === "ended") {
        // To return is to resign, and so is to fail.
        await lock.release();
        return await working;
      }
      // The work ends before anybody stands again.
      await time.within(graceMs, working);
    } finally {
      letGo();
    }
    if (!rejoin || heldOf(lock).lostReason === "closed") throw heldOf(lock).loss();
    await time.sleepUntil(time.now() + portion(1_000, time.draw()), options.signal);
  }
}

/** Whether the work has ended, or the signal came. */
function firstOf(working: Promise<unknown>, signal: AbortSignal): Promise<"ended" | "lost"> {
  return new Promise((resolve) => {
    const lost = (): void => resolve("lost");
    if (signal.aborted) lost();
    signal.addEventListener("abort", lost, { once: true });
    const ended = (): void => {
      signal.removeEventListener("abort", lost);
      resolve("ended");
    };
    working.then(ended, ended);
  });
}
