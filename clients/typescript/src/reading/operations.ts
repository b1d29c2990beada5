// What became of writes, by the ids of their operations or by their keys.

import type { Course, Inner } from "../client/inner.js";
import { FenceError } from "../core/errors.js";
import { idempotencyKey, query, resourcePath, segment } from "../core/names.js";
import type { Operation, Page } from "../wire.js";

/** The operation with this id; `undefined` if the ledger has no record of it, which decides nothing. */
export async function operationOfId(inner: Inner, id: string, course: Course): Promise<Operation | undefined> {
  try {
    return await inner.json<Operation>("operation", { method: "GET", path: `/operations/${segment(id)}` }, course);
  } catch (error) {
    if (error instanceof FenceError && error.code === "operation-not-found") return undefined;
    throw error;
  }
}

/**
 * The operation on the resource that used this key; `undefined` if none did, which decides nothing as long as one may be
 * under way.
 */
export async function operationOfKey(
  inner: Inner,
  resource: string,
  key: string,
  course: Course,
): Promise<Operation | undefined> {
  const parameters = query({ idempotency_key: idempotencyKey(key) });
  const path = `${resourcePath(resource)}/operations${parameters}`;
  const found = await inner.json<Page<Operation>>("operations", { method: "GET", path }, course);
  return found.items[0];
}
