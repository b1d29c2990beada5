// Wrong clients in how locks are taken, kept and lost.

export default [
  [
    "acquire/acquire.ts",
    "if (isHeldHere(inner, wish.resources)) {",
    'if (isHeldHere(inner, wish.resources) && !is("waits-for-itself")) {',
  ],
  [
    "acquire/acquire.ts",
    "readonly #untilMs: number;\n  #id = uuidv7();",
    'readonly #untilMs: number;\n  #id = is("makes-old-ids") ? crypto.randomUUID() : is("has-one-lock-id") ? "01920000-0000-7000-8000-0000000000aa" : uuidv7();',
  ],
  [
    "acquire/acquire.ts",
    "pauseMs = 1_000 + portion(4_000, time.draw());",
    'pauseMs = is("crowds-the-line") ? 0 : 1_000 + portion(4_000, time.draw());',
  ],
  [
    "acquire/acquire.ts",
    "id: this.#id,\n      ttl: sentDuration(ttlMs),",
    'id: is("acquires-anew") ? uuidv7() : this.#id,\n      ttl: is("forgets-the-ttl") ? undefined : sentDuration(ttlMs),',
  ],
  [
    "acquire/acquire.ts",
    "await this.#bury();\n    this.#id = uuidv7();",
    'await this.#bury();\n    if (!is("keeps-the-given-back")) this.#id = uuidv7();',
  ],
  [
    "acquire/acquire.ts",
    "const isProven = times.ttlMs !== null && granted.canBegin(nowMs);",
    `const isLate = granted.deadlineMs !== null && granted.deadlineMs <= nowMs;
    const isTaken = isLate ? is("takes-late-grants") : is("counts-the-wait");
    const isProven =
      (times.ttlMs !== null && granted.canBegin(nowMs)) ||
      (times.ttlMs === null ? is("trusts-infinite-grants") : isTaken);`,
  ],
  [
    "guard/renewing.ts",
    "if (!held.lease.canBegin(inner.time.now())) throw",
    'if (!held.lease.canBegin(inner.time.now()) && !is("gives-out-the-rest")) throw',
  ],
  [
    "holding/handoff.ts",
    "const isProven = known.canBegin(nowMs);",
    'const isProven = known.canBegin(nowMs) || is("adopts-by-the-first");',
  ],
  [
    "holding/shards.ts",
    'error.kind === "LockHeld") return undefined;',
    'error.kind === "LockHeld" && !is("fails-to-try")) return undefined;',
  ],
  [
    "holding/shards.ts",
    "for (let at = count - 1; at > 0; at -= 1) {",
    'for (let at = count - 1; at > 0 && !is("shuffles-nothing"); at -= 1) {',
  ],
  [
    "release.ts",
    "const going = burial.inner.inBackground",
    'if (is("waits-for-releases")) withinMs = 60_000;\n  const going = burial.inner.inBackground',
  ],
  [
    "release.ts",
    'if (reply?.is === "done") {',
    'if (is("releases-once") && reply?.is !== "done") return true;\n    if (reply?.is === "done" && !(reply.status === 200 && is("doubts-burials"))) {',
  ],
  [
    "release.ts",
    'reply === undefined ? "it failed" : summary(reply)',
    'reply === undefined || reply.is === "done" ? "it failed" : summary(reply)',
  ],
  ["release.ts", "reply && floorMs(reply)", 'reply?.is === "done" ? undefined : reply && floorMs(reply)'],
  ["guard/held.ts", "this.inOrder = grant.isOrdered ?", 'this.inOrder = grant.isOrdered && !is("ignores-the-order") ?'],
  [
    "guard/held.ts",
    'if (state === "released") throw',
    'if (state === "uncertain" && is("refuses-the-uncertain")) throw new LockLost("unconfirmed");\n    if (state === "released" && !is("writes-when-released")) throw',
  ],
  [
    "guard/held.ts",
    "if (isWatched && isServer) this.#watchesMs = this.grantedMs + WATCHED_AFTER_MS;",
    'if ((isWatched || is("watches-always")) && isServer) this.#watchesMs = this.grantedMs + (is("watches-at-once") ? 0 : WATCHED_AFTER_MS);',
  ],
  [
    "guard/held.ts",
    "// 1. The clock first: a process that was stopped learns it before anything else happens (CC37).",
    'const dueMs = this.lease.dueMs;\n    if (is("renews-before-looking") && dueMs !== null && dueMs <= this.inner.time.now()) beginRenewal(this, this.inner.time.now());',
  ],
  [
    "guard/held.ts",
    'if (typeof words === "string") this.#words = words;',
    'if (typeof words === "string" && !is("forgets-the-reason")) this.#words = words;',
  ],
  ["guard/registry.ts", "if (isLate) for", 'if (isLate && !is("renews-before-looking")) for'],
  [
    "acquire/acquire.ts",
    "s3: lock.s3 == null ? undefined : s3AccessOf(lock.s3),",
    's3: lock.s3 == null ? undefined : is("shares-keys") ? (FIRST[0] ??= s3AccessOf(lock.s3)) : s3AccessOf(lock.s3),',
  ],
  ["acquire/acquire.ts", "const DRAINING =", "const FIRST: ReturnType<typeof s3AccessOf>[] = [];\nconst DRAINING ="],
  [
    "guard/renewing.ts",
    'held.learn({ on: "renewed", sentMs, ...timesOf(told.lock) });',
    'held.learn({ on: "renewed", sentMs, ...timesOf(told.lock) });\n    if (is("takes-later-keys") && told.lock.s3 != null) Object.assign(held.grant, { s3: s3AccessOf(told.lock.s3) });',
  ],
  [
    "guard/renewing.ts",
    'import type { LockRecord, RenewManyAnswer } from "../wire.js";',
    'import { s3AccessOf } from "../holding/s3.js";\nimport type { LockRecord, RenewManyAnswer } from "../wire.js";',
  ],
  [
    "guard/renewing.ts",
    "if (batch.length === BATCH_MAX) break;",
    'if (batch.length === BATCH_MAX && !is("renews-thousands")) break;',
  ],
  [
    "guard/renewing.ts",
    "if (!first.renewing.tryTake()) return first.lease.renewalBegan(nowMs);",
    'if (!first.renewing.tryTake() && !is("renews-twice")) return first.lease.renewalBegan(nowMs);',
  ],
  [
    "guard/renewing.ts",
    "failed(held, summary(told));\n        continue;",
    'if (is("loses-all-together")) held.learn({ on: "lost", reason: "gone" });\n        failed(held, summary(told));\n        continue;',
  ],
  [
    "guard/renewing.ts",
    "const one = told.get(held.grant.id);",
    'const one = is("mixes-up-renewals") ? [...told.values()][0] : told.get(held.grant.id);',
  ],
  [
    "guard/renewing.ts",
    'return lossReasonOf(code) !== undefined || code === "lock-breaking";',
    'return lossReasonOf(code) !== undefined || code === "lock-breaking" || is("loses-by-any-refusal");',
  ],
  [
    "guard/renewing.ts",
    "const reason = lossReasonOf(told.code);",
    'const known = is("ignores-refused-renewals") ? undefined : lossReasonOf(told.code);\n  const reason = is("loses-by-any-refusal") ? "gone" : known;',
  ],
  [
    "guard/renewing.ts",
    "held.lease.stopRenewing();\n  void",
    'if (is("breaks-at-once")) return held.learn({ on: "lost", reason: "broken" });\n  if (is("renews-while-breaking")) return held.learn({ on: "failed" });\n  held.lease.stopRenewing();\n  void',
  ],
  [
    "guard/watching.ts",
    "held.inner.streamsRefusedUntilMs = held.inner.time.now() + REFUSED_MS;",
    'held.inner.streamsRefusedUntilMs = held.inner.time.now() + (is("asks-for-refused-streams") ? 0 : REFUSED_MS);',
  ],
  [
    "guard/watching.ts",
    "if (give !== undefined) await once(held, over.signal);",
    'if (give !== undefined) await once(held, over.signal);\n      if (give !== undefined && is("takes-silence-for-loss")) held.learn({ on: "lost", reason: "gone" });',
  ],
  [
    "guard/watching.ts",
    "let event: LockEvent | null;",
    'let event: LockEvent | null;\n  if (is("watches-deaf")) return;\n  if (name === "expiring" && is("takes-warnings-for-losses")) return held.learn({ on: "lost", reason: "gone" });',
  ],
  [
    "guard/watching.ts",
    '} else if (name === "breaking") {',
    '} else if (name === "breaking" && !is("hears-of-no-break")) {',
  ],
  [
    "client/inner.ts",
    "if (this.#streams >= STREAMS_MAX) return undefined;",
    'if (this.#streams >= STREAMS_MAX && !is("watches-all")) return undefined;',
  ],
  [
    "scope.ts",
    'if (release === "awaited") await lock.release();',
    'if (release === "awaited" && !(await lock.release()) && is("fails-with-its-release")) throw new LockLost("gone");',
  ],
  [
    "scope.ts",
    'if (outcome.is === "lost") throw lossOf(lock, outcome.reason);',
    'if (outcome.is === "lost") throw is("forgets-why") ? new LockLost("gone") : lossOf(lock, outcome.reason);',
  ],
  [
    "testing/driver/guards.ts",
    'await body.live(onLost === "ignore" ? undefined : lock.signal);',
    'const ends = (onLost !== "ignore" || is("interrupts-the-heedless")) && !is("lets-the-body-run");\n    await body.live(ends ? lock.signal : undefined);',
  ],
  [
    "holding/election.ts",
    "await lock.release();\n        return",
    'if (!is("resigns-silently")) await lock.release();\n        return',
  ],
  [
    "holding/election.ts",
    "await time.within(graceMs, working);",
    'await time.within(is("lets-nobody-finish") ? 0 : graceMs, working);',
  ],
  ["holding/election.ts", "if (!rejoin ||", 'if (!rejoin || is("is-elected-once") ||'],
  [
    "holding/handoff.ts",
    "const json = new TextEncoder()",
    'if (is("hands-over-in-plain")) return JSON.stringify({ id, token, resources, owner, principal });\n    const json = new TextEncoder()',
  ],
  ["holding/handoff.ts", "isRenewed: true } as const;", 'isRenewed: !is("adopts-for-once") };'],
  [
    "holding/fence.ts",
    "const body = { id, order, force",
    'const body = { id, order: is("sets-fences-without-order") ? undefined : order, force',
  ],
];
