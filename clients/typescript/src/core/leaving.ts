// How a scope ends (CC43 to CC46): whose result counts, and when the lock is given back.

import { isDeadEverywhere, type LossReason } from "./classes.js";

/** How the body of a scope ended: with a value, with an error of its own, by the signal, or by the caller's abort. */
export type BodyEnd = "returned" | "failed" | "cancelled" | "dropped";

/** What the scope gives. */
export type ScopeOutcome = { is: "value" | "own-error" | "cancelled" } | { is: "lost"; reason: LossReason };

/** When the lock is given back. */
export type ReleaseTime = "awaited" | "background" | "none";

/** How a scope ends, from how its body ended and why the guard was lost by then. */
export function leave(
  body: BodyEnd,
  lost: LossReason | undefined,
  onLost: "raise" | "ignore",
): { outcome: ScopeOutcome; release: ReleaseTime } {
  return { outcome: outcomeOf(body, lost, onLost), release: releaseOf(body, lost) };
}

function outcomeOf(body: BodyEnd, lost: LossReason | undefined, onLost: "raise" | "ignore"): ScopeOutcome {
  if (body === "dropped") return { is: "cancelled" };
  if (body === "failed") return { is: "own-error" };
  if (body === "cancelled") return lost === undefined ? { is: "cancelled" } : { is: "lost", reason: lost };
  const isOwnDoing = lost === "transferred" || lost === "released";
  if (lost === undefined || isOwnDoing || onLost === "ignore") return { is: "value" };
  return { is: "lost", reason: lost };
}

function releaseOf(body: BodyEnd, lost: LossReason | undefined): ReleaseTime {
  if (lost === undefined) return body === "dropped" ? "background" : "awaited";
  // Of a lock on several resources the rest is given back where the loss is learnt.
  return lost === "released" || isDeadEverywhere(lost, 1) ? "none" : "background";
}
