// The token of a lock of one's own (CC51), and a token that another process holds (CC40): guards without renewals.

import { CALL, type CallOptions, type Inner } from "../client/inner.js";
import { Misuse } from "../core/errors.js";
import { isUuid, uuidv7 } from "../core/ids.js";
import { Lease } from "../core/lease.js";
import { ownerName, resourceName, resourceNames, resourcePath } from "../core/names.js";
import { checked, type Names } from "../core/options.js";
import { Guard } from "../guard/guard.js";
import { Held, type Grant } from "../guard/held.js";
import { jsonRequest } from "../transport/request.js";
import type { FenceAnswer } from "../wire.js";
import { isTokenText } from "./handoff.js";

const ORDER_MAX = 2n ** 63n - 1n;

/** Options of a fence. */
export interface FenceOptions extends CallOptions {
  /**
   * The number that your own lock gave, growing with each holder, from 1 to 2^63-1: digits, a `bigint`, or a number. One
   * that does not rise changes nothing: `LockLost`. Without it the last caller wins.
   */
  readonly order?: string | bigint | number | undefined;
  /** An id to repeat the call with, if the process may start anew in between. Writes have no numbers then. */
  readonly id?: string | undefined;
  /** Fences off the holder of a live lock of the gateway, too. */
  readonly force?: boolean | undefined;
  /** What the holder calls itself; by default as the client does. */
  readonly owner?: string | undefined;
}

const FENCE_NAMES: Names<FenceOptions> = { ...CALL, order: "value", id: "text", force: "flag", owner: "text" };

/** A guard for the holder of a lock of another kind. It is not renewed: it is good until the fence is raised again. */
export class Fence extends Guard {}

/** Raises a fence. */
export async function setFence(inner: Inner, resource: string, options: FenceOptions): Promise<Fence> {
  checked("fence()", options, FENCE_NAMES);
  const name = resourceName(resource);
  const owner = ownerName(options.owner ?? inner.owner);
  const id = options.id ?? uuidv7();
  if (!isUuid(id)) throw new Misuse("the id of a fence is a UUID");
  const order = options.order === undefined ? undefined : orderText(options.order);
  const body = { id, order, force: options.force || undefined, owner };
  const request = jsonRequest(`${resourcePath(name)}/fence`, body);
  const set = await inner.json<FenceAnswer>("fence", request, { signal: options.signal });
  const versions = new Map([[name, set.version]]);
  const grant = { id, token: set.token, resources: [name], owner, versions };
  return new Fence(new Held(inner, withoutRenewals(inner, grant, options.id === undefined)));
}

function orderText(order: string | bigint | number): string {
  const text = String(order);
  const isExact = typeof order !== "number" || Number.isSafeInteger(order);
  if (isExact && /^[1-9][0-9]{0,18}$/.test(text) && BigInt(text) <= ORDER_MAX) return text;
  throw new Misuse("an order is a whole number from 1 to 2^63-1, as text if it is large");
}

/** A token that another process holds. */
export interface Lent {
  readonly token: string;
  readonly id: string;
}

const LENT_NAMES: Names<Lent> = { token: "text", id: "text" };

/** A guard for a token that another process holds. It is neither renewed nor given back, and numbers nothing. */
export function lentGuard(inner: Inner, resources: string | readonly string[], lent: Lent): Fence {
  const { token, id } = checked("lent()", lent, LENT_NAMES);
  if (!isTokenText(token)) throw new Misuse("a token is text of digits");
  if (!isUuid(id)) throw new Misuse("the id of a lock is a UUID");
  const grant = { id, token, resources: resourceNames(resources), owner: inner.owner };
  return new Fence(new Held(inner, withoutRenewals(inner, grant, false)));
}

type Known = Pick<Grant, "id" | "token" | "resources" | "owner" | "versions">;

function withoutRenewals(inner: Inner, known: Known, isNumbered: boolean): Grant {
  const now = inner.time.now();
  const lease = new Lease(now, now, { leftMs: null, ttlMs: null }, { onUncertain: "stop", isRenewed: false }, 0.5);
  return { ...known, isOurs: false, isNumbered, isOrdered: false, lease };
}
