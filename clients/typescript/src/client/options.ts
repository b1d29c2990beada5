// How a client is made: its options, checked, and what stands for those that were not given.

import { limitMs, ttlMs, type Duration } from "../core/durations.js";
import { Misuse } from "../core/errors.js";
import { randomHex, useRandomSource } from "../core/ids.js";
import { bytesIn, ownerName } from "../core/names.js";
import { checked, type Names } from "../core/options.js";
import { Registry } from "../guard/registry.js";
import type { Hook } from "../hooks.js";
import { sleepAwareClock, Time, type Surroundings } from "../transport/time.js";
import { isToken, type Credential } from "../transport/credential.js";
import { ownHeaders } from "../transport/headers.js";
import { Transport } from "../transport/transport.js";
import { Urls } from "../transport/urls.js";
import { VERSION } from "../version.js";
import { Inner } from "./inner.js";
import type { Platform } from "./platform.js";

/** Options of a client. The last five replace what it needs of its surroundings. */
export interface ClientOptions extends Partial<Surroundings> {
  /** What the client calls itself, shown to everybody; by default `<host>:<process id>:<8 digits>`. */
  readonly owner?: string | undefined;
  /** The ttl of locks that do not say theirs: `1s` to `24h`, or `infinite`; by default 30 s. */
  readonly ttl?: Duration | undefined;
  /** A bearer token; or a function that is asked for it before each attempt, and once more after a 401. */
  readonly auth?: Credential | undefined;
  /** Headers for each request, such as one that a proxy wants. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** How long to wait for the head of an answer, beyond what the call itself waits; by default 15 s. */
  readonly answerTimeout?: Duration | undefined;
  /** The longest pause in an answer; by default 30 s. */
  readonly idleTimeout?: Duration | undefined;
  /** For how long a call goes on, with all its attempts; by default 30 s. */
  readonly callTimeout?: Duration | undefined;
  /** For how long a write goes on, with all its attempts; by default 60 s. */
  readonly writeTimeout?: Duration | undefined;
  /** `false`: one attempt for each call, whatever comes of it. Renewals and releases go on as ever. */
  readonly retries?: boolean | undefined;
  /** Gives the `traceparent` of the program's tracer; `undefined`: there is no span. */
  readonly traceparent?: (() => string | undefined) | undefined;
  /** Is told what happens inside, for metrics and logs. */
  readonly onEvent?: Hook | undefined;
}

/** The names of options of a client. */
export const CLIENT_NAMES: Names<ClientOptions> = {
  owner: "text",
  ttl: "value",
  auth: "value",
  headers: "value",
  answerTimeout: "value",
  idleTimeout: "value",
  callTimeout: "value",
  writeTimeout: "value",
  retries: "flag",
  traceparent: "function",
  onEvent: "function",
  fetch: "function",
  now: "function",
  setTimeout: "function",
  clearTimeout: "function",
  random: "function",
};

/** What all parts of a client share, from its options. */
export function innerOf(
  urls: string | URL | readonly (string | URL)[],
  options: ClientOptions,
  platform: Platform,
): Inner {
  checked("a client", options, CLIENT_NAMES);
  if (platform.fillRandom !== undefined) useRandomSource(platform.fillRandom);
  const send = options.fetch ?? platform.fetch();
  const time = new Time(surroundings(options, send));
  const { answerTimeout = "15s", idleTimeout = "30s", callTimeout = "30s", writeTimeout = "60s", auth } = options;
  const isCredential = auth === undefined || typeof auth === "function" || (typeof auth === "string" && isToken(auth));
  if (!isCredential) throw new Misuse("auth is empty, or holds what a header cannot");
  const transport = new Transport({
    fetch: send,
    time,
    allowListeners: platform.allowListeners,
    urls: new Urls(urls),
    credential: auth,
    traceparent: options.traceparent,
    headers: ownHeaders(options.headers ?? {}),
    userAgent: `fencegate-typescript/${VERSION} (${platform.runtime})`,
    headMs: limitMs(answerTimeout, "answerTimeout"),
    idleMs: limitMs(idleTimeout, "idleTimeout"),
  });
  return new Inner({
    time,
    transport,
    guards: new Registry(time),
    owner: ownerName(options.owner ?? ownerFrom(platform.host(), platform.pid)),
    ttlMs: ttlMs(options.ttl ?? "30s"),
    callWithinMs: limitMs(callTimeout, "callTimeout"),
    writeWithinMs: limitMs(writeTimeout, "writeTimeout"),
    retries: options.retries ?? true,
    hook: options.onEvent,
    platform,
  });
}

function surroundings(options: ClientOptions, send: typeof fetch): Surroundings {
  return {
    fetch: send,
    now: options.now ?? sleepAwareClock(),
    setTimeout: options.setTimeout ?? ((wake, ms) => globalThis.setTimeout(wake, ms)),
    clearTimeout: options.clearTimeout ?? ((timer) => globalThis.clearTimeout(timer as number)),
    random: options.random ?? Math.random,
  };
}

/** `<host>:<process id>:<8 digits>` (CC2): at most 256 bytes, cut between two characters, no control characters. */
function ownerFrom(host: string, pid: number): string {
  const tail = `:${pid}:${randomHex(4)}`;
  const signs = [...host.replace(/\p{Cc}/gu, "")];
  while (bytesIn(signs.join("") + tail) > 256) signs.pop();
  return signs.join("") + tail;
}
