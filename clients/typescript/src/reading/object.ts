// Whole objects, and what can be said of them without their bytes (CC47).

import { CALL, type CallOptions, type Course, type Inner } from "../client/inner.js";
import { Changed, FenceError, GatewayFault, Misuse } from "../core/errors.js";
import { objectKey, objectPath, query, resourceName } from "../core/names.js";
import { shown, type Names } from "../core/options.js";
import { sha256OfHeader } from "../core/sha256.js";
import { concat } from "../core/sse.js";
import type { Request } from "../transport/request.js";
import { openObject, type ObjectReader } from "./reader.js";

/** The largest object that is read whole, unless the call says otherwise. */
const SIZE_MAX = 16 << 20;
/** How often a whole read begins again, because the object changed after the answer broke off. */
const RESTARTS_MAX = 5;

/** Which object to read. */
export interface VersionOptions extends CallOptions {
  /** The object as the write with this version of the resource left it, while that is kept. */
  readonly version?: number | undefined;
}

/** Options of a read of a whole object. */
export interface GetOptions extends VersionOptions {
  /** Refuses objects of more bytes than this; by default 16 MiB. */
  readonly limit?: number | undefined;
}

/** The names of options of reads. */
export const VERSION_NAMES: Names<VersionOptions> = { ...CALL, version: "value" };
/** The names of options of reads of whole objects. */
export const GET_NAMES: Names<GetOptions> = { ...VERSION_NAMES, limit: "value" };

/** What a gateway says of an object beside its bytes. */
export interface ObjectHead {
  readonly resource: string;
  readonly key: string;
  /** Its tag, for `ifMatch` of a write: it changes with each write. */
  readonly etag: string;
  /** The version of the resource that wrote it, from the tag. */
  readonly version: number | undefined;
  /** The version of the resource when it was read. */
  readonly resourceVersion: number | undefined;
  readonly contentType: string;
  /** Its number of bytes. */
  readonly size: number;
  /** The SHA-256 of its bytes, in hexadecimal, if the gateway sent it. */
  readonly sha256: string | undefined;
}

/** An object to read, under names that were checked. */
export interface ObjectTarget {
  readonly inner: Inner;
  readonly resource: string;
  readonly key: string;
  readonly path: string;
}

/** An object, whole. Its length was checked, and its SHA-256 if the gateway sent one. */
export class StoredObject implements ObjectHead {
  readonly bytes: Uint8Array;
  readonly resource: string;
  readonly key: string;
  readonly etag: string;
  readonly version: number | undefined;
  readonly resourceVersion: number | undefined;
  readonly contentType: string;
  readonly size: number;
  readonly sha256: string | undefined;

  /** @internal */
  constructor(bytes: Uint8Array, head: ObjectHead) {
    this.bytes = bytes;
    this.resource = head.resource;
    this.key = head.key;
    this.etag = head.etag;
    this.version = head.version;
    this.resourceVersion = head.resourceVersion;
    this.contentType = head.contentType;
    this.size = head.size;
    this.sha256 = head.sha256;
  }

  /**
   * Its bytes as text.
   *
   * @throws Misuse: they are no UTF-8.
   */
  text(): string {
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.bytes);
    } catch {
      throw new Misuse(`${JSON.stringify(this.key)} is no text in UTF-8`);
    }
  }

  /**
   * Its bytes, read as JSON. Nothing checks that the value is a `T`.
   *
   * @throws Misuse: they are no JSON.
   */
  json<T = unknown>(): T {
    const text = this.text();
    try {
      return JSON.parse(text) as T;
    } catch {
      throw new Misuse(`${JSON.stringify(this.key)} is no JSON`);
    }
  }
}

/** The object to read, if the names are good. */
export function objectTarget(inner: Inner, resource: string, key: string, version: number | undefined): ObjectTarget {
  const path = objectPath(resourceName(resource), objectKey(key));
  if (version !== undefined && !(Number.isSafeInteger(version) && version >= 1)) {
    throw new Misuse("the version of an object is a whole number from 1");
  }
  return { inner, resource, key, path: path + query({ version }) };
}

/** What the head of an answer says of the whole object. */
export function headOf(target: ObjectTarget, headers: Headers, size = headers.get("content-length")): ObjectHead {
  const missing = (what: string): GatewayFault =>
    new GatewayFault(`the answer has no ${what}: something on the way took it out`);
  const etag = headers.get("etag");
  if (etag === null) throw missing("ETag");
  if (size === null) throw missing("Content-Length");
  const number = (text: string | null | undefined): number | undefined => (text == null ? undefined : Number(text));
  return {
    resource: target.resource,
    key: target.key,
    etag,
    version: number(/^"g[0-9]+-v([0-9]+)"$/.exec(etag)?.[1]),
    resourceVersion: number(headers.get("x-resource-version")),
    contentType: headers.get("content-type") ?? "",
    size: Number(size),
    sha256: sha256OfHeader(headers.get("repr-digest")),
  };
}

/** Whether the object is not there, by the gateway's own word. */
export function isAbsent(error: FenceError): boolean {
  return error.code === "object-not-found" || error.code === "resource-not-found";
}

/** Reads an object, whole. */
export async function getObject(
  inner: Inner,
  resource: string,
  key: string,
  options: GetOptions,
): Promise<StoredObject> {
  const { signal, version, limit = SIZE_MAX } = options;
  if (typeof limit !== "number" || !(limit >= 0)) throw new Misuse(`limit is a number of bytes, not ${shown(limit)}`);
  const target = objectTarget(inner, resource, key, version);
  const untilMs = inner.callUntilMs();
  for (let restarts = 0; ; restarts += 1) {
    const reader = await openObject(target, undefined, { signal, untilMs });
    try {
      return await whole(reader, limit);
    } catch (error) {
      // It is a read: what it is now is as good as what it was.
      const isWorthIt = error instanceof Changed && restarts < RESTARTS_MAX && inner.time.now() < untilMs;
      if (!isWorthIt) throw error;
    }
  }
}

async function whole(reader: ObjectReader, limit: number): Promise<StoredObject> {
  const { head } = reader;
  if (head.size > limit) {
    reader.discard();
    const { key, size } = head;
    throw new Misuse(
      `${JSON.stringify(key)} has ${size} bytes, more than the limit of ${limit}: stream it with open()`,
    );
  }
  const pieces: Uint8Array[] = [];
  for await (const piece of reader.pieces()) pieces.push(piece);
  return new StoredObject(pieces.length === 1 ? pieces[0]! : concat(pieces), head);
}

/** Looks at an object without its bytes. */
export async function headObject(
  inner: Inner,
  resource: string,
  key: string,
  options: VersionOptions,
): Promise<ObjectHead> {
  const target = objectTarget(inner, resource, key, options.version);
  const course: Course = { signal: options.signal };
  const look = async (request: Request): Promise<ObjectHead> => {
    const answer = await inner.call("head", request, course);
    answer.discard();
    return headOf(target, answer.headers);
  };
  const request: Request = { method: "HEAD", path: target.path };
  try {
    return await look(request);
  } catch (error) {
    const status = error instanceof GatewayFault ? (error.status ?? 0) : 0;
    if (status < 400 || status >= 500) throw error;
    // A refusal of HEAD has no body that says why: the same as GET, without the bytes, has.
    const reason: Request = { method: "GET", path: target.path, headers: { "if-none-match": "*" } };
    const answer = await inner.call("head", reason, course);
    answer.discard();
    if (answer.status !== 304) throw error;
    // It has come into being since.
    return look(request);
  }
}
