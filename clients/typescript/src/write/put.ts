// Puts an object, and deletes one or all of a resource.

import { GatewayFault } from "../core/errors.js";
import { contentTypeText, objectPath, resourcePath } from "../core/names.js";
import type { Held } from "../guard/held.js";
import type { Body } from "../transport/body.js";
import type { WrittenAnswer } from "../wire.js";
import { conditionOf, prepare, type ObjectOptions, type PutOptions } from "./options.js";
import { Writing, type Effect, type Receipt } from "./sending.js";

/** What a put became. */
export interface Written {
  readonly resource: string;
  /** The object. */
  readonly key: string;
  /** The version of the resource that the write became. */
  readonly version: number;
  /** The object's tag; absent if the write was looked up afterwards. */
  readonly etag: string | undefined;
  /** The number of bytes stored; absent if neither answer nor record says it. */
  readonly size: number | undefined;
  /** The SHA-256 of the bytes stored, in hexadecimal, if the gateway knows it. */
  readonly sha256: string | undefined;
  readonly operation: string;
  /** Whether the object is a new one; absent if the write was looked up afterwards. */
  readonly created: boolean | undefined;
  /** Whether it took effect by an earlier attempt. */
  readonly replayed: boolean;
  /** How it went. */
  readonly receipt: Receipt;
}

/** What a delete became. */
export interface Deleted {
  readonly resource: string;
  /** The object; absent if all were deleted. */
  readonly key: string | undefined;
  /** The version of the resource that the write became; absent if there was nothing to delete. */
  readonly version: number | undefined;
  /** The operation, if the gateway named it. */
  readonly operation: string | undefined;
  /** Whether it took effect by an earlier attempt. */
  readonly replayed: boolean;
  /** How it went. */
  readonly receipt: Receipt;
}

/** Stores an object. */
export async function put(
  held: Held,
  resource: string,
  key: string,
  body: Body,
  options: PutOptions,
): Promise<Written> {
  const { contentType = "application/octet-stream", digest = true } = options;
  const headers: Record<string, string> = { "content-type": contentTypeText(contentType) };
  const condition = conditionOf(options, headers);
  if (digest) {
    const computed = body.digest();
    const value = typeof computed === "object" ? await computed : computed;
    if (value !== undefined) headers["repr-digest"] = value;
  }
  const path = objectPath(resource, key);
  const target = { call: "put", method: "PUT", path, resource, object: key, body, condition, headers } as const;
  const writing = new Writing(held, prepare(held, target, options));
  return written(resource, key, await writing.go(), writing.receipt);
}

/** Deletes an object; without a key, all of the resource. */
export async function remove(
  held: Held,
  resource: string,
  key: string | undefined,
  options: ObjectOptions,
): Promise<Deleted> {
  const headers: Record<string, string> = {};
  const condition = conditionOf(options, headers);
  const path = key === undefined ? resourcePath(resource) : objectPath(resource, key);
  const target = { call: "delete", method: "DELETE", path, resource, object: key, condition, headers } as const;
  const writing = new Writing(held, prepare(held, target, options));
  const effect = await writing.go();
  const { receipt } = writing;
  if (effect.is === "answered") {
    const { version, operation, replayed } = effect;
    return { resource, key, version, operation, replayed, receipt };
  }
  const { version, operation } = effect.operation;
  return { resource, key, version: version ?? undefined, operation, replayed: true, receipt };
}

function written(resource: string, key: string, effect: Effect, receipt: Receipt): Written {
  if (effect.is === "found") {
    const { version, size, sha256, operation } = effect.operation;
    const known = { version: version ?? 0, size: size ?? undefined, sha256: sha256 ?? undefined, operation };
    return { resource, key, ...known, etag: undefined, created: undefined, replayed: true, receipt };
  }
  const said = readable(effect.body);
  const version = said?.version ?? effect.version;
  const operation = said?.operation ?? effect.operation;
  if (version === undefined || operation === undefined) {
    throw new GatewayFault("the write took effect, but its answer does not say as which operation");
  }
  const { etag, created, replayed } = effect;
  const sha256 = said?.sha256 ?? undefined;
  return { resource, key, version, etag, size: said?.size, sha256, operation, created, replayed, receipt };
}

/** The answer to a put, if it is one that this version can read. */
function readable(body: unknown): WrittenAnswer | undefined {
  const said = body as Partial<WrittenAnswer> | null | undefined;
  const isGood = typeof said?.version === "number" && typeof said.operation === "string";
  return isGood ? (said as WrittenAnswer) : undefined;
}
