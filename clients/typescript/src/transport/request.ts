// One request, as it is sent in each attempt of a call.

import type { Body } from "./body.js";

/** What an attempt sends, but for what differs between attempts. */
export interface Request {
  readonly method: "GET" | "HEAD" | "PUT" | "POST" | "DELETE" | "PATCH";
  /** The path and query, encoded. */
  readonly path: string;
  /** Names in lower case. */
  readonly headers?: Readonly<Record<string, string>>;
  /** JSON as text, or the bytes of a write. */
  readonly body?: string | Body;
  /** For how long the gateway was asked to wait. */
  readonly waitMs?: number | undefined;
  /** How long the head of the answer may take, if less than usual. */
  readonly withinMs?: number | undefined;
  /** Whether it does not keep a process of Node's alive, where the transport can do without that. */
  readonly isBackground?: boolean | undefined;
  /** The longest pause between two pieces of the answer, if not the usual one. */
  readonly idleMs?: number | undefined;
}

/** A stream of events without a byte for so long is dead: gateways send a comment every 15 s (CC39, CC48). */
export const STREAM_IDLE_MS = 60_000;

/** A request with JSON as its body. Members that are `undefined` are left out. */
export function jsonRequest(
  path: string,
  body: unknown,
  more?: { waitMs?: number | undefined; withinMs?: number | undefined },
): Request {
  const headers = { "content-type": "application/json" };
  return { method: "POST", path, headers, body: JSON.stringify(body), ...more };
}

/** Whether a second attempt can send the same bytes. */
export function isReplayable(request: Request): boolean {
  return typeof request.body !== "object" || request.body.isReplayable;
}
