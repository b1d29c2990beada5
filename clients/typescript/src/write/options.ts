// What writes of objects can be told, and the request that each of their attempts sends.

import { CALL, type CallOptions } from "../client/inner.js";
import { limitMs, type Duration } from "../core/durations.js";
import { Misuse } from "../core/errors.js";
import { uuidv7 } from "../core/ids.js";
import { entityTags, idempotencyKey } from "../core/names.js";
import type { Names } from "../core/options.js";
import type { Condition } from "../core/settling.js";
import type { Held } from "../guard/held.js";
import type { Body } from "../transport/body.js";
import type { Request } from "../transport/request.js";

/** For how long the gateway keeps a key that the client made (CC20). */
const KEY_KEPT_MS = 3_600_000;

/** Options of every write. */
export interface WriteOptions extends CallOptions {
  /** A key of your own, such as the id of a message: with it the write takes effect once, however often it is made. */
  readonly idempotencyKey?: string | undefined;
  /** For how long it goes on; by default as the client says. */
  readonly within?: Duration | undefined;
  /** `false`: one attempt, whatever comes of it. */
  readonly retries?: boolean | undefined;
  /** Waits while an operator has the resource frozen, or effects of older tokens are under way. */
  readonly rideOut?: boolean | undefined;
}

/** Options of writes on one resource. */
export interface ObjectOptions extends WriteOptions {
  /** The resource, if the guard covers several. */
  readonly resource?: string | undefined;
  /** Only if the object carries this tag, such as `"g0-v17"` with its quotes; `*`: if it is there. */
  readonly ifMatch?: string | undefined;
  /** Only if the resource is at this version. */
  readonly expectVersion?: number | bigint | undefined;
}

/** Options of a put. */
export interface PutOptions extends ObjectOptions {
  /** The type of the bytes; by default `application/octet-stream`. */
  readonly contentType?: string | undefined;
  /** Only if the object is not there. */
  readonly ifAbsent?: boolean | undefined;
  /** `false`: without `Repr-Digest`, which costs a reading of the body before it is sent. */
  readonly digest?: boolean | undefined;
}

/** The names of options of writes. */
export const WRITE_NAMES: Names<WriteOptions> = {
  ...CALL,
  idempotencyKey: "text",
  within: "value",
  retries: "flag",
  rideOut: "flag",
};
/** The names of options of writes of all of a resource. */
export const ALL_NAMES: Names<Omit<ObjectOptions, "ifMatch">> = {
  ...WRITE_NAMES,
  resource: "text",
  expectVersion: "value",
};
/** The names of options of writes of one object. */
export const OBJECT_NAMES: Names<ObjectOptions> = { ...ALL_NAMES, ifMatch: "text" };
/** The names of options of a put. */
export const PUT_NAMES: Names<PutOptions> = { ...OBJECT_NAMES, contentType: "text", ifAbsent: "flag", digest: "flag" };

/** A write, as every attempt sends it. */
export interface Prepared {
  readonly call: "put" | "delete" | "commit";
  readonly request: Request;
  readonly body: Body | undefined;
  /** The object; `undefined`: all of a resource, or many. */
  readonly object: string | undefined;
  /** Where an operation is looked up by its key. */
  readonly resource: string;
  readonly key: string;
  /** Whether the client made the key. */
  readonly isOwnKey: boolean;
  /** For how long the gateway was asked to keep the key; `Infinity`: as long as it does. */
  readonly keptMs: number;
  readonly condition: Condition;
  readonly withinMs: number;
  readonly retries: boolean;
  readonly ridesOut: boolean;
  readonly signal: AbortSignal | undefined;
}

/** What a kind of write adds to its options. */
export interface Target {
  readonly call: Prepared["call"];
  readonly method: Request["method"];
  readonly path: string;
  readonly resource: string;
  readonly object?: string | undefined;
  readonly body?: Body | undefined;
  readonly condition: Condition;
  readonly headers: Record<string, string>;
}

/** The write, with all headers that every attempt has. */
export function prepare(held: Held, target: Target, options: WriteOptions): Prepared {
  const isOwnKey = options.idempotencyKey === undefined;
  const key = isOwnKey ? uuidv7() : idempotencyKey(options.idempotencyKey ?? "");
  const headers = target.headers;
  headers["x-fence-token"] = held.grant.token;
  headers["x-lock-id"] = held.grant.id;
  headers["idempotency-key"] = key;
  if (isOwnKey) headers["x-fence-key-kept"] = "1h";
  const { call, method, path, resource, object, body, condition } = target;
  const { writeWithinMs, retries } = held.inner;
  return {
    call,
    request: body === undefined ? { method, path, headers } : { method, path, headers, body },
    body,
    object,
    resource,
    key,
    isOwnKey,
    keptMs: isOwnKey ? KEY_KEPT_MS : Infinity,
    condition,
    withinMs: options.within === undefined ? writeWithinMs : limitMs(options.within, "within"),
    retries: (options.retries ?? retries) && (body?.isReplayable ?? true),
    ridesOut: options.rideOut ?? false,
    signal: options.signal,
  };
}

/** The condition of a write on one object, put into its headers. */
export function conditionOf(options: PutOptions, headers: Record<string, string>): Condition {
  const { ifMatch, ifAbsent, expectVersion } = options;
  if (ifMatch !== undefined) headers["if-match"] = entityTags(ifMatch);
  if (ifAbsent) headers["if-none-match"] = "*";
  if (expectVersion !== undefined) headers["x-if-resource-version"] = versionText(expectVersion);
  // A star is met by whatever is there by then.
  if (ifAbsent || expectVersion !== undefined || ifMatch === "*") return "absence";
  return ifMatch === undefined ? "none" : "tags";
}

/** A version of a resource, as a condition has it: digits. */
export function versionText(version: number | bigint): string {
  const isExact = typeof version === "bigint" || Number.isSafeInteger(version);
  if (isExact && version >= 0) return String(version);
  throw new Misuse("a version is a whole number from 0, as a bigint if it is above 2^53");
}
