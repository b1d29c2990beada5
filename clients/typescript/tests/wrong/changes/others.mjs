// Wrong clients in attempts, reading and following.

export default [
  [
    "client/inner.ts",
    "isRetried(result) && this.retries && isReplayable(request);",
    '(isRetried(result) || (is("asks-the-absent-again") && result.is === "problem" && result.problem.status === 404)) && this.retries && isReplayable(request) && !is("tries-once");',
  ],
  [
    "transport/answer.ts",
    'const size = Number(this.header("content-length") ?? NaN);',
    'if (is("reads-the-first-piece")) {\n      const first = await this.next();\n      if (first === undefined || "is" in first) return first ?? { is: "read", value: new Uint8Array() };\n      return { is: "read", value: first };\n    }\n    const size = Number(this.header("content-length") ?? NaN);',
  ],
  [
    "transport/transport.ts",
    "if (isElsewhereBetter(reply)) urls.avoid",
    'const leaves = is("leaves-at-any-refusal") && reply.is === "problem";\n    if ((isElsewhereBetter(reply) && !is("stays-with-the-dead")) || leaves) urls.avoid',
  ],
  [
    "transport/transport.ts",
    "{ ...this.#headers, ...request.headers,",
    '{ ...(is("drops-headers") ? { "user-agent": this.#headers["user-agent"] ?? "" } : this.#headers), ...request.headers,',
  ],
  [
    "transport/transport.ts",
    '{ "user-agent": options.userAgent,',
    '{ "user-agent": is("has-no-name") ? "client" : options.userAgent,',
  ],
  [
    "transport/transport.ts",
    "const sent = await this.#prepare(request, headers, signal, () => head?.note());",
    'const sent = await this.#prepare(request, headers, signal, () => is("times-uploads") || head?.note());',
  ],
  [
    "transport/transport.ts",
    "return { ...nothing(!wasNotSent(error), false, detail), lasts };",
    'return { ...nothing((!wasNotSent(error) && !is("thinks-nothing-was-sent")) || is("thinks-all-was-sent"), false, detail), lasts };',
  ],
  ["transport/transport.ts", "+ (request.waitMs ?? 0);", '+ (is("forgets-its-wait") ? 0 : (request.waitMs ?? 0));'],
  [
    "transport/transport.ts",
    "const usualMs = Math.max(this.#options.headMs,",
    'if (is("waits-too-briefly")) return 5_000;\n    const usualMs = Math.max(this.#options.headMs,',
  ],
  [
    "transport/transport.ts",
    'typeof this.#options.credential === "function" && isReplayable(request);',
    'typeof this.#options.credential === "function" && isReplayable(request) && !is("asks-for-one-credential");',
  ],
  [
    "transport/judging.ts",
    'const isOurs = headers.get("x-request-id") === id;',
    'const isOurs = headers.get("x-request-id") === id || is("believes-anybody");',
  ],
  [
    "transport/judging.ts",
    'const after = headers.get("retry-after") ?? "";',
    'const after = is("ignores-retry-after-headers") ? "" : (headers.get("retry-after") ?? "");',
  ],
  ["transport/urls.ts", "nowMs + AVOIDED_MS", '(is("never-comes-back") ? 1e12 : nowMs + AVOIDED_MS)'],
  [
    "transport/urls.ts",
    'return url.href.replace(/\\/+$/, "");',
    'return is("forgets-the-prefix") ? url.origin : url.href.replace(/\\/+$/, "");',
  ],
  [
    "testing/driver.ts",
    'const send = process.argv.includes("--fetch") ? fetch : nodeFetch(patient);',
    'const direct = process.argv.includes("--fetch") ? fetch : nodeFetch(patient);\nconst send: typeof fetch = is("follows-redirects")\n  ? (input, init) => fetch(input, { ...init, redirect: "follow" })\n  : is("uses-the-proxy")\n    ? (input, init) => direct(`${process.env["http_proxy"] ?? process.env["HTTP_PROXY"] ?? ""}${new URL(String(input)).pathname}`, init)\n    : direct;',
  ],
  [
    "reading/object.ts",
    "const { signal, version, limit = SIZE_MAX } = options;",
    'const { signal, version } = options;\n  const limit = is("reads-nothing-whole") ? 0 : (options.limit ?? SIZE_MAX);',
  ],
  [
    "reading/reader.ts",
    "if (this.#hash !== undefined &&",
    'if (this.#hash !== undefined && !is("checks-no-digests") &&',
  ],
  [
    "reading/reader.ts",
    "if (this.#resumes === RESUMES_MAX || !inner.retries) {",
    'if (this.#resumes === (is("resumes-for-ever") ? 1_000 : RESUMES_MAX) || !inner.retries || is("never-resumes")) {',
  ],
  ["reading/reader.ts", '"if-range": this.head.etag }', '"if-range": is("resumes-anything") ? "*" : this.head.etag }'],
  [
    "reading/reader.ts",
    'if (answer.header("etag") !== this.head.etag) {',
    'if (answer.header("etag") !== this.head.etag && !is("resumes-anything")) {',
  ],
  [
    "reading/pages.ts",
    "const next = page.next_cursor ?? undefined;",
    'const ends = is("reads-one-page") || (page.items.length === 0 && is("ends-at-empty-pages"));\n      const next = ends ? undefined : (page.next_cursor ?? undefined);',
  ],
  [
    "node/download.ts",
    "const response = await client.open(resource, key, reading);",
    'if (is("downloads-in-place")) await writeFile(path, "");\n  const response = await client.open(resource, key, reading);',
  ],
  [
    "node/download.ts",
    "import { open, rename, rm, type FileHandle }",
    "import { open, rename, rm, writeFile, type FileHandle }",
  ],
  [
    "feed/connection.ts",
    "idleMs: STREAM_IDLE_MS } as const;",
    'idleMs: is("buries-live-streams") ? STREAM_IDLE_MS / 2 : STREAM_IDLE_MS } as const;',
  ],
  [
    "feed/observing.ts",
    "if (shown === this.#told) continue;",
    'if (shown === this.#told && !is("repeats-leaders")) continue;',
  ],
  [
    "feed/events.ts",
    "if (this.#place !== undefined && isTold(this.#place, write.event)) continue;",
    'if (this.#place !== undefined && isTold(this.#place, write.event) && !is("tells-twice")) continue;',
  ],
  [
    "feed/events.ts",
    "this.#connection = await Connection.open(this.#inner, this.#place, this.#signal);",
    'if (is("polls-the-feed")) {\n      this.#pollsUntilMs = Infinity;\n      return;\n    }\n    const after = is("begins-the-feed-anew") && this.#attempts > 0 ? undefined : this.#place;\n    this.#connection = await Connection.open(this.#inner, after, this.#signal);',
  ],
  [
    "feed/events.ts",
    "if (error instanceof Passing) await",
    'if (error instanceof Passing && is("gives-up-the-feed")) throw new GatewayFault(error.message);\n        if (error instanceof Passing) await',
  ],
  ["feed/events.ts", "import { CursorVoid } from", "import { CursorVoid, GatewayFault } from"],
  [
    "feed/events.ts",
    'error instanceof CursorVoid && this.#onVoid === "continue";',
    'error instanceof CursorVoid && ((this.#onVoid === "continue" && !is("ends-at-voids")) || is("goes-on-behind-voids"));',
  ],
];
