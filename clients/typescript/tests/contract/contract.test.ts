// What openapi.yaml has, this library has, or covered.json says why not.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { Fencegate } from "../../src/client/fencegate.js";
import { CLASS_OF_CODE } from "../../src/core/classes.js";
import { Guard } from "../../src/guard/guard.js";
import { Lock } from "../../src/guard/lock.js";
import { Admin } from "../../src/operators.js";
import { VERSION } from "../../src/version.js";
import { clientsFolder } from "../vectors/load.js";
import { checked } from "./types.js";

const folder = join(clientsFolder(), "typescript");
const openapi = readFileSync(join(clientsFolder(), "..", "openapi.yaml"), "utf8");

interface Covered {
  readonly operations: Record<string, string>;
  readonly operations_left_out: Record<string, string>;
  readonly schemas: Record<string, string>;
  readonly schemas_left_out: Record<string, string>;
}

const covered = JSON.parse(readFileSync(join(folder, "tests/contract/covered.json"), "utf8")) as Covered;

/** All names, each once, in order. */
function once(...lists: readonly string[][]): string[] {
  const all = lists.flat().sort();
  assert.deepEqual(all, [...new Set(all)], "one comes twice");
  return all;
}

test("every operation is wrapped, or is left out for a reason", () => {
  const found = [...openapi.matchAll(/^ +operationId: (\w+)$/gm)].map((match) => match[1]!);
  const listed = once(Object.keys(covered.operations), Object.keys(covered.operations_left_out));
  assert.deepEqual(listed, found.sort());
  const classes: Record<string, { prototype: object }> = { Fencegate, Guard, Lock, Admin };
  for (const [operation, wrapper] of Object.entries(covered.operations)) {
    const [name = "", method = ""] = wrapper.split(".");
    assert.ok(method in (classes[name]?.prototype ?? {}), `${operation}: there is no ${wrapper}`);
  }
});

test("every schema is known, or is left out for a reason", () => {
  const part = openapi.slice(openapi.indexOf("\n  schemas:\n"));
  const section = part.slice(1).split(/\n {2}(?=\w+:\n)/)[0] ?? "";
  const found = [...section.matchAll(/^ {4}(\w+):$/gm)].map((match) => match[1]!);
  assert.ok(found.length > 90, "the schemas were not found");
  const listed = once(checked, Object.keys(covered.schemas), Object.keys(covered.schemas_left_out));
  assert.deepEqual(listed, found.sort());
});

test("every error code has a class", () => {
  const part = openapi.slice(openapi.indexOf("\n    ErrorCode:\n"));
  const list = part.slice(part.indexOf("enum:")).split(/\n {4}\w/)[0] ?? "";
  const codes = [...list.matchAll(/^ +- ([a-z-]+)$/gm)].map((match) => match[1]!);
  assert.ok(codes.length > 60, "the codes were not found");
  assert.deepEqual([...CLASS_OF_CODE.keys()].sort(), codes.sort());
});

test("the version is that of the package and of the workspace", () => {
  const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as { version: string };
  const workspace = /\[workspace\.package\]\nversion = "([^"]+)"/.exec(
    readFileSync(join(clientsFolder(), "..", "Cargo.toml"), "utf8"),
  );
  assert.equal(VERSION, version);
  assert.equal(version, workspace?.[1]);
});
