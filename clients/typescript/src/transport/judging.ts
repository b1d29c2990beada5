// Whose answer came back, and what it says: a gateway's carries the id of the request (CC24a).

import type { Problem } from "../core/errors.js";
import { Answer, type Failure, type Foreign, type Reply, type Watch } from "./answer.js";

/** No pause that a gateway or proxy asks for by header is longer than a year. */
const YEAR_S = 31_536_000;
/** Whether an answer counts whatever its status is: the one meant, by its headers. */
export type IsMeant = (headers: Headers) => boolean;

/** Whose answer it is: a gateway's has our id of the request (CC24a). */
export async function judge(
  response: Response,
  id: string,
  watch: Watch,
  isMeant: IsMeant | undefined,
): Promise<Reply> {
  const { status, headers } = response;
  const isOurs = headers.get("x-request-id") === id;
  const answer = new Answer(response, watch);
  if (isOurs && (isMeant === undefined ? isGood(status) : isMeant(headers))) return answer;
  const foreign = foreignAnswer(status, headers, isOurs);
  if (!isOurs || status < 400) {
    answer.discard();
    return foreign;
  }
  const read = await answer.json<Partial<Problem> | null>();
  if (read.is === "nothing") return read;
  return (read.is === "read" && problemOf(read.value, foreign)) || foreign;
}

function isGood(status: number): boolean {
  return (status >= 200 && status < 300) || status === 304;
}

/** A problem document, if it is one. `Retry-After` counts if the document does not say it. */
function problemOf(read: Partial<Problem> | null, head: Foreign): Failure | undefined {
  if (typeof read?.code !== "string" || typeof read.detail !== "string") return undefined;
  const { title = read.code, retry_after_ms = head.retryAfterMs } = read;
  const { code, detail } = read;
  const known = { code, detail, status: head.status, retryable: read.retryable === true };
  const problem: Problem = { ...read, ...known, title, retry_after_ms: retry_after_ms ?? head.retryAfterMs ?? null };
  return { is: "problem", problem };
}

function foreignAnswer(status: number, headers: Headers, isOurs: boolean): Foreign {
  const what = headers.get("content-type") ?? "no content type";
  const detail = isOurs
    ? `the gateway answered ${status} without saying why (${what})`
    : `something between here and the gateway answered ${status} (${what})`;
  const after = headers.get("retry-after") ?? "";
  const retryAfterMs = /^[0-9]+$/.test(after) ? Math.min(Number(after), YEAR_S) * 1000 : undefined;
  return { is: "foreign", status, detail, retryAfterMs };
}

/** Whether the next gateway is asked instead (CC3). */
export function isElsewhereBetter(reply: Reply): boolean {
  if (reply.is === "problem") return reply.problem.code === "shutting-down" || reply.problem.code === "overloaded";
  return reply.is === "nothing" || (reply.is === "foreign" && reply.status >= 500);
}

/** Failures of TLS, which come before anything of a request is sent. */
const TLS = /^(CERT_|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO_|ERR_TLS_CERT)/;

/** Tells if the code of a failure says that the certificate of the other side is not trusted. */
export function isOfCertificate(code: string): boolean {
  return TLS.test(code);
}

/**
 * Whether surely nothing of a request was sent. Only some platforms say so; where they do not, it may have been.
 */
export function wasNotSent(error: unknown): boolean {
  const cause = (error instanceof Error ? error.cause : undefined) as
    { code?: unknown; syscall?: unknown; errors?: readonly unknown[] } | undefined;
  if (typeof cause !== "object" || cause === null) return false;
  if (cause.syscall === "connect" || cause.syscall === "getaddrinfo") return true;
  const code = String(cause.code);
  if (code === "UND_ERR_CONNECT_TIMEOUT" || TLS.test(code)) return true;
  // One failure for each address of the host.
  const each = cause.errors ?? [];
  return each.length > 0 && each.every((one) => (one as { syscall?: unknown } | null)?.syscall === "connect");
}
