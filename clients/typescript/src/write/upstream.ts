// Requests to an upstream under a guard (CC20a). They are sent once: the gateway cannot know what a service of somebody
// else does with a second one.

import { CALL, type CallOptions } from "../client/inner.js";
import {
  classOfProblem,
  detailsOf,
  errorOfProblem,
  LockLost,
  Misuse,
  type FenceError,
  type Problem,
} from "../core/errors.js";
import { RequestIds } from "../core/ids.js";
import { checked, type Names } from "../core/options.js";
import type { Held } from "../guard/held.js";
import { errorOf, summary, type Answer, type Failure } from "../transport/answer.js";
import { Body, type BodyInput } from "../transport/body.js";
import type { Request } from "../transport/request.js";
import { ownHeaders } from "../transport/headers.js";
import { OutcomeUnknown } from "./unknown.js";

/** Headers that a request to an upstream may have, although the library sets them elsewhere. */
const ALLOWED = new Set(
  (
    "accept-encoding content-type content-digest idempotency-key if-match if-none-match if-range last-event-id range " +
    "repr-digest traceparent user-agent"
  ).split(" "),
);

/** Options of a request to an upstream. */
export interface UpstreamOptions extends CallOptions {
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly body?: BodyInput | undefined;
}

/** What changes something at an upstream. */
export type UpstreamMethod = "PUT" | "POST" | "DELETE" | "PATCH";

const NAMES: Names<UpstreamOptions> = { ...CALL, headers: "value", body: "value" };

/** What an upstream answered. */
export interface UpstreamAnswer {
  /** Its status. What it did before it answered anything but a 2xx, only it knows. */
  readonly status: number;
  /** Its headers, and the gateway's. */
  readonly headers: Headers;
  readonly body: Uint8Array;
  /** The operation, by which the gateways know the request. */
  readonly operation: string | undefined;
  /** What the gateway says of the token, in `X-Fence-Verdict`. */
  readonly verdict: string | undefined;
}

/** Sends a request to an upstream, once. */
export async function sendUpstream(
  held: Held,
  upstream: string,
  method: UpstreamMethod,
  path: string,
  options: UpstreamOptions,
): Promise<UpstreamAnswer> {
  const request = requestOf(held, upstream, method, path, checked("upstream()", options, NAMES));
  const { inner } = held;
  const { signal } = options;
  const beganMs = inner.time.now();
  held.check();
  held.learn({ on: "beat" });
  // Under way until it is answered: a release waits for it.
  const underWay = held.numbers.begin();
  try {
    const isMeant = (headers: Headers): boolean => headers.has("x-fence-guarantee");
    const reply = await inner.transport.attempt(request, new RequestIds().next(), signal, isMeant);
    const answer = reply.is === "done" ? await whole(held, reply) : undefined;
    if (answer === undefined) throw failure(held, reply as Failure);
    inner.called("upstream", beganMs, 1);
    return answer;
  } catch (error) {
    inner.called("upstream", beganMs, 1, error);
    throw error;
  } finally {
    underWay.end();
  }
}

function requestOf(
  held: Held,
  upstream: string,
  method: UpstreamMethod,
  given: string,
  options: UpstreamOptions,
): Request {
  const path = String(given).replace(/^\/+/, "");
  if (!/^[A-Za-z0-9_.-]{1,64}$/.test(upstream) || isDots(upstream)) {
    throw new Misuse("an upstream's name has 1 to 64 of A-Z a-z 0-9 _ - .");
  }
  if (!["PUT", "POST", "DELETE", "PATCH"].includes(method)) {
    throw new Misuse("a guard sends what changes something: PUT, POST, DELETE, PATCH");
  }
  if (path.length > 8_192 || !/^[!-"$-[\]-~]*$/.test(path)) {
    throw new Misuse("a path at an upstream is encoded: visible ASCII without # and \\");
  }
  // Such a path would leave the upstream before the gateway sees it.
  const plain = (path.split("?")[0] ?? "").replace(/%2e/gi, ".");
  if (plain.split("/").some(isDots)) throw new Misuse("no segment of a path at an upstream is . or ..");
  const headers = ownHeaders(options.headers ?? {}, ALLOWED);
  headers["x-fence-token"] = held.grant.token;
  headers["x-lock-id"] = held.grant.id;
  const request = { method, path: `/upstreams/${upstream}/${path}`, headers };
  return options.body === undefined ? request : { ...request, body: new Body(options.body) };
}

function isDots(name: string): boolean {
  return name === "." || name === "..";
}

/** An upstream's answer, whole. One that breaks off says nothing for sure. */
async function whole(held: Held, answer: Answer): Promise<UpstreamAnswer> {
  const { status, headers } = answer;
  const operation = answer.header("x-operation-id");
  const read = await answer.bytes();
  if (read.is !== "read") {
    throw OutcomeUnknown.ofForward(held.inner, resourceOf(held), operation, { detail: summary(read), attempts: 1 });
  }
  return { status, headers, body: read.value, operation, verdict: answer.header("x-fence-verdict") };
}

/** What became of a request that no upstream answered. */
function failure(held: Held, reply: Failure): FenceError {
  if (reply.is === "problem") return refused(held, reply.problem);
  const isUnsent = reply.is === "nothing" && !reply.wasSent;
  const isDenied = reply.is === "foreign" && (reply.status === 401 || reply.status === 407);
  if (isUnsent || isDenied || reply.is === "unsendable") return errorOf(reply, 1);
  return OutcomeUnknown.ofForward(held.inner, resourceOf(held), undefined, { detail: summary(reply), attempts: 1 });
}

function refused(held: Held, problem: Problem): FenceError {
  if (classOfProblem(problem) === "OutcomeUnknown") {
    const operation = problem.operation ?? undefined;
    return OutcomeUnknown.ofForward(held.inner, resourceOf(held), operation, detailsOf(problem, 1));
  }
  const error = errorOfProblem(problem, 1);
  if (error instanceof LockLost) {
    held.refused(problem);
    held.inner.tell({ type: "stale_write", resource: resourceOf(held), reason: error.reason });
  }
  return error;
}

function resourceOf(held: Held): string {
  return held.resources[0] ?? "";
}
