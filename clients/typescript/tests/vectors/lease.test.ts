// The lease machine, on a clock of the vectors' own.

import assert from "node:assert/strict";
import { lossReasonOf, type LossReason } from "../../src/core/classes.js";
import { Lease, type Effects } from "../../src/core/lease.js";
import { replay, type Case } from "./load.js";

interface Then {
  readonly state: string;
  readonly reason?: string;
  readonly deadline?: number | null;
  readonly renew_at?: number | null;
  readonly joins?: boolean;
  readonly attempt_ms?: number;
  readonly signal?: string | null;
  readonly hooks?: readonly string[];
}

interface Step {
  readonly at: number;
  readonly on: string;
  readonly sent?: number;
  readonly left_ms?: number | null;
  readonly ttl_ms?: number | null;
  readonly asked?: boolean;
  readonly code?: string;
  readonly reason?: string;
  readonly then: Then;
}

interface LeaseCase extends Case {
  readonly on_uncertain: "stop" | "hold";
  readonly stall_after_ms: number | null;
  readonly is_renewed: boolean;
  readonly draw: number;
  readonly granted: { at: number; sent: number; left_ms: number | null; ttl_ms: number | null; then: Then };
  readonly steps: readonly Step[];
}

function compare(what: string, now: number, then: Then, lease: Lease, effects: Effects): void {
  assert.equal(lease.state, then.state, `${what}: state`);
  assert.equal(lease.reason, then.reason ?? undefined, `${what}: reason`);
  assert.equal(effects.signal, then.signal ?? undefined, `${what}: signal`);
  const hooks = effects.warning === undefined ? [] : [effects.warning.is];
  assert.deepEqual(hooks, then.hooks ?? [], `${what}: hooks`);
  if (then.joins !== undefined) {
    assert.equal(lease.deadlineMs, then.deadline ?? null, `${what}: deadline`);
    assert.equal(lease.dueMs, then.renew_at ?? null, `${what}: renew_at`);
    assert.equal(lease.joins(now), then.joins, `${what}: joins`);
  }
  if (then.attempt_ms !== undefined) assert.equal(lease.attemptMs, then.attempt_ms, `${what}: attempt_ms`);
}

function step(lease: Lease, one: Step, draw: number): Effects {
  const { at: now, left_ms: leftMs = null, ttl_ms: ttlMs = null } = one;
  switch (one.on) {
    case "clock":
      return lease.tick(now);
    case "asked": {
      const effects = lease.tick(now);
      lease.ttlAsked(now, ttlMs);
      return effects;
    }
    case "renewed":
      if (one.asked) lease.ttlKnown(ttlMs);
      return lease.on(now, { on: "renewed", sentMs: one.sent!, leftMs, ttlMs }, draw);
    case "failed":
      return lease.on(now, { on: "failed" }, draw);
    case "refused": {
      const reason = lossReasonOf(one.code!);
      return reason === undefined ? lease.tick(now) : lease.on(now, { on: "lost", reason }, draw);
    }
    case "breaking":
      return lease.on(now, { on: "breaking", sentMs: now, leftMs: leftMs! }, draw);
    case "ended":
      return lease.on(now, { on: "lost", reason: one.reason as LossReason }, draw);
    case "release":
      return lease.on(now, { on: "release" }, draw);
    case "beat":
      return lease.on(now, { on: "beat" }, draw);
    default:
      throw new Error(`there is no step ${one.on}`);
  }
}

replay<LeaseCase>("lease", (one) => {
  const { at, sent, left_ms: leftMs, ttl_ms: ttlMs, then } = one.granted;
  const stallAfterMs = one.stall_after_ms ?? undefined;
  const terms = { onUncertain: one.on_uncertain, stallAfterMs, isRenewed: one.is_renewed };
  const lease = new Lease(at, sent, { leftMs, ttlMs }, terms, one.draw);
  compare("granted", at, then, lease, {});
  one.steps.forEach((next, place) => {
    const effects = step(lease, next, one.draw);
    compare(`[${place}] ${next.on}`, next.at, next.then, lease, effects);
  });
});
