// One attempt of a call: to which gateway, for how long, and whose answer came back.

import { FenceError, Unavailable } from "../core/errors.js";
import { nothing, type Failure, type Nothing, type Reply, type Unsendable, type Watch } from "./answer.js";
import type { Sent } from "./body.js";
import { asked, type Credential } from "./credential.js";
import { HeadTimer, unseenMs } from "./head.js";
import { isElsewhereBetter, judge, wasNotSent, type IsMeant } from "./judging.js";
import { isReplayable, type Request } from "./request.js";
import { isServer } from "./runtime.js";
import type { Time } from "./time.js";
import { why } from "./unreached.js";
import type { Urls } from "./urls.js";

/** A `fetch`; one that keeps connections can close those that nobody uses. */
export type Sender = typeof fetch & { readonly closeIdle?: () => void };

/** How a transport sends. */
export interface TransportOptions {
  readonly fetch: Sender;
  readonly time: Time;
  /** Lets a signal have as many listeners as there are calls. */
  readonly allowListeners: (signal: AbortSignal) => void;
  readonly urls: Urls;
  readonly credential: Credential | undefined;
  /** Gives the `traceparent` of the span that is current, if there is one. */
  readonly traceparent: (() => string | undefined) | undefined;
  /** The caller's own headers, in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly userAgent: string;
  /** How long to wait for the head of an answer, in milliseconds. */
  readonly headMs: number;
  /** The longest pause between two pieces of a body. */
  readonly idleMs: number;
}

/** Sends requests. */
export class Transport {
  readonly #options: TransportOptions;
  readonly #fetch: typeof fetch;
  readonly #headers: Readonly<Record<string, string>>;
  /** What the gateway says that it needs for an answer, once it was asked (CC9). */
  #answerWithinMs = 0;
  /** Whether anything has ever answered. */
  #wasReached = false;
  /** The places that no wait can open. */
  readonly #closed = new Set<number>();

  constructor(options: TransportOptions) {
    this.#options = options;
    // Called as a plain function: browsers refuse any other `this`.
    this.#fetch = (input, init) => (0, options.fetch)(input, init);
    // Browsers say who they are themselves, and ask for compressed answers, as they like.
    const ours = isServer ? { "user-agent": options.userAgent, "accept-encoding": "identity" } : {};
    this.#headers = { ...ours, ...options.headers };
  }

  /** The gateway needs up to this long for an answer. */
  learnAnswerWithin(ms: number): void {
    this.#answerWithinMs = Math.min(ms, 600_000);
  }

  /** Nothing more is sent for now. */
  closeIdle(): void {
    this.#options.fetch.closeIdle?.();
  }

  /**
   * One attempt. After a 401 a function that gives the credential is asked once more, unless the body can be read only
   * once.
   *
   * @throws The reason of the signal, once that is aborted.
   */
  async attempt(request: Request, id: string, signal?: AbortSignal, isMeant?: IsMeant): Promise<Reply> {
    const reply = await this.#once(request, id, signal, isMeant);
    const status = reply.is === "problem" ? reply.problem.status : reply.is === "foreign" ? reply.status : 0;
    const again = status === 401 && typeof this.#options.credential === "function" && isReplayable(request);
    return again && isMeant === undefined ? this.#once(request, `${id}.again`, signal) : reply;
  }

