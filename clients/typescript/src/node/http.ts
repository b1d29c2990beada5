// A `fetch` over Node's own HTTP client, which can do what the platform's `fetch` cannot: give a connection up after a
// while, trust other certificates, and show one.

import { Agent as HttpAgent, request as httpRequest, type IncomingMessage, type RequestOptions } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import { Readable } from "node:stream";
import { checked, whole, type Names } from "../core/options.js";
import { pieces } from "../transport/body.js";
import type { Sender } from "../transport/transport.js";

/** How long a connection may take to be made (CC9). */
const CONNECT_WITHIN_MS = 3_000;
const DAY_MS = 86_400_000;
/** How long a connection is kept that nobody uses. */
const IDLE_MS = 60_000;

/** Options of Node's own transport. */
export interface NodeFetchOptions {
  /** Certificates, in PEM, of whom to trust instead of those that Node trusts. */
  readonly ca?: string | readonly string[] | undefined;
  /** A certificate to show, in PEM. */
  readonly cert?: string | undefined;
  /** Its key, in PEM. */
  readonly key?: string | undefined;
  /** How long a connection may take, in milliseconds; by default 3,000. */
  readonly connectTimeoutMs?: number | undefined;
}

const NAMES: Names<NodeFetchOptions> = { ca: "value", cert: "text", key: "text", connectTimeoutMs: "value" };

/** That no connection could be made, so that surely nothing was sent. */
class NotConnected extends Error {
  readonly syscall = "connect";
}

function notConnected(cause: Error): NotConnected {
  return Object.assign(new NotConnected(cause.message), { cause });
}

/** A `fetch` for the option of that name. It takes what this library sends: it is none for general use. */
export function nodeFetch(options: NodeFetchOptions = {}): Sender {
  const { ca, cert, key } = checked("nodeFetch()", options, NAMES);
  const connectTimeoutMs = whole("connectTimeoutMs", options.connectTimeoutMs, CONNECT_WITHIN_MS, 1, DAY_MS);
  // The last, since a gateway on this machine may listen on one of the two addresses of `localhost` alone.
  const kept = { keepAlive: true, maxFreeSockets: 64, autoSelectFamily: true, timeout: IDLE_MS };
  const agents = {
    "http:": new HttpAgent(kept),
    "https:": new HttpsAgent({ ...kept, ca: ca as string[] | undefined, cert, key }),
  };
  const send: typeof fetch = (input, init = {}) =>
    new Promise((resolve, reject) => {
      const url = new URL(String(input));
      const isSecure = url.protocol === "https:";
      const begin = isSecure ? httpsRequest : httpRequest;
      const terms: RequestOptions = {
        method: init.method ?? "GET",
        headers: (init.headers ?? {}) as Record<string, string>,
        agent: isSecure ? agents["https:"] : agents["http:"],
      };
      let outgoing: ReturnType<typeof httpRequest>;
      try {
        outgoing = begin(url, terms);
      } catch (error) {
        // Such as a header that Node refuses.
        return reject(new TypeError("fetch failed", { cause: notConnected(error as Error) }));
      }
      // Node gives the body of a DELETE no length, so that a gateway takes it for the next request.
      if (init.body != null) outgoing.useChunkedEncodingByDefault = true;
      const { signal } = init;
      let isConnected = false;
      let isAnswered = false;
      const fail = (error: Error): void => {
        signal?.removeEventListener("abort", abort);
        const cause = isConnected ? error : notConnected(error);
        reject(new TypeError("fetch failed", { cause }));
      };
      const abort = (): void => void outgoing.destroy(signal?.reason as Error);
      signal?.addEventListener("abort", abort, { once: true });
      const late = setTimeout(() => outgoing.destroy(new Error("no connection in time")), connectTimeoutMs);
      outgoing.once("socket", (socket) => {
        if ((init as { isBackground?: boolean }).isBackground) socket.unref();
        const connected = (): void => {
          isConnected = true;
          clearTimeout(late);
        };
        if (outgoing.reusedSocket || !socket.connecting) connected();
        else socket.once(isSecure ? "secureConnect" : "connect", connected);
      });
      outgoing.once("close", () => {
        clearTimeout(late);
        // As after 101, for which Node tells neither an answer nor an error.
        if (!isAnswered) fail(new Error("the connection ended without an answer"));
      });
      outgoing.on("error", fail);
      outgoing.once("response", (incoming) => {
        isAnswered = true;
        incoming.once("close", () => signal?.removeEventListener("abort", abort));
        // An answer that came before the end of the upload: nobody wants the rest.
        incoming.once("end", () => void (outgoing.writableFinished || outgoing.destroy()));
        try {
          resolve(responseOf(incoming));
        } catch (error) {
          // As for a status that no `Response` can have.
          fail(error as Error);
          outgoing.destroy();
        }
      });
      if (signal?.aborted) abort();
      else void sendBody(outgoing, init.body, fail);
    });
  const closeIdle = (): void => {
    for (const { freeSockets } of Object.values(agents)) {
      for (const socket of Object.values(freeSockets).flat()) socket?.destroy();
    }
  };
  // A connection whose answer was just read is idle a moment later.
  return Object.assign(send, { closeIdle: () => void setImmediate(closeIdle) });
}

async function sendBody(
  outgoing: ReturnType<typeof httpRequest>,
  body: RequestInit["body"],
  fail: (error: Error) => void,
): Promise<void> {
  if (body == null || typeof body === "string" || body instanceof Uint8Array) {
    outgoing.end(body ?? undefined);
    return;
  }
  const source = Readable.from(pieces(body as ReadableStream<Uint8Array>), { objectMode: false });
  source.on("error", (error) => {
    outgoing.destroy(error);
    fail(error);
  });
  outgoing.once("close", () => source.destroy());
  source.pipe(outgoing);
}

/** Statuses whose answers have no body. */
const BODILESS = new Set([101, 204, 205, 304]);

function responseOf(incoming: IncomingMessage): Response {
  const headers = new Headers();
  for (let at = 0; at + 1 < incoming.rawHeaders.length; at += 2) {
    headers.append(incoming.rawHeaders[at]!, incoming.rawHeaders[at + 1]!);
  }
  const status = incoming.statusCode ?? 0;
  const isEmpty = BODILESS.has(status);
  if (isEmpty) incoming.resume();
  const body = isEmpty ? null : (Readable.toWeb(incoming) as ReadableStream<Uint8Array<ArrayBuffer>>);
  return new Response(body, { status, headers });
}
