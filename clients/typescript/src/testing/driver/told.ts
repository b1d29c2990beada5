// What the client tells, as JSON of the protocol.

import { Busy, Changed, CursorVoid, FenceError, LockLost, Misuse, OutcomeUnknown, type Settled } from "../../index.js";
import type { Lock } from "../../guard/lock.js";
import type { S3Access } from "../../holding/s3.js";
import type { Committed } from "../../write/commit.js";
import type { Deleted, Written } from "../../write/put.js";
import type { State } from "./state.js";

/** A JSON object. */
export type Told = Record<string, unknown>;

/** A mistake in a scenario, or in this driver. */
export class Mistake extends Error {}

/** The body of a scope was told to fail. */
export class BodyFailure extends Error {}

/** An error of the client. */
export function told(state: State, error: unknown, signal: AbortSignal): Told {
  if (error instanceof Mistake) return { class: "Driver", detail: error.message };
  if (error instanceof BodyFailure) return { class: "Body" };
  if (signal.aborted && error === signal.reason) return { class: "Cancelled" };
  if (!(error instanceof FenceError)) return { class: "Driver", detail: String((error as Error)?.stack ?? error) };
  const { code, status, detail, resource, requestId, attempts, write } = error;
  const text = error.message;
  const known: Told = { class: error.class, text, code, status, detail, resource, request_id: requestId, attempts };
  if (write !== undefined) Object.assign(known, { key: write.key, number: write.number ?? null });
  return { ...known, ...more(state, error) };
}

function more(state: State, error: FenceError): Told {
  if (error instanceof LockLost) return { reason: error.reason, superseded_by: error.supersededBy };
  if (error instanceof Busy) {
    const { kind, holder, holderAgeMs, position } = error;
    return { kind, holder, holder_age_ms: holderAgeMs, position };
  }
  if (error instanceof Changed) return { index: error.index, version: error.version, etag: error.etag };
  if (error instanceof Misuse) return { index: error.index };
  if (error instanceof CursorVoid) return { begin_after: error.beginAfter };
  if (!(error instanceof OutcomeUnknown)) return {};
  return { key: error.key, operation: error.operation, handle: state.keepUnknown(error) };
}

/** A guard. */
export function lockTold(name: string, lock: Lock): Told {
  const versions = Object.fromEntries(lock.resources.map((resource) => [resource, lock.version(resource)]));
  return { lock: name, id: lock.id, token: lock.token, resources: lock.resources, versions };
}

/** What S3 tools write with under a guard. */
export function s3Told(access: S3Access | undefined): Told | null {
  if (access === undefined) return null;
  const { endpoint, region, credentials } = access;
  const { accessKeyId, secretAccessKey } = credentials;
  return { endpoint, region, access_key_id: accessKeyId, secret_access_key: secretAccessKey };
}

/** What a put became. */
export function writtenTold({ key, receipt, ...written }: Written): Told {
  // Not known of a write that was looked up afterwards.
  return { ...written, object: key, created: written.created ?? null, ...receiptTold(receipt) };
}

/** What a delete became. */
export function deletedTold({ key, receipt, ...deleted }: Deleted): Told {
  return { ...deleted, object: key, created: false, ...receiptTold(receipt) };
}

/** What a commit became. */
export function committedTold({ receipt, ...committed }: Committed): Told {
  const version = committed.resources[0]?.version;
  return { ...committed, version, created: null, ...receiptTold(receipt) };
}

function receiptTold({ key, number, attempts }: Written["receipt"]): Told {
  return { key, number: number ?? null, attempts };
}

/** What an unknown outcome turned out to be. */
export function settledTold(settled: Settled): Told {
  if (settled.outcome === "not_applied") return { outcome: "not_applied" };
  return { outcome: "applied", operation: settled.operation, version: settled.version };
}
