// Many locks: what is asked for and drawn at first stays what it is, and so does what is drawn later.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeBrowser, dev, open, settled } from "./rig.mjs";

after(closeBrowser);

/** Resources that one lock has here. */
const EACH = 32;

async function take(callers, from, to) {
  for (let number = from; number < to; number += EACH) {
    const resources = Array.from(
      { length: Math.min(EACH, to - number) },
      (_, at) => `many:${String(number + at).padStart(5, "0")}`,
    );
    const { status } = await callers.post("/locks", { owner: `worker-${number}`, resources, ttl: "1h" });
    assert.equal(status, 201);
  }
}

/** What a page had asked for locks, and which rows were drawn, when the first of them was. */
async function firstPaint(t, callers) {
  const first = () => {
    const look = () => {
      const rows = document.querySelectorAll("tbody tr").length;
      if (rows === 0) return requestAnimationFrame(look);
      const asked = performance.getEntriesByType("resource").map(({ name }) => name);
      globalThis.painted = { rows, asked: asked.filter((url) => new URL(url).pathname === "/locks") };
    };
    look();
  };
  const page = await open(t, callers, "locks", { first });
  await page.waitForFunction(() => globalThis.painted !== undefined);
  const { rows, asked } = await page.evaluate(() => globalThis.painted);
  const limits = asked.map((url) => Number(new URL(url).searchParams.get("limit")));
  await page.close();
  return { rows, limits };
}

test("of 10,000 locks a page is asked for and drawn first, as of 100", async (t) => {
  const callers = await dev(t);
  await take(callers, 0, 100);
  const few = await firstPaint(t, callers);
  await take(callers, 100, 10_000);
  const many = await firstPaint(t, callers);
  assert.deepEqual([few, many], Array(2).fill({ rows: 100, limits: [100] }));
  const page = await open(t, callers, "locks");
  await page.getByText("The first 1000 by name").first().waitFor();
  await settled(page);
  const rows = await page.locator("tbody tr").count();
  assert.equal(rows, 100);
  await page.getByRole("button", { name: "After" }).first().click();
  await page.getByText("101 to 200 of 1000").first().waitFor();
  await page.getByRole("link", { name: "many:00100", exact: true }).waitFor();
});
