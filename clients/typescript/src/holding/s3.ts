// What S3 tools write with under a lock (CC14b): an endpoint, and a key that names the lock's token for ever.

import type { CallOptions, Inner } from "../client/inner.js";
import { GatewayFault, Misuse } from "../core/errors.js";
import { isUuid } from "../core/ids.js";
import type { S3Answer } from "../wire.js";

/** How Node asks an object what `console.log` shows of it. */
const INSPECT = Symbol.for("nodejs.util.inspect.custom");

/** A key of S3. Its secret is there for whoever takes it, in neither `console.log` nor `JSON.stringify`. */
export class S3Credentials {
  readonly accessKeyId: string;
  /** Whoever has it writes under the lock's token. */
  readonly secretAccessKey: string;

  /** @internal */
  constructor(accessKeyId: string, secretAccessKey: string) {
    this.accessKeyId = accessKeyId;
    this.secretAccessKey = secretAccessKey;
  }

  /** What JSON shows of it. */
  toJSON(): { readonly accessKeyId: string } {
    return { accessKeyId: this.accessKeyId };
  }

  /** What `console.log` of Node shows of it. */
  [INSPECT](): { readonly accessKeyId: string } {
    return this.toJSON();
  }
}

/**
 * What S3 tools write with under a lock: options for the client of the AWS SDK, `new S3Client(lock.s3)`. A client that
 * was made of it is as fenced as the guard, and a new lock needs a new one.
 */
export interface S3Access {
  /** Where the gateway speaks S3. */
  readonly endpoint: string;
  /** The region that it says it is in. */
  readonly region: string;
  readonly credentials: S3Credentials;
  /** Buckets are named in paths. */
  readonly forcePathStyle: true;
}

/** What an answer says of it; `undefined`: it is not of that form. */
export function s3AccessOf(answer: S3Answer): S3Access | undefined {
  const { endpoint, region, access_key_id, secret_access_key } = answer;
  const isText = [endpoint, region, access_key_id, secret_access_key].every((text) => typeof text === "string");
  if (!isText) return undefined;
  return { endpoint, region, credentials: new S3Credentials(access_key_id, secret_access_key), forcePathStyle: true };
}

/** Asks for the key of a lock, by its id. */
export async function askForS3(inner: Inner, lockId: string, options: CallOptions): Promise<S3Access> {
  if (!isUuid(lockId)) throw new Misuse("the id of a lock is a UUID");
  const request = { method: "GET", path: `/locks/${lockId}/s3` } as const;
  const answer = await inner.json<S3Answer | null>("s3_access", request, options);
  const access = answer === null ? undefined : s3AccessOf(answer);
  // What it said instead may have a secret in it.
  if (access === undefined) throw new GatewayFault("an answer that is not the gateway's: no S3 key is in it");
  return access;
}
