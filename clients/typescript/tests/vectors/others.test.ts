// Classes of answers, ends of scopes, streams of events and the bodies of commits.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { CLASS_OF_CODE, classOfForeign, type LossReason } from "../../src/core/classes.js";
import { FenceError, LockLost, type Problem } from "../../src/core/errors.js";
import { leave, type BodyEnd } from "../../src/core/leaving.js";
import { operationList, partHead, partsTail, type CommitOperation } from "../../src/core/multipart.js";
import { Settling } from "../../src/core/settling.js";
import { base64, digestHeader, hex, Sha256, sha256, sha256OfHeader } from "../../src/core/sha256.js";
import { concat, SseParser } from "../../src/core/sse.js";
import { errorOf, isRetried } from "../../src/transport/answer.js";
import { Time } from "../../src/transport/time.js";
import { Transport } from "../../src/transport/transport.js";
import { Urls } from "../../src/transport/urls.js";
import { clientsFolder, load, replay, type Case } from "./load.js";

interface ErrorCase extends Case {
  readonly write: boolean;
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly problem?: Problem;
  readonly text?: string;
  readonly class: string;
  readonly reason?: string | null;
  readonly retry: boolean;
}

const { request_id: requestId } = load<{ request_id: string }>("errors");

/** A transport that gets this answer, whatever it sends. */
function answered(one: ErrorCase): Transport {
  const body = one.problem === undefined ? one.text : JSON.stringify(one.problem);
  const isEmpty = [204, 205, 304].includes(one.status);
  const send = (async () => {
    const response = new Response(isEmpty ? null : body, { headers: one.headers });
    // Made like this, since some statuses cannot be given to a Response.
    return new Proxy(response, {
      get(target, name) {
        if (name === "status") return one.status;
        const value = Reflect.get(target, name) as unknown;
        return typeof value === "function" ? value.bind(target) : value;
      },
    });
  }) as typeof fetch;
  const { setTimeout, clearTimeout } = globalThis;
  const surroundings = {
    fetch: send,
    now: () => 0,
    random: () => 0.5,
    setTimeout,
    clearTimeout: clearTimeout as never,
  };
  const time = new Time(surroundings);
  const urls = new Urls("http://localhost");
  const allowListeners = (): void => {};
  const given = {
    allowListeners,
    credential: undefined,
    traceparent: undefined,
    headers: {},
    userAgent: "test",
    headMs: 9,
    idleMs: 9,
  };
  return new Transport({ fetch: send, time, urls, ...given });
}

replay<ErrorCase>("errors", async (one) => {
  const reply = await answered(one).attempt({ method: "GET", path: "/" }, requestId);
  assert.notEqual(reply.is, "done");
  if (reply.is === "done") return;
  if (one.write && reply.is !== "problem") {
    // What is no gateway's answer to a write is judged with all attempts of it.
    assert.equal(reply.is, "foreign");
    const verdict = new Settling(true, false, "none").judge({ is: "foreign", status: one.status }, noOthers);
    assert.equal(one.class, verdict === "again" ? "OutcomeUnknown" : "Denied");
    assert.equal(one.retry, verdict === "again");
    return;
  }
  const error: FenceError = errorOf(reply, 1);
  const isUnknown = one.write && one.class === "OutcomeUnknown";
  assert.equal(error.class, isUnknown ? "Unavailable" : one.class);
  if (isUnknown) {
    assert.ok(reply.is === "problem");
    const settling = new Settling(true, true, "none");
    const verdict = settling.judge({ is: "problem", code: reply.problem.code, class: "OutcomeUnknown" }, noOthers);
    assert.ok(verdict === "again" && settling.isOpen);
  }
  if (one.reason != null) assert.equal((error as LockLost).reason, one.reason);
  assert.equal(isRetried(reply), one.retry);
  if (reply.is === "foreign") assert.equal(classOfForeign(one.status), one.class);
});

const noOthers = { overlapped: false, earlierIsOpen: false };

test("every code has one class, which is that of the rules", () => {
  const rules = readFileSync(join(clientsFolder(), "SPEC.md"), "utf8").split("\n");
  const { cases } = load<{ cases: ErrorCase[] }>("errors");
  const codes = cases.filter((one) => one.id.startsWith("code-")).map((one) => one.id.slice("code-".length));
  assert.deepEqual([...CLASS_OF_CODE.keys()].sort(), codes.sort());
  for (const [code, cls] of CLASS_OF_CODE) {
    const row = rules.find((line) => line.startsWith(`| \`${cls}\``) && line.includes(`\`${code}\``));
    assert.ok(row !== undefined, `${code} is not ${cls} in CC58`);
  }
});

interface ScopeCase extends Case {
  readonly body: "returns" | "raises" | "cancelled-by-signal" | "cancelled-outside";
  readonly lost: LossReason | null;
  readonly on_lost: "fail" | "ignore";
  readonly outcome: { readonly is: string; readonly reason?: string };
  readonly release: string;
}

