// The vectors of all clients, and how a file of them is replayed: every case is a test of its own.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { CLASS_OF_CODE, classOfAnswer, type ErrorClass } from "../../src/core/classes.js";

/** What every case has: its id, its rules, and why it is there. */
export interface Case {
  readonly id: string;
  readonly rules: readonly string[];
  readonly why: string;
}

interface File<C> {
  readonly core: number;
  readonly cases: readonly C[];
}

/** The folder `clients`, from wherever this file was compiled to. */
export function clientsFolder(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, "SPEC.md"))) {
    assert.notEqual(folder, dirname(folder), "clients/SPEC.md is nowhere above this file");
    folder = dirname(folder);
  }
  return folder;
}

/** A file of vectors. Numbers that JavaScript cannot hold come as text. */
export function load<F>(name: string): F {
  const text = readFileSync(join(clientsFolder(), "vectors", `${name}.json`), "utf8");
  return JSON.parse(text.replace(/(?<=": )[0-9]{16,}(?=[,\s}])/g, '"$&"')) as F;
}

/** Runs all cases of a file. */
export function replay<C extends Case>(name: string, run: (one: C) => void | Promise<void>): void {
  const file = load<File<C>>(name);
  assert.equal(file.core, 1, name);
  assert.ok(file.cases.length > 0, name);
  for (const one of file.cases) test(`${name} / ${one.id} (${one.rules.join(" ")}): ${one.why}`, () => run(one));
}

/** The code and class of what was got; `+unknown` behind a code says that the outcome is unknown. */
export function classOf(got: string): { code: string; class: ErrorClass } {
  if (got.endsWith("+unknown")) {
    const code = got.slice(0, -"+unknown".length);
    return { code, class: classOfAnswer(code, 503, true, true) };
  }
  assert.ok(CLASS_OF_CODE.has(got) || got.startsWith("fence-"), `${got} is no code`);
  return { code: got, class: classOfAnswer(got, 412, false, false) };
}

/** The status of an answer that is no gateway's. */
export function foreignStatus(got: string): number | undefined {
  return got.startsWith("proxy-") ? Number(got.slice("proxy-".length)) : undefined;
}
