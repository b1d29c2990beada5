// What happens inside, for metrics and logs: one function that is told of each event (CC60). Neither tokens nor ids of
// locks are in it.

import type { ErrorClass, LossReason } from "./core/classes.js";

/** Something that happened in the client. Times are in milliseconds. */
export type ClientEvent =
  /** A lock was granted, so long after the call. */
  | { type: "acquired"; resources: readonly string[]; waitedMs: number }
  /** A guard ended. */
  | { type: "ended"; resources: readonly string[]; reason: LossReason; heldMs: number }
  /** A renewal was answered: so much time was left, and so late it had begun, which tells of a busy loop. */
  | { type: "renewed"; headroomMs: number; latenessMs: number }
  /** A renewal was not answered, or not as wished; it goes on until the deadline. */
  | { type: "renew_failed"; resources: readonly string[]; detail: string }
  /** Two thirds of the time of a lock have gone by without a confirmation. */
  | { type: "expiring"; resources: readonly string[]; leftMs: number }
  /** An operator is about to break the lock. */
  | { type: "breaking"; resources: readonly string[]; leftMs: number }
  /** A guard that holds on was confirmed after its deadline. */
  | { type: "revived"; resources: readonly string[]; lapsedMs: number }
  /** An attempt of a call failed, and another follows. */
  | { type: "retry"; call: string; attempt: number; detail: string }
  /** A call ended; without `class`: well. */
  | { type: "called"; call: string; class: ErrorClass | "WouldDeadlock" | undefined; attempts: number; tookMs: number }
  /** A write bounced, since the lock was no longer ours: the fence did its work. */
  | { type: "stale_write"; resource: string; reason: LossReason }
  /** A release was not answered; it goes on in the background. */
  | { type: "release_failed"; resources: readonly string[]; detail: string };

/** A function that is told of each event. It should be quick; what it throws is ignored. */
export type Hook = (event: ClientEvent) => void;

/** Tells a hook, whatever it does. */
export function tellSafely(hook: Hook | undefined, event: ClientEvent): void {
  try {
    hook?.(event);
  } catch {
    // A hook that fails must not fail the call that it is told of.
  }
}
