// Many locks: the first paint stays what it is, and so does what is drawn.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { closeBrowser, dev, open, sleep } from "./rig.mjs";

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

/** The shortest of some times from the request for the page until a row is drawn, in milliseconds. */
async function firstPaint(t, callers) {
  const times = [];
  const first = () => {
    const look = () => {
      if (document.querySelector("tbody tr a.name")) globalThis.drawnAt = performance.now();
      else requestAnimationFrame(look);
    };
    look();
  };
  for (let count = 0; count < 3; count++) {
    const page = await open(t, callers, "locks", { first });
    await page.waitForFunction(() => globalThis.drawnAt !== undefined);
    times.push(await page.evaluate(() => globalThis.drawnAt));
    await page.close();
  }
  return Math.min(...times);
}

test("10,000 locks are first painted within thrice the time of 100", async (t) => {
  const callers = await dev(t);
  await take(callers, 0, 100);
  const few = await firstPaint(t, callers);
  await take(callers, 100, 10_000);
  const many = await firstPaint(t, callers);
  t.diagnostic(`first paint: ${few.toFixed(0)} ms with 100, ${many.toFixed(0)} ms with 10,000`);
  assert.ok(many <= 3 * few, `${many} ms beside ${few} ms`);
  const page = await open(t, callers, "locks");
  await page.getByText("The first 1000 by name").first().waitFor();
  await sleep(1_000);
  const rows = await page.locator("tbody tr").count();
  assert.equal(rows, 100);
  await page.getByRole("button", { name: "After" }).first().click();
  await page.getByText("101 to 200 of 1000").first().waitFor();
  await page.getByRole("link", { name: "many:00100", exact: true }).waitFor();
});