replay<ScopeCase>("scope", (one) => {
  const ends: Record<ScopeCase["body"], BodyEnd> = {
    returns: "returned",
    raises: "failed",
    "cancelled-by-signal": "cancelled",
    "cancelled-outside": "dropped",
  };
  const { outcome, release } = leave(
    ends[one.body],
    one.lost ?? undefined,
    one.on_lost === "fail" ? "raise" : "ignore",
  );
  assert.deepEqual(outcome, one.outcome);
  assert.equal(release, one.release);
});

interface SseCase extends Case {
  readonly chunks: readonly (string | { readonly base64: string })[];
  readonly events: readonly { readonly event: string; readonly data: string; readonly id: string }[];
  readonly retry: number | null;
}

replay<SseCase>("sse", ({ chunks, events, retry }) => {
  const bytes = chunks.map((chunk) =>
    typeof chunk === "string" ? Buffer.from(chunk) : Buffer.from(chunk.base64, "base64"),
  );
  const whole = Buffer.concat(bytes);
  const single = Array.from(whole, (byte) => Buffer.from([byte]));
  for (const cut of [bytes, [whole], single]) {
    const parser = new SseParser();
    const items = cut.flatMap((piece) => parser.push(piece));
    const told = items.flatMap((item) => (item.is === "event" ? [{ ...item, is: undefined }] : []));
    assert.deepEqual(
      told,
      events.map((event) => ({ is: undefined, ...event })),
    );
    const waits = items.flatMap((item) => (item.is === "retry" ? [item.ms] : []));
    assert.equal(waits.at(-1) ?? null, retry);
    assert.ok(!items.some((item) => item.is === "too-long"));
  }
});

test("a stream without end or measure is given up", () => {
  for (const stream of ["data: 0123456789012345", "data: 012345678\ndata: 012345678\n\n"]) {
    const parser = new SseParser(16);
    assert.deepEqual(parser.push(Buffer.from(stream)), [{ is: "too-long" }]);
    assert.deepEqual(parser.push(Buffer.from("\n\ndata: a\n\n")), []);
  }
  assert.deepEqual(new SseParser(16).push(Buffer.from(": 01234567890\n".repeat(3))), []);
});

interface MultipartCase extends Case {
  readonly boundary: string;
  readonly operations: readonly {
    readonly op: "put" | "delete";
    readonly resource: string;
    readonly key: string;
    readonly text?: string;
    readonly base64?: string;
    readonly content_type?: string;
    readonly if_match?: string;
    readonly if_absent?: boolean;
  }[];
  readonly versions: Readonly<Record<string, number | string>>;
  readonly body: { readonly text?: string; readonly base64?: string };
}

function decoded({ text, base64 }: { text?: string; base64?: string }): Buffer {
  return text === undefined ? Buffer.from(base64 ?? "", "base64") : Buffer.from(text);
}

replay<MultipartCase>("multipart", ({ boundary, operations, versions, body }) => {
  const parts: Uint8Array[] = [];
  let bodies = 0;
  const listed = operations.map((one): CommitOperation => {
    const { op, resource, key, content_type, if_match } = one;
    const if_none_match = one.if_absent ? "*" : undefined;
    const known = { op, resource, key, content_type, if_match, if_none_match };
    if (op === "delete") return known;
    const bytes = decoded(one);
    const name = `b${bodies++}`;
    const digest = digestHeader(new Sha256().update(bytes).digest());
    parts.push(partHead(boundary, false, name, content_type ?? "application/octet-stream", digest), bytes);
    return { ...known, body: name };
  });
  const list = Buffer.from(
    operationList(listed, new Map(Object.entries(versions).map(([name, version]) => [name, String(version)]))),
  );
  const first = partHead(boundary, true, "operations", "application/json", undefined);
  const whole = concat([first, list, ...parts, partsTail(boundary)]);
  assert.equal(Buffer.from(whole).toString(), decoded(body).toString());
  assert.deepEqual(Buffer.from(whole), decoded(body));
});

test("SHA-256 is that of others, however the bytes are cut", async () => {
  const { createHash } = await import("node:crypto");
  for (let size = 0; size < 300; size += 1) {
    const bytes = Buffer.alloc(size, `${size} bytes, `);
    const expected = createHash("sha256").update(bytes).digest("hex");
    assert.equal(hex(new Sha256().update(bytes).digest()), expected);
    const pieces = new Sha256();
    for (let at = 0; at < size; at += 7) pieces.update(bytes.subarray(at, at + 7));
    assert.equal(hex(pieces.digest()), expected);
    assert.equal(hex(await sha256(bytes)), expected);
    assert.equal(sha256OfHeader(`sha-512=:AAAA:, ${digestHeader(await sha256(bytes))}`), expected);
  }
  const large = Buffer.alloc(1 << 20, 7);
  assert.equal(hex(await sha256(large)), createHash("sha256").update(large).digest("hex"));
  for (const none of ["", "sha-256", "sha-256=:AAAA:", "sha-256=:!:", "sha-512=:AAAA:"]) {
    assert.equal(sha256OfHeader(none), undefined);
  }
  assert.equal(base64(new Uint8Array([1, 2, 253])), "AQL9");
});
