// Looks up what became of a write, by its operation or by its key (CC24).

import type { Inner } from "../client/inner.js";
import { digestHeader } from "../core/sha256.js";
import { operationOfId, operationOfKey } from "../reading/operations.js";
import type { Operation } from "../wire.js";
import type { Prepared } from "./options.js";

/** The operation of this write that took effect, if a gateway knows one. `id` is what was seen of it. */
export async function findApplied(
  inner: Inner,
  { resource, key }: Prepared,
  id: string | undefined,
  withinMs: number,
): Promise<Operation | undefined> {
  const course = { untilMs: inner.time.now() + withinMs };
  const byId = async (operation: string): Promise<Operation | undefined> => {
    const found = await operationOfId(inner, operation, course).catch(() => undefined);
    return found?.outcome === "applied" ? found : undefined;
  };
  const known = id === undefined ? undefined : await byId(id);
  if (known !== undefined) return known;
  const found = await operationOfKey(inner, resource, key, course);
  if (found?.outcome !== "applied") return undefined;
  // By its key a commit tells one of its resources, by its id all of them.
  return found.kind === "commit" ? ((await byId(found.operation)) ?? found) : found;
}

/** Whether the write that has a key of the caller's is this one: its object, its kind, its bytes (CC25). */
export function isAbout({ call, object, request }: Prepared, found: Operation): boolean {
  const kind = call === "delete" && object === undefined ? "delete_all" : call;
  const digest = request.headers?.["repr-digest"];
  const isSameBytes = found.sha256 == null || digest === undefined || digest === headerOfHex(found.sha256);
  const isSameObject = kind === "commit" || (found.key ?? undefined) === object;
  return (found.kind == null || found.kind === kind) && isSameObject && isSameBytes;
}

function headerOfHex(digits: string): string {
  return digestHeader(Uint8Array.from(digits.match(/../g) ?? [], (byte) => parseInt(byte, 16)));
}