  async #once(request: Request, id: string, signal?: AbortSignal, isMeant?: IsMeant): Promise<Reply> {
    const { urls, time } = this.#options;
    const place = urls.current(time.now());
    const reply = await this.#send(urls.at(place), request, id, signal, isMeant);
    if (isElsewhereBetter(reply)) urls.avoid(place, time.now());
    if (reply.is === "nothing") return this.#concluded(place, reply, request);
    if (reply.is !== "unsendable") this.#wasReached = true;
    return reply;
  }

  /**
   * Ends a call for a cause that no wait can mend, if nothing has ever answered and it is so of all gateways. Not one whose
   * request changes something and may have been sent: that it took no effect is not known.
   */
  #concluded(place: number, reply: Nothing, request: Request): Failure {
    if (!reply.lasts || this.#wasReached) return reply;
    if (reply.wasSent && request.method !== "GET" && request.method !== "HEAD") return reply;
    this.#closed.add(place);
    if (this.#closed.size < this.#options.urls.count) return reply;
    return { is: "unsendable", error: new Unavailable({ detail: reply.detail }) };
  }

  async #send(
    base: string,
    request: Request,
    id: string,
    signal: AbortSignal | undefined,
    isMeant: IsMeant | undefined,
  ): Promise<Reply> {
    if (signal?.aborted) throw signal.reason;
    const { time, idleMs } = this.#options;
    const headers: Record<string, string> = { ...this.#headers, ...request.headers, "x-request-id": id };
    let head: HeadTimer | undefined;
    const sent = await this.#prepare(request, headers, signal, () => head?.note());
    if (typeof sent === "object" && "is" in sent) return sent;
    if (signal?.aborted) {
      close(sent);
      throw signal.reason;
    }
    const controller = new AbortController();
    const abort = (): void => controller.abort(signal?.reason);
    if (signal !== undefined) this.#options.allowListeners(signal);
    signal?.addEventListener("abort", abort, { once: true });
    const watch: Watch = {
      time,
      idleMs: request.idleMs ?? idleMs,
      signal,
      abort: () => controller.abort(),
      done: () => signal?.removeEventListener("abort", abort),
    };
    const headMs = this.#headMs(request) + unseenMs(sent);
    head = new HeadTimer(time, headMs, watch.abort);
    try {
      const response = await this.#fetch(base + request.path, init(request, headers, sent, controller.signal));
      return await judge(response, id, watch, isMeant);
    } catch (error) {
      watch.done();
      close(sent);
      if (signal?.aborted) throw signal.reason;
      // A `fetch` of the caller's own that refuses.
      if (error instanceof FenceError) return { is: "unsendable", error };
      if (head.isLate) return nothing(true, true, `no answer within ${headMs} ms`);
      const { lasts, detail } = why(base, error);
      return { ...nothing(!wasNotSent(error), false, detail), lasts };
    } finally {
      head.stop();
    }
  }

  /** What comes before anything is sent: the credential, and the beginning of the body. */
  async #prepare(
    request: Request,
    headers: Record<string, string>,
    signal: AbortSignal | undefined,
    progress: () => void,
  ): Promise<Sent | string | undefined | Unsendable> {
    try {
      await this.#addCredential(headers, signal);
      return typeof request.body === "object" ? await request.body.begin(progress) : request.body;
    } catch (error) {
      if (signal?.aborted) throw signal.reason;
      if (error instanceof FenceError) return { is: "unsendable", error };
      throw error;
    }
  }

  /** How long to wait for the head of an answer. */
  #headMs(request: Request): number {
    const usualMs = Math.max(this.#options.headMs, this.#answerWithinMs) + (request.waitMs ?? 0);
    return Math.min(usualMs, request.withinMs ?? usualMs);
  }

  async #addCredential(headers: Record<string, string>, signal: AbortSignal | undefined): Promise<void> {
    const { credential, time } = this.#options;
    const traced = this.#traced();
    if (traced !== undefined) headers["traceparent"] = traced;
    if (credential === undefined) return;
    headers["authorization"] = `Bearer ${typeof credential === "string" ? credential : await asked(credential, time)}`;
    if (signal?.aborted) throw signal.reason;
  }

  /** The `traceparent` of the current span. A tracer that fails must not fail the call. */
  #traced(): string | undefined {
    try {
      const traced: unknown = this.#options.traceparent?.();
      return typeof traced === "string" && /^[!-~]+$/.test(traced) ? traced : undefined;
    } catch {
      return undefined;
    }
  }
}

/** Nobody reads this body any more. */
function close(sent: Sent | string | undefined): void {
  if (typeof sent === "object") sent.close?.().catch(() => {});
}

function init(
  request: Request,
  headers: Record<string, string>,
  sent: Sent | string | undefined,
  signal: AbortSignal,
): RequestInit {
  const init: RequestInit & { duplex?: "half"; isBackground?: boolean } = {
    method: request.method,
    headers,
    redirect: "manual",
    signal,
  };
  // Only the transport of this library's own for Node knows of that.
  if (request.isBackground) init.isBackground = true;
  if (typeof sent === "string") init.body = sent;
  else if (sent !== undefined) {
    init.body = sent.body as BodyInit;
    if (sent.size !== undefined) headers["content-length"] = String(sent.size);
    if (sent.body instanceof ReadableStream) init.duplex = "half";
  }
  if (!isServer) {
    init.cache = "no-store";
    init.credentials = "omit";
  }
  return init;
}
