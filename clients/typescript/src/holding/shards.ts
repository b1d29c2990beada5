// Parts of a job, for as many workers as there are (CC54).

import { acquire } from "../acquire/acquire.js";
import { wishOf, type KeepOptions } from "../acquire/wish.js";
import type { Inner } from "../client/inner.js";
import { Busy } from "../core/errors.js";
import { resourceName } from "../core/names.js";
import { whole } from "../core/options.js";
import { SHARDS_MAX, shardName } from "../core/slots.js";
import type { Lock } from "../guard/lock.js";

/** One shard of a name, and its lock, which whoever gets it gives back. */
export interface Shard {
  /** Which one, from 0. */
  readonly index: number;
  readonly lock: Lock;
}

/** The shards that are free, in random order, each tried once. */
export async function* shards(
  inner: Inner,
  name: string,
  count: number,
  options: KeepOptions,
): AsyncGenerator<Shard, void, undefined> {
  for (const index of shuffled(count, inner.time.draw)) {
    const lock = await tryAcquire(inner, shardName(name, index, count), options);
    if (lock !== undefined) yield { index, lock };
  }
}

/**
 * Looks at the name and number of shards.
 *
 * @throws Misuse
 */
export function checkShards(name: string, count: number): void {
  whole("the number of shards", count, count, 1, SHARDS_MAX);
  resourceName(shardName(name, 0, count));
}

/** Takes a lock, or gives `undefined` if somebody else holds it. */
export async function tryAcquire(
  inner: Inner,
  names: string | readonly string[],
  options: KeepOptions,
): Promise<Lock | undefined> {
  try {
    return await acquire(inner, wishOf(inner, names, { ...options, wait: undefined }));
  } catch (error) {
    if (error instanceof Busy && error.kind === "LockHeld") return undefined;
    throw error;
  }
}

function shuffled(count: number, draw: () => number): number[] {
  const numbers = Array.from({ length: count }, (_, index) => index);
  for (let at = count - 1; at > 0; at -= 1) {
    const other = Math.min(at, Math.floor(draw() * (at + 1)));
    [numbers[at], numbers[other]] = [numbers[other]!, numbers[at]!];
  }
  return numbers;
}
