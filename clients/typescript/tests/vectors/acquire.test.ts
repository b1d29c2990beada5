// The acquire loop: what the machine decides, turn by turn, and the pauses between. Releases, and renewals before a guard
// is returned, are sent by others; here only that one is due.

import assert from "node:assert/strict";
import { Acquiring, type AcquireHeard, type AcquireNext } from "../../src/core/acquiring.js";
import { Backoff, portion } from "../../src/core/backoff.js";
import { lossReasonOf } from "../../src/core/classes.js";
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
  readonly next?: string;
}

interface AcquireCase extends Case {
  readonly wait: number | "forever" | null;
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

replay<AcquireCase>("acquire", (one) => {
  const waitMs = one.wait === "forever" ? Infinity : (one.wait ?? 0);
  const untilMs = waitMs === 0 ? 30_000 : waitMs;
  const backoff = new Backoff();
  let machine = new Acquiring(waitMs);
  // Under which id, and when the next call is due.
  let id = 1;
  let due: number | undefined = 0;
  let last: string | undefined;
  const anew = (nowMs: number): void => {
    const pauseMs = backoff.next(one.draw, undefined, untilMs - nowMs);
    due = pauseMs === undefined ? undefined : nowMs + pauseMs;
    [id, machine] = [id + 1, new Acquiring(waitMs)];
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
      assert.ok(turn.answered_at !== null && turn.next === undefined, `[${place}]`);
      const isLost = turn.got !== null && lossReasonOf(turn.got) !== undefined;
      if (turn.path === "/locks/{id}/renew" && isLost) anew(turn.answered_at);
      return;
    }
    assert.equal(turn.method, "POST", `[${place}] method`);
    assert.equal(turn.at, due, `[${place}] at`);
    assert.equal(turn.id, id, `[${place}] id`);
    assert.equal(turn.wait_ms ?? undefined, machine.waitMs(untilMs - turn.at), `[${place}] wait_ms`);
    machine.sent();
    if (turn.answered_at === null || turn.got === null) return;
    const next = machine.judge(heard(turn.got, turn.retry_after_ms));
    assert.equal(next.do, turn.next, `[${place}] next`);
    follow(next, turn.answered_at);
    last = turn.got;
  });
  const isReleased = one.turns.some((turn) => turn.method === "DELETE");
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
