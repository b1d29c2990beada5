// That everybody can use it: axe finds nothing, in all views, light and dark, narrow and enlarged.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, test } from "node:test";
import { closeBrowser, dev, goTo, job, jobDone, lost, open, running, settled, sleep, stateOf } from "./rig.mjs";

after(closeBrowser);

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core"), "utf8");
/** Where pictures of all views go, to be looked at by somebody. */
const PICTURES = process.env.FENCE_TEST_PICTURES;

/** A gateway with something in every view. */
async function lively(t) {
  const callers = await dev(t);
  const late = await callers.lock("worker-a:4711:9f2a", "invoices:2026", "1s");
  await callers.put(late, "total.txt", "1");
  await callers.lock("worker-c", "orders:1", "1s");
  await sleep(1_200);
  const lock = await callers.lock("worker-b:812:77c0", "invoices:2026", "1h");
  await callers.put(late, "total.txt", "late");
  await callers.put(lock, "total.txt", "2");
  await callers.put(lock, "reports/2026-11.csv", "a;b\n".repeat(500), "text/csv");
  await callers.lock("cron-3:99:12ab", "job:nightly", "1h");
  await callers.lock("worker-e", "crm:7", "1h");
  await callers.post("/resources/crm:7/break", { reason: "hangs since midnight", after: "1h" });
  await callers.post("/resources/job:nightly/freeze", { reason: "we look into it" });
  await callers.post("/resources/orders:1/protect", { reason: "the books of last year" });
  await work(t, callers);
  return callers;
}

/** Jobs of all kinds. */
async function work(t, callers) {
  const print = (code) => ["--", "sh", "-c", `seq 1 30; echo "row 31 is no row" >&2; exit ${code}`];
  const cron = { owner: "cron-3:4711:12ab" };
  const books = async () => {
    await jobDone(t, callers, ["run", "books", "--every", "1d", ...print(3)], 3, cron);
    await jobDone(t, callers, ["run", "books", "--every", "1d", ...print(0)], 0, cron);
    for (const code of [0, 0, 4, 0]) await jobDone(t, callers, ["run", "books", ...print(code)], code, cron);
    await running(t, callers, "books", [], cron);
    job(t, callers, ["agent", "books", "--", "true"], { owner: "agent-1:88:77fe" });
  };
  await Promise.all([
    books(),
    lost(t, callers, "gone", cron),
    jobDone(t, callers, ["run", "late", "--every", "1s", "--overdue-after", "1s", "--", "true"]),
    jobDone(t, callers, ["run", "in-parts", "--every", "1d", "--shards", "3", "--concurrency", "3", "--", "true"]),
  ]);
}

const VIEWS = [
  "locks",
  "resources",
  "resource?name=invoices:2026",
  "resource?name=crm:7",
  "resource?name=none",
  "rejections",
  "rejections?group=owner",
  "jobs",
  "job?name=books",
  "job?name=gone",
  "job?name=in-parts",
  "job?name=none",
  "events",
  "audit",
  "intents",
  "access",
  "status",
  "search?for=worker",
];
const WAYS = {
  wide: {},
  "wide-dark": { colorScheme: "dark" },
  narrow: { viewport: { width: 320, height: 640 } },
  "narrow-dark": { viewport: { width: 320, height: 640 }, colorScheme: "dark" },
  enlarged: { viewport: { width: 640, height: 400 }, deviceScaleFactor: 2 },
  still: { reducedMotion: "reduce" },
  "forced-colors": { forcedColors: "active" },
};

// Looked at is one gateway, since most of the time goes into what there is to see.
test("axe finds nothing", async (t) => {
  const callers = await lively(t);
  for (const [way, context] of Object.entries(WAYS)) await t.test(way, (t) => looked(t, callers, way, context));
});

/** Looks at all views and dialogs in one of these ways. */
async function looked(t, callers, way, context) {
  // Somebody waits in line, for as long as this takes.
  void callers.lock("worker-d", "invoices:2026", "1h", { wait: "50s" }).catch(() => {});
  const page = await open(t, callers, "", { context, allows: [] });
  // As the debugger's own script: the policy of the page lets no other in.
  const debugger_ = await page.context().newCDPSession(page);
  await debugger_.send("Runtime.evaluate", { expression: AXE });
  const wrong = [];
  const evaluate = async (view) => {
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    const found = violations.map(
      ({ id, nodes }) => `${view}: ${id}: ${nodes.map((node) => node.html.slice(0, 160)).join(" | ")}`,
    );
    wrong.push(...found);
    const width = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (width > 0) wrong.push(`${view} is ${width} pixels too wide`);
    if (PICTURES) {
      await mkdir(PICTURES, { recursive: true });
      await page.screenshot({ path: join(PICTURES, `${way}-${view.replace(/[^a-z]+/g, "-")}.png`), fullPage: true });
    }
  };
  const runs = (await stateOf(callers, "job:books")).recent.map((run) => `${run.slot}.${run.attempt}`);
  for (const view of [...VIEWS, `run?name=books&run=${runs.at(-1)}`]) {
    await goTo(page, view);
    await settled(page);
    await evaluate(view);
  }
  await goTo(page, "resource?name=invoices:2026");
  await page.getByRole("button", { name: "Break" }).click();
  await page.getByRole("dialog").waitFor();
  await evaluate("dialog");
  await page.keyboard.press("Escape");
  await goTo(page, "job?name=books");
  for (const verb of ["Break", "Run now"]) {
    await page.getByRole("group", { name: "Actions" }).getByRole("button", { name: verb }).click();
    await page.getByRole("dialog").waitFor();
    if (verb === "Run now") await page.getByLabel(/^Slot/).fill("tomorrow");
    await evaluate(`dialog ${verb}`);
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
  }
  await page.getByRole("button", { name: "Keys" }).click();
  await page.getByRole("dialog").waitFor();
  await evaluate("keys");
  assert.deepEqual(wrong, []);
}
