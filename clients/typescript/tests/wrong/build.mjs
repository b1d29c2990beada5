// Builds the wrong clients: a copy of the sources with the changes beside this file in it, each of which is on in a
// driver that is started with its name in FENCE_TEST_CLIENT_MUTANT. The sources themselves know nothing of them.
//
//   node tests/wrong/build.mjs [FOLDER]
//   fencegate-conformance mutants --driver 'node build/wrong/dist/testing/driver.js'

import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import core from "./changes/core.mjs";
import locks from "./changes/locks.mjs";
import others from "./changes/others.mjs";
import writes from "./changes/writes.mjs";

const here = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const folder = resolve(process.argv[2] ?? join(here, "build/wrong"));
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
cpSync(join(here, "src"), join(folder, "src"), { recursive: true });

const mutants = `// Which wrong client this is.

/** Whether it is the one of this name. */
export function is(name: string): boolean {
  return process.env["FENCE_TEST_CLIENT_MUTANT"] === name;
}
`;
writeFileSync(join(folder, "src/mutants.ts"), mutants);

const names = new Set();
const changed = new Map();
const misfits = [];
for (const [file, before, after] of [...core, ...locks, ...writes, ...others]) {
  const path = join(folder, "src", file);
  const source = changed.get(path) ?? readFileSync(path, "utf8");
  const found = source.split(before).length - 1;
  if (found !== 1) misfits.push(`${file}: found ${found} times instead of once:\n${before}`);
  // By a function, since the text may have what a replacement takes for a group.
  changed.set(
    path,
    source.replace(before, () => after),
  );
  for (const [, name] of after.matchAll(/\bis\("([a-z-]+)"\)/g)) names.add(name);
}
if (misfits.length > 0) throw new Error(misfits.join("\n\n"));
for (const [path, source] of changed) {
  const from = relative(dirname(path), join(folder, "src/mutants.js"));
  const importing = `import { is } from "${from.startsWith(".") ? from : `./${from}`}";\n`;
  const top = source.startsWith("#!") ? source.indexOf("\n") + 1 : 0;
  writeFileSync(path, source.slice(0, top) + importing + source.slice(top));
}
const config = {
  extends: join(here, "tsconfig.json"),
  compilerOptions: { rootDir: "src", outDir: "dist", typeRoots: [join(here, "node_modules/@types")] },
  include: ["src"],
};
writeFileSync(join(folder, "package.json"), '{"type":"module"}');
writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(config));
execFileSync(join(here, "node_modules/.bin/tsc"), ["-p", join(folder, "tsconfig.json")], { stdio: "inherit" });
writeFileSync(join(folder, "names.txt"), [...names].sort().join("\n") + "\n");
console.log(`${names.size} wrong clients are built`);
