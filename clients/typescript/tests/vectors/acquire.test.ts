// The acquire loop: what the machine decides, turn by turn, and the pauses between. Releases, and renewals before a guard
// is returned, are sent by others; here only that one is due, and what follows from its answer.

import assert from "node:assert/strict";
import { Acquiring, type AcquireHeard, type AcquireNext } from "../../src/core/acquiring.js";
import { Backoff, portion } from "../../src/core/backoff.js";
import { Lease } from "../../src/core/lease.js";
import { classOf, foreignStatus, replay, type Case } from "./load.js";

interface Turn {
  readonly at: number;
  readonly method: string;
  readonly path: string;
  readonly id: number;
  readonly wait_ms?: number | null;
  readonly answered_at: number | null;
  readonly got: string | null;
  readonly retry_after_ms?: number;
  readonly left_ms?: number;
  readonly next?: string;
}

interface AcquireCase extends Case {
  readonly wait: number | "forever" | null;
  readonly ttl_ms: number | null;
  readonly grace_ms?: number;
  readonly once: boolean;
  readonly cancelled_at: number | null;
  readonly draw: number;
  readonly turns: readonly Turn[];
  readonly result: { guard?: number; class?: string; code?: string | null; cancelled?: boolean };
}

function heard(got: string, retryAfterMs: number | undefined): AcquireHeard {
  if (got === "granted" || got === "draining") return { is: got };
  if (got === "nothing") return { is: "unanswered" };
  if (got === "not-connected") return { is: "unsent" };
  const status = foreignStatus(got);
  return status === undefined ? { is: "problem", ...classOf(got), retryAfterMs } : { is: "foreign", status };
}

const RENEW = "/locks/{id}/renew";

/** Whether the guard may be given out that this answer grants or renews. */
function isGood(turn: Turn, one: AcquireCase): boolean {
  const { at, answered_at: nowMs, got } = turn;
  if (nowMs === null || (got !== "granted" && got !== "renewed")) return false;
  const times = { leftMs: turn.left_ms ?? one.ttl_ms, ttlMs: one.ttl_ms };
  const lease = new Lease(nowMs, at, times, { onUncertain: "stop", isRenewed: true }, one.draw);
  return lease.canBegin(nowMs, one.grace_ms);
}

replay<AcquireCase>("acquire", (one) => {
  const waitMs = one.wait === "forever" ? Infinity : (one.wait ?? 0);
  const untilMs = waitMs === 0 ? 30_000 : waitMs;
  const backoff = new Backoff();
  const machine = new Acquiring(waitMs);
  // Under which id, and when the next call is due.
  let id = 1;
  let due: number | undefined = 0;
  let last: string | undefined;
  // When the last id was over, whose grant came to nothing.
  let endedMs: number | undefined;
  const anew = (nowMs: number): void => {
    const pauseMs = backoff.next(one.draw, undefined, untilMs - nowMs);
    due = pauseMs === undefined ? undefined : nowMs + pauseMs;
    id += 1;
    machine.forget();
  };
  const follow = (next: AcquireNext, nowMs: number): void => {
    const leftMs = untilMs - nowMs;
    if (next.do === "anew") {
      anew(nowMs);
      return;
    }
    if (next.do === "take" || next.do === "give-up") due = undefined;
    else if (next.do === "wait-on") due = leftMs > 0 ? nowMs : undefined;
    else if (next.do === "later") due = nowMs + 1_000 + portion(4_000, one.draw);
    else if (next.do === "again") {
      const pauseMs = one.once ? undefined : backoff.next(one.draw, next.floorMs, leftMs);
      due = pauseMs === undefined ? undefined : nowMs + pauseMs;
    }
  };
  one.turns.forEach((turn, place) => {
    if (turn.path !== "/locks") {
      assert.ok(turn.answered_at !== null, `[${place}]`);
      const next = turn.path !== RENEW ? undefined : isGood(turn, one) ? "take" : machine.wasted();
      assert.equal(turn.next, next, `[${place}] next`);
      // What is given back comes before the next id.
      if (next === "anew" || endedMs !== undefined) endedMs = turn.answered_at;
      return;
    }
    if (endedMs !== undefined) anew(endedMs);
    endedMs = undefined;
    assert.equal(turn.method, "POST", `[${place}] method`);
    assert.equal(turn.at, due, `[${place}] at`);
    assert.equal(turn.id, id, `[${place}] id`);
    assert.equal(turn.wait_ms ?? undefined, machine.waitMs(untilMs - turn.at), `[${place}] wait_ms`);
    machine.sent();
    if (turn.answered_at === null || turn.got === null) return;
    const next = machine.judge(heard(turn.got, turn.retry_after_ms));
    assert.equal(next.do, turn.next, `[${place}] next`);
    if (next.do === "take") {
      const isDoubted = one.ttl_ms === null || !isGood(turn, one);
      assert.equal(one.turns[place + 1]?.path === RENEW, isDoubted, `[${place}] renews first`);
    }
    follow(next, turn.answered_at);
    last = turn.got;
  });
  const isReleased = one.turns.at(-1)?.method === "DELETE";
  if (one.result.guard !== undefined) {
    assert.equal(id, one.result.guard, "guard");
    assert.ok(!isReleased, "released");
    return;
  }
  assert.equal(one.cancelled_at !== null, one.result.cancelled ?? false, "cancelled");
  if (one.result.code != null && last !== undefined) {
    assert.equal(last, one.result.code, "code");
    assert.equal(classOf(last).class, one.result.class, "class");
  }
  assert.equal(machine.mayBeLeft, isReleased, "released");
});
