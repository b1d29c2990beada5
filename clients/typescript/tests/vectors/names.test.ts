// Names and durations: what is refused before anything is sent, and how the rest is written.

import assert from "node:assert/strict";
import { maxHoldMs, sent, ttlMs, waitMs, type Duration } from "../../src/core/durations.js";
import { Misuse } from "../../src/core/errors.js";
import { objectFlaw, objectPath, resourceFlaw, resourcePath } from "../../src/core/names.js";
import { replay, type Case } from "./load.js";

interface NameCase extends Case {
  readonly kind: "resource" | "key";
  readonly name: string;
  readonly path?: string;
  readonly refused?: string;
}

replay<NameCase>("names", ({ kind, name, path, refused }) => {
  assert.notEqual(path === undefined, refused === undefined, "path or refused");
  const flaw = kind === "resource" ? resourceFlaw(name) : objectFlaw(name);
  assert.equal(flaw, refused);
  if (path === undefined) return;
  if (kind === "resource") assert.equal(resourcePath(name), `/resources/${path}`);
  else assert.equal(objectPath("r", name), `/resources/r/objects/${path}`);
});

interface DurationCase extends Case {
  readonly kind: "ttl" | "max_hold" | "wait";
  readonly given: Duration;
  readonly sent?: string;
  readonly refused?: boolean;
}

function read(kind: DurationCase["kind"], given: Duration): string {
  if (kind === "ttl") return sent(ttlMs(given));
  if (kind === "max_hold") return sent(maxHoldMs(given));
  const ms = waitMs(given);
  return ms === Infinity ? "forever" : sent(ms);
}

replay<DurationCase>("durations", ({ kind, given, sent: expected, refused }) => {
  assert.notEqual(expected === undefined, refused !== true, "sent or refused");
  if (refused) assert.throws(() => read(kind, given), Misuse);
  else assert.equal(read(kind, given), expected);
});
