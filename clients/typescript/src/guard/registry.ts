// The guards of a client, for renewals in batches and for its end; and which of them a scope holds.

import type { Inner } from "../client/inner.js";
import type { Time } from "../transport/time.js";
import type { Held } from "./held.js";

/** How often is looked whether the machine slept, in which time timers stand still. */
const LOOK_MS = 5_000;

/** All guards that are not over. */
export class Registry {
  readonly #guards = new Set<Held>();
  readonly #time: Time;
  #isLooking = false;

  constructor(time: Time) {
    this.#time = time;
  }

  add(held: Held): void {
    this.#guards.add(held);
    if (!this.#isLooking) this.#lookLater();
  }

  remove(held: Held): void {
    this.#guards.delete(held);
  }

  all(): Iterable<Held> {
    return this.#guards;
  }

  /** All guards end. */
  close(): void {
    for (const held of [...this.#guards]) held.learn({ on: "lost", reason: "closed" });
  }

  /** After a sleep of the machine, guards that are over by now learn it before their timers come. */
  #lookLater(): void {
    this.#isLooking = true;
    const dueMs = this.#time.now() + LOOK_MS;
    this.#time.at(dueMs, () => {
      const isLate = this.#time.now() > dueMs + LOOK_MS;
      if (isLate) for (const held of [...this.#guards]) held.look();
      if (this.#guards.size > 0) this.#lookLater();
      else this.#isLooking = false;
    });
  }
}

/** Runs the body of a scope, which then is known to hold this guard. */
export function inScope<R>(held: Held, body: () => R): R {
  const { scopes } = held.inner.platform;
  return scopes === undefined ? body() : scopes.run([...(scopes.getStore() ?? []), held], body);
}

/** Whether the scope that asks holds one of these resources by the same client (CC19a). */
export function isHeldHere(inner: Inner, resources: readonly string[]): boolean {
  const holds = (held: object): boolean => {
    const { inner: by, isLive, resources: covered } = held as Held;
    return by === inner && isLive && covered.some((name) => resources.includes(name));
  };
  return (inner.platform.scopes?.getStore() ?? []).some(holds);
}
