// Read, change, write: again from the reading, if somebody else changed it in between (CC41). And work that is done once
// for each key (CC42).

import { CALL, type CallOptions } from "../client/inner.js";
import { Backoff } from "../core/backoff.js";
import { Changed, Misuse, NotFound } from "../core/errors.js";
import { objectKey } from "../core/names.js";
import type { Names } from "../core/options.js";
import type { Held } from "../guard/held.js";
import { getObject, isAbsent, type StoredObject } from "../reading/object.js";
import { operationOfKey } from "../reading/operations.js";
import { Body, type BodyInput } from "../transport/body.js";
import type { Operation } from "../wire.js";
import type { PutOptions } from "./options.js";
import { put, remove, type Written } from "./put.js";

/** How often a round is made. */
const ROUNDS_MAX = 16;
/** The longest pause between two rounds. */
const PAUSE_MS = 2_000;

/** What a change says to remove the object. */
export const DELETE: unique symbol = Symbol("delete");
/** What a change says to leave the object as it is. */
export const KEEP: unique symbol = Symbol("keep");

/** What a change makes of an object: other bytes, `DELETE` or `KEEP`. */
export type Change = BodyInput | typeof DELETE | typeof KEEP;

/** Options of an update. */
export interface UpdateOptions extends CallOptions, Pick<PutOptions, "resource" | "contentType" | "within"> {}

/** The names of options of an update. */
export const UPDATE_NAMES: Names<UpdateOptions> = { ...CALL, resource: "text", contentType: "text", within: "value" };

/** What became of work that is done once. */
export type Once<T> =
  /** It was done now. */
  | { readonly done: "now"; readonly value: T }
  /** It had been done before: this write has the key. */
  | { readonly done: "before"; readonly operation: Operation };

/** Reads the object, lets `change` make a new one of it, and stores that, if nobody changed the object meanwhile. */
export async function update(
  held: Held,
  resource: string,
  key: string,
  change: (old: StoredObject | undefined) => Change | Promise<Change>,
  options: UpdateOptions,
): Promise<Written | undefined> {
  const { inner } = held;
  const { signal } = options;
  objectKey(key);
  const backoff = new Backoff();
  for (let round = 1; ; round += 1) {
    held.check();
    const old = await present(getObject(inner, resource, key, { signal }));
    const made = await change(old);
    if (made === KEEP || (made === DELETE && old === undefined)) return undefined;
    try {
      if (made === DELETE) {
        await remove(held, resource, key, { signal, within: options.within, ifMatch: old?.etag });
        return undefined;
      }
      const body = new Body(made);
      const condition = old === undefined ? { ifAbsent: true } : { ifMatch: old.etag };
      return await put(held, resource, key, body, { ...options, ...condition });
    } catch (error) {
      if (!(error instanceof Changed) || round >= ROUNDS_MAX) throw error;
      const pauseMs = backoff.next(inner.time.draw(), undefined, PAUSE_MS) ?? 0;
      await inner.time.sleepUntil(inner.time.now() + pauseMs, signal);
    }
  }
}

/** The same for a value as JSON; `undefined` deletes it. Gives the new value. */
export async function updateJson<T>(
  held: Held,
  resource: string,
  key: string,
  change: (old: T | undefined) => T | undefined | Promise<T | undefined>,
  options: UpdateOptions,
): Promise<T | undefined> {
  let made: T | undefined;
  const changeText = async (old: StoredObject | undefined): Promise<Change> => {
    made = await change(old?.json<T>());
    return made === undefined ? DELETE : jsonText(made);
  };
  await update(held, resource, key, changeText, { contentType: "application/json", ...options });
  return made;
}

/**
 * A value as JSON, in which nothing was lost.
 *
 * @throws Misuse: it holds numbers that JSON does not have, or is no value at all.
 */
export function jsonText(value: unknown): string {
  const text = JSON.stringify(value, (_name, part: unknown) => {
    if (typeof part === "number" && !Number.isFinite(part)) throw new Misuse(`JSON has no ${part}`);
    return part;
  });
  if (text === undefined) throw new Misuse("the value cannot be written as JSON");
  return text;
}

/** Runs `work`, unless a write under `key` took effect before. */
export async function once<T>(held: Held, key: string, work: () => Promise<T>, options: CallOptions): Promise<Once<T>> {
  held.check();
  for (const resource of held.resources) {
    const operation = await operationOfKey(held.inner, resource, key, options);
    if (operation?.outcome === "applied") return { done: "before", operation };
  }
  return { done: "now", value: await work() };
}

/** `undefined` for an object that is not there. */
export async function present<T>(reading: Promise<T>): Promise<T | undefined> {
  try {
    return await reading;
  } catch (error) {
    if (error instanceof NotFound && isAbsent(error)) return undefined;
    throw error;
  }
}
