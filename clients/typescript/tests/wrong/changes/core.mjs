// Wrong clients in the parts that have no clock and no network. Each entry: a file, what stands there once, and what
// stands there in the copy, where `is(name)` is true in the wrong client of that name.

export default [
  ["core/lease.ts", "lease.#beatMs = Infinity;", 'if (!is("stalls-before-work")) lease.#beatMs = Infinity;'],
  ["core/acquiring.ts", "this.#wasted < WASTED_MAX ?", 'this.#wasted < WASTED_MAX || is("takes-again-and-again") ?'],
  ["core/acquiring.ts", "return this.#mayBeLeft;", 'return this.#mayBeLeft && !is("buries-nothing");'],
  ["core/acquiring.ts", "Math.min(WAIT_MS, leftMs)", 'Math.min(is("waits-in-one-piece") ? 50_000 : WAIT_MS, leftMs)'],
  [
    "core/acquiring.ts",
    'case "unanswered":\n        return { do: "again" };',
    'case "unanswered":\n        return { do: is("gives-up-unanswered") ? "give-up" : "again" };',
  ],
  [
    "core/acquiring.ts",
    'if (code === "lock-wait-elapsed") return { do: waits ?',
    `if (code === "lock-held" && is("asks-the-holder-again")) return { do: "again", floorMs };
    if (code === "queue-full" && is("waits-for-any-line")) return { do: "later" };
    if (code === "resource-draining" && is("gives-up-draining")) return { do: "give-up" };
    if (code === "lock-released" && is("gives-up-the-given-back")) return { do: "give-up" };
    if (code === "lock-wait-elapsed") return { do: waits && !is("gives-up-waiting") ?`,
  ],
  [
    "core/acquiring.ts",
    "this.#mayBeLeft = this.#wasLeft;\n    return",
    'this.#mayBeLeft = this.#wasLeft || is("buries-everything");\n    return',
  ],
  [
    "core/settling.ts",
    'case "unsent":\n        return "again";',
    'case "unsent":\n        return is("gives-up-unsent") ? "refused" : "again";',
  ],
  [
    "core/settling.ts",
    'if (code === "idempotency-in-progress") return this.#open();',
    'if (code === "idempotency-in-progress" && !is("gives-up-in-progress")) return this.#open();\n    if (cls === "LockLost" && is("doubts-losses")) return "again";',
  ],
  [
    "core/settling.ts",
    'code === "sequence-out-of-order" && this.#isNumbered',
    'code === "sequence-out-of-order" && this.#isNumbered && !is("doubts-numbers")',
  ],
  [
    "core/settling.ts",
    'if (this.#condition === "tags") return this.#settled("refused");',
    `if (is("doubts-conditions")) return this.#unlessOpen();
    if (this.#condition === "absence" && is("believes-conditions")) return this.#settled("refused");
    if (this.#condition === "tags") return this.#settled("refused");`,
  ],
  [
    "core/settling.ts",
    'return this.#isOwnKey ? this.#open() : this.#settled("refused");',
    '{\n      if (is("doubts-keys")) return "again";\n      return this.#isOwnKey && !is("gives-up-its-own-key") ? this.#open() : this.#settled("refused");\n    }',
  ],
  [
    "core/settling.ts",
    'if (cls === "Unavailable") return "again";',
    'if (cls === "Unavailable") return is("opens-the-unavailable") ? this.#open() : "again";',
  ],
  [
    "core/settling.ts",
    'return this.isOpen ? "again" : "refused";',
    'return this.isOpen && !is("believes-the-last") ? "again" : "refused";',
  ],
  ["core/settling.ts", "this.isOpen = true;", 'this.isOpen = !is("forgets-what-is-open");'],
  [
    "core/backoff.ts",
    "const boundMs = Math.min(MOST_MS, BASE_MS * 2 ** Math.min(this.#attempts, 10));",
    'if (is("ignores-retry-after")) floorMs = undefined;\n    const boundMs = is("pauses-long") ? MOST_MS : Math.min(MOST_MS, BASE_MS * 2 ** Math.min(this.#attempts, 10));',
  ],
  [
    "core/lease.ts",
    "this.#confirmedMs = sentMs;\n    this.#beatMs = nowMs;",
    'if (is("counts-from-the-answer")) sentMs = nowMs;\n    this.#confirmedMs = sentMs;\n    this.#beatMs = nowMs;',
  ],
  [
    "core/lease.ts",
    "get attemptMs(): number {",
    'get attemptMs(): number {\n    if (is("renews-patiently")) return 60_000;',
  ],
  [
    "core/lease.ts",
    "joins(nowMs: number): boolean {",
    'joins(nowMs: number): boolean {\n    if (is("renews-alone")) return false;\n    if (is("renews-all")) return this.dueMs !== null;',
  ],
  ["core/lease.ts", "nowMs + 2 * this.attemptMs + 1", 'nowMs + 2 * (is("renews-twice") ? 700 : this.attemptMs) + 1'],
  ["core/lease.ts", "if (isPast(this.#stallsMs))", 'if (isPast(this.#stallsMs) && !is("never-stalls"))'],
  [
    "core/lease.ts",
    "if (isPast(this.#deadlineMs)) {",
    'if (isPast(this.#deadlineMs) && !is("ignores-its-deadline")) {',
  ],
  [
    "core/lease.ts",
    "const effects = this.tick(nowMs);\n    if (!this.isLive) return effects;",
    'const effects = this.tick(nowMs);\n    if (is("comes-back") && input.on === "renewed") this.#state = "held";\n    if (!this.isLive) return effects;',
  ],
  [
    "core/lease.ts",
    "// An answer that was overtaken by a later one says nothing new.",
    'if (is("counts-from-the-answer")) sentMs = nowMs;',
  ],
  [
    "core/lease.ts",
    "this.#deadlineMs = leftMs === null ? null :",
    'if (this.#deadlineMs === null || !is("forgets-renewals")) this.#deadlineMs = leftMs === null ? null :',
  ],
  [
    "core/lease.ts",
    "const thirdMs = Math.floor(shortestMs / 3);",
    'const thirdMs = Math.floor(shortestMs / 3) * (is("renews-late") ? 2 : 1);',
  ],
  [
    "core/lease.ts",
    "if (this.#dueMs === null) return;\n    const everyMs",
    'if (is("renews-once")) this.#dueMs = null;\n    if (this.#dueMs === null) return;\n    const everyMs',
  ],
  ["core/lease.ts", 'reason === "transferred" ? {}', 'reason === "transferred" && !is("transfers-with-a-signal") ? {}'],
  [
    "core/leaving.ts",
    'if (body === "failed") return { is: "own-error" };',
    'if (body === "failed") return is("hides-failures") ? { is: "lost", reason: "gone" } : { is: "own-error" };',
  ],
  [
    "core/leaving.ts",
    'if (lost === undefined) return body === "dropped"',
    'if (lost === undefined && is("keeps-the-lock")) return "none";\n  if (lost === undefined) return body === "dropped"',
  ],
  [
    "core/classes.ts",
    "if (isOutcomeUnknown) return",
    'if (isOutcomeUnknown && !is("ignores-unknown-outcomes")) return',
  ],
  [
    "core/classes.ts",
    "const known = CLASS_OF_CODE.get(code);",
    'const known = is("classes-by-status") ? undefined : CLASS_OF_CODE.get(code);',
  ],
  [
    "core/classes.ts",
    'if (status === 401 || status === 403) return "Denied";\n  if (status === 404)',
    'if (is("faults-newer-codes")) return "GatewayFault";\n  if (status === 401 || status === 403) return "Denied";\n  if (status === 404)',
  ],
  [
    "core/classes.ts",
    "const reason = REASONS[code];",
    'const isMixedUp = is("mixes-up-reasons") && /^(fence-token-(stale|broken)|lock-broken|fence-order-stale)$/.test(code);\n  const reason = isMixedUp ? "void" : REASONS[code];',
  ],
  [
    "core/classes.ts",
    'if (reason === "void" || reason === "released_elsewhere"',
    'if (is("releases-what-is-lost")) return false;\n  if (is("leaves-the-unconfirmed")) return true;\n  if (reason === "void" || reason === "released_elsewhere"',
  ],
  [
    "core/classes.ts",
    'if (status === 401 || status === 403 || status === 407) return "Denied";',
    'if (is("faults-all-proxies")) return "GatewayFault";\n  if (status === 401 || status === 403 || status === 407) return "Denied";',
  ],
  [
    "core/errors.ts",
    "): ErrorDetails {\n  return {",
    '): ErrorDetails {\n  if (is("says-little")) return { detail: "it failed", attempts };\n  return {',
  ],
  [
    "core/errors.ts",
    "this.index = problem?.index ?? undefined;\n    this.version = problem?.version",
    'if (is("says-little")) problem = undefined;\n    this.index = problem?.index ?? undefined;\n    this.version = problem?.version',
  ],
  [
    "core/errors.ts",
    "this.supersededBy = problem?.superseded_by ?? undefined;",
    'this.supersededBy = is("drops-the-successor") ? undefined : (problem?.superseded_by ?? undefined);',
  ],
  ["core/ids.ts", "return this.attempts === 1 ?", 'return this.attempts === 1 || is("has-one-request-id") ?'],
  [
    "core/multipart.ts",
    'name="${name}"\\r\\n',
    'name="${name}"${is("commits-file-names") ? \'; filename="file"\' : ""}\\r\\n',
  ],
  [
    "core/names.ts",
    "const sorted = [names].flat().map(resourceName).sort();\n  if (",
    'const sorted = [names].flat().map(resourceName).sort();\n  if (!is("checks-no-limits") && (',
  ],
  [
    "core/names.ts",
    'sorted.length > 32) throw new Misuse("a lock is',
    'sorted.length > 32)) throw new Misuse("a lock is',
  ],
  [
    "core/names.ts",
    "export function objectKey(key: string): string {",
    'export function objectKey(key: string): string {\n  if (is("repairs-names")) key = key.replace(/^\\/+|\\/+$/g, "");',
  ],
  [
    "core/names.ts",
    "if (PLAIN.test(text)) return text;",
    'if (PLAIN.test(text)) return text;\n  if (is("encodes-half")) return encodeURI(text);',
  ],
  [
    "core/sse.ts",
    "const items: SseItem[] = [];\n    let from = 0;",
    'const items: SseItem[] = [];\n    if (is("parses-piece-by-piece")) this.#line = [];\n    let from = 0;',
  ],
];
