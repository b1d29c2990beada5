// Pauses between attempts, and when no other is made.

import assert from "node:assert/strict";
import { Backoff } from "../../src/core/backoff.js";
import { classOfForeign, isPassingStatus } from "../../src/core/classes.js";
import { classOf, foreignStatus, replay, type Case } from "./load.js";

interface RetryCase extends Case {
  readonly deadline_ms: number;
  readonly once?: boolean;
  readonly ride_out?: boolean;
  readonly draws: readonly number[];
  readonly attempts: readonly {
    readonly start: number;
    readonly end: number;
    readonly got: string;
    readonly retry_after_ms?: number;
  }[];
  readonly end: { readonly at: number; readonly class?: string; readonly code?: string | null };
}

interface Judged {
  readonly class: string;
  readonly code: string | undefined;
  readonly again: boolean;
}

/** The class and code of what an attempt got, and whether it is repeated. */
function judged(got: string, rideOut: boolean): Judged {
  if (got === "nothing" || got === "not-connected") return { class: "Unavailable", code: undefined, again: true };
  const status = foreignStatus(got);
  if (status !== undefined) return { class: classOfForeign(status), code: undefined, again: isPassingStatus(status) };
  const { code, class: cls } = classOf(got);
  const isRidden = rideOut && (code === "resource-frozen" || code === "resource-draining");
  const isPassing = cls === "Unavailable" || cls === "OutcomeUnknown" || code === "idempotency-in-progress";
  // A call that can be made again is never unknown in the end.
  return { class: cls === "OutcomeUnknown" ? "Unavailable" : cls, code, again: isPassing || isRidden };
}

replay<RetryCase>("retry", (one) => {
  const backoff = new Backoff();
  const draws = [...one.draws];
  let draw = 0.5;
  let now = 0;
  let end: RetryCase["end"] | undefined;
  one.attempts.forEach((attempt, place) => {
    assert.equal(end, undefined, `[${place}] the call had ended`);
    assert.equal(attempt.start, now, `[${place}] start`);
    now = attempt.end;
    if (attempt.got === "ok") {
      end = { at: now };
      return;
    }
    const { class: cls, code, again } = judged(attempt.got, one.ride_out ?? false);
    draw = draws.shift() ?? draw;
    const leftMs = one.deadline_ms - now;
    const pauseMs = backoff.next(draw, attempt.retry_after_ms, leftMs);
    if (again && !one.once && pauseMs !== undefined && pauseMs < leftMs) now += pauseMs;
    else end = { at: now, class: cls, ...(code === undefined ? {} : { code }) };
  });
  const { at, class: cls = null, code = null } = end ?? {};
  assert.deepEqual({ at, class: cls, code }, { class: null, code: null, ...one.end });
});
