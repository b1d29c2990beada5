// Wrong clients in what becomes of writes.

export default [
  [
    "write/sending.ts",
    "if (prepared.body?.isLarge && held.lease.isStaleForUpload(inner.time.now()))",
    'if (!is("uploads-unconfirmed") && prepared.body?.isLarge && (is("renews-before-all-uploads") || held.lease.isStaleForUpload(inner.time.now())))',
  ],
  [
    "write/sending.ts",
    "(await this.#ask()) ?? (await this.#attempts(untilMs, signal));",
    '(await this.#ask()) ?? (is("resolves-by-asking-alone") ? ({ is: "open", last: { detail: "asked" } } as const) : await this.#attempts(untilMs, signal));',
  ],
  [
    "write/sending.ts",
    "const found = await this.#ask();\n      if (found !== undefined) this.#known",
    'const none = { is: "failed", error: new Unavailable("nobody was asked") } as const;\n      const found = is("abandons-blindly") ? none : await this.#ask();\n      if (found !== undefined) this.#known',
  ],
  [
    "write/sending.ts",
    "else if (await this.#isNowhere(askedMs)) {",
    'else if (!is("doubts-the-buried") && (await this.#isNowhere(askedMs))) {',
  ],
  [
    "write/sending.ts",
    "if (held.isNumbered) {",
    'if (is("changes-its-key")) request = { ...request, headers: { ...request.headers, "idempotency-key": uuidv7() } };\n    if ((held.isNumbered || is("numbers-everything")) && !is("sends-no-number")) {',
  ],
  [
    "write/sending.ts",
    'import { RequestIds } from "../core/ids.js";',
    'import { RequestIds, uuidv7 } from "../core/ids.js";',
  ],
  [
    "write/sending.ts",
    "overlapped: !this.#wasToldUnknown && (this.#underWay?.overlapped() ?? false),",
    'overlapped:\n        ((!this.#wasToldUnknown && ((this.#underWay?.overlapped() ?? false) || is("always-renumbers"))) ||\n          (this.#wasToldUnknown && is("renumbers-after-unknown"))) &&\n        !is("never-renumbers") &&\n        (this.#ids.attempts < 9 || !is("renumbers-eight-times")),',
  ],
  [
    "write/sending.ts",
    'if (cls === "LockLost") this.held.refused(problem);',
    'if (cls === "LockLost" && !is("ignores-refused-writes")) this.held.refused(problem);',
  ],
  [
    "write/sending.ts",
    'if (verdict === "renumber") this.#giveNumberUp();',
    'if (verdict === "renumber" || is("renumbers-while-open")) this.#giveNumberUp();',
  ],
  [
    "write/sending.ts",
    "if (!this.prepared.retries) return this.#ended(last);",
    'if (!this.prepared.retries && !is("always-tries-again")) return this.#ended(last);',
  ],
  [
    "write/sending.ts",
    'if (this.#settling.isOpen) return { is: "open", last };',
    'if (this.#settling.isOpen && !is("unknown-is-not-applied")) return { is: "open", last };',
  ],
  [
    "write/sending.ts",
    "if (this.#firstMs === undefined) return true;\n    const { inner } = this.held;\n    const sinceMs = inner.time.now() - this.#firstMs;",
    'if (this.#firstMs === undefined || is("sends-for-ever")) return true;\n    const { inner } = this.held;\n    const sinceMs = inner.time.now() - this.#firstMs;\n    if (is("trusts-its-own-hour")) return sinceMs < 1_800_000;',
  ],
  [
    "write/sending.ts",
    "const operation = await this.held.inner.time.within(ASK_WITHIN_MS, finding);",
    'if (is("never-asks")) return undefined;\n    const no = { is: "failed", error: new Unavailable("it is not there") } as const;\n    if (is("believes-a-no") && this.#operation !== undefined) return (this.#settling.isOpen = false, no);\n    const operation = await this.held.inner.time.within(ASK_WITHIN_MS, finding);\n    if (operation === undefined && is("takes-nothing-for-a-no")) return (this.#settling.isOpen = false, no);',
  ],
  [
    "write/finding.ts",
    "const known = id === undefined ?",
    'const known = id === undefined || is("asks-by-key-alone") ?',
  ],
  [
    "write/sending.ts",
    'replayed: answer.header("idempotent-replayed") === "true",',
    'replayed: answer.header("idempotent-replayed") === "true" && !is("hides-replays"),',
  ],
  [
    "write/unknown.ts",
    'const isBuried = await writing.held.bury(durationMs(options.within ?? WITHIN_MS, "within"));',
    'const burying = is("abandons-without-release") ? true : writing.held.bury(durationMs(options.within ?? WITHIN_MS, "within"));\n    const isBuried = is("abandons-at-once") ? true : await burying;',
  ],
  [
    "write/unknown.ts",
    "const found = await operationOfId(inner, this.operation, { untilMs, signal }).catch(() => undefined);",
    'const found = is("never-looks-up") ? undefined : await operationOfId(inner, this.operation, { untilMs, signal }).catch(() => undefined);',
  ],
  [
    "write/options.ts",
    'const key = isOwnKey ? uuidv7() : idempotencyKey(options.idempotencyKey ?? "");',
    'const own = is("has-one-key") ? "the-key" : uuidv7();\n  const key = isOwnKey || is("makes-all-keys") ? own : idempotencyKey(options.idempotencyKey ?? "");',
  ],
  [
    "write/options.ts",
    'headers["x-lock-id"] = held.grant.id;',
    'if (!is("sends-no-lock-id")) headers["x-lock-id"] = held.grant.id;',
  ],
  [
    "write/options.ts",
    'headers["idempotency-key"] = key;\n  if (isOwnKey)',
    'if (!(is("deletes-without-a-key") && target.call === "delete")) headers["idempotency-key"] = key;\n  if (isOwnKey || is("keeps-keys-of-others"))',
  ],
  [
    "write/options.ts",
    "retries: (options.retries ?? retries) && (body?.isReplayable ?? true),",
    'retries: (options.retries ?? retries) && ((body?.isReplayable ?? true) || is("sends-streams-twice")),',
  ],
  [
    "write/options.ts",
    "ridesOut: options.rideOut ?? false,",
    'ridesOut: ((options.rideOut ?? false) && !is("rides-out-nothing")) || is("rides-out-everything"),',
  ],
  [
    "write/options.ts",
    'if (ifMatch !== undefined) headers["if-match"]',
    'if (ifMatch !== undefined && !is("drops-conditions")) headers["if-match"]',
  ],
  [
    "write/options.ts",
    'if (ifAbsent) headers["if-none-match"]',
    'if (ifAbsent && !is("drops-conditions")) headers["if-none-match"]',
  ],
  [
    "write/commit.ts",
    "if (operations.length < 1 || operations.length > OPERATIONS_MAX) {",
    'if (!is("checks-no-limits") && (operations.length < 1 || operations.length > OPERATIONS_MAX)) {',
  ],
  [
    "write/commit.ts",
    "operationList(this.#operations, this.#versions)",
    'operationList(this.#operations, is("commits-unconditionally") ? new Map() : this.#versions)',
  ],
  [
    "write/put.ts",
    "const said = readable(effect.body);",
    'const said = readable(effect.body);\n  const lacksDigest = said !== undefined && said.sha256 == null && is("wants-a-digest");\n  if (lacksDigest || (said === undefined && is("fails-what-it-cannot-read"))) throw new GatewayFault("not as it should be");',
  ],
  [
    "write/put.ts",
    "const { etag, created, replayed } = effect;",
    'const { etag, replayed } = effect;\n  const created = effect.created !== is("mixes-up-created");',
  ],
  [
    "write/upstream.ts",
    'headers["x-fence-token"] = held.grant.token;',
    'if (is("drops-keys-of-others")) delete headers["idempotency-key"];\n  if (is("forwards-with-a-key")) headers["x-fence-seq"] = "1";\n  headers["x-fence-token"] = held.grant.token;',
  ],
  [
    "write/upstream.ts",
    "const reply = await inner.transport.attempt(request, new RequestIds().next(), signal, isMeant);",
    'let reply = await inner.transport.attempt(request, new RequestIds().next(), signal, isMeant);\n    if (is("forwards-twice") && reply.is === "nothing") reply = await inner.transport.attempt(request, new RequestIds().next(), signal, isMeant);',
  ],
  [
    "write/update.ts",
    "const old = await present(getObject(inner, resource, key, { signal }));",
    'const read = await present(getObject(inner, resource, key, { signal }));\n    const old = is("updates-without-reading") ? undefined : read;',
  ],
  [
    "write/update.ts",
    "if (made === KEEP || (made === DELETE && old === undefined)) return undefined;",
    'if (made === KEEP && is("writes-what-is-kept")) return put(held, resource, key, new Body(""), { signal });\n    if (made === KEEP || (made === DELETE && old === undefined)) return undefined;',
  ],
  [
    "write/update.ts",
    "within: options.within, ifMatch: old?.etag }",
    'within: options.within, ifMatch: is("deletes-anything") ? undefined : old?.etag }',
  ],
  [
    "write/update.ts",
    "if (!(error instanceof Changed) || round >= ROUNDS_MAX) throw error;",
    'if (is("hides-failed-updates") && !(error instanceof Changed)) return undefined;\n      if (!(error instanceof Changed) || is("updates-once") || (round >= ROUNDS_MAX && !is("updates-for-ever"))) throw error;',
  ],
  [
    "guard/numbers.ts",
    "this.#open.add(this.#last);\n    return this.#last;",
    'this.#open.add(this.#last);\n    if (is("counts-from-zero")) return this.#last - 1;\n    return is("shares-numbers") ? (shared += 1) : this.#last;',
  ],
  [
    "guard/numbers.ts",
    "/** Gives each write a rising number",
    "let shared = 0;\n\n/** Gives each write a rising number",
  ],
  ["guard/numbers.ts", "while (this.#underWay > 0) await", 'while (this.#underWay > 0 && !is("leaves-at-once")) await'],
  [
    "guard/guard.ts",
    "if (resources.length === 1) return resources[0]!;",
    'if (resources.length === 1 || is("writes-anywhere")) return resources[0]!;',
  ],
];
