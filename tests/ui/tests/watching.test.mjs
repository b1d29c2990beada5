// What operators see: who holds, who waits, who was late, and that all of it is as old as it says.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, test } from "node:test";
import { promisify } from "node:util";
import { closeBrowser, dev, eventually, fence, goTo, open, row, serve, settled, sleep } from "./rig.mjs";

after(closeBrowser);

test("a lock appears, runs out, and is taken over", async (t) => {
  const callers = await dev(t);
  const page = await open(t, callers);
  await page.getByText("No lock is held.").waitFor();
  const first = await callers.lock("worker-a", "invoices:1", "10s");
  await row(page, "worker-a").waitFor();
  const left = () =>
    row(page, "invoices:1")
      .getByRole("meter")
      .evaluate((meter) => meter.value);
  const before = await left();
  assert.ok(before > 0);
  await eventually("less time is left", async () => (await left()) < before);
  await page.getByText("No lock is held.").waitFor();
  await page.getByRole("status").getByText("1 lock lapsed").waitFor({ state: "attached" });
  await goTo(page, "locks?state=expired");
  await row(page, "worker-a").getByText("expired, may come back").waitFor();
  await callers.lock("worker-b", "invoices:1");
  await page.getByText("There is no such lock").waitFor();
  await goTo(page, "locks");
  await row(page, "worker-b").waitFor();
  assert.equal(await row(page, "worker-a").count(), 0);
  assert.equal((await callers.put(first, "x", "late")).status, 412);
});

test("what is held is told apart from what has ended, and counted by its name", async (t) => {
  const callers = await dev(t);
  for (const name of ["held:1", "held:2", "breaking", "broken"]) await callers.lock(`of-${name}`, name, "10m");
  await callers.lock("of-expired", "expired", "1s");
  await callers.post("/resources/breaking/break", { reason: "hangs", after: "5m" });
  await callers.post("/resources/broken/break", { reason: "hangs" });
  const given = await callers.lock("of-released", "released", "10m");
  await callers.call("DELETE", `/locks/${given.id}`);
  const look = async () => (await callers.call("GET", "/resources/expired")).body.state;
  await eventually("it expires", async () => (await look()) === "expired");
  const names = async (path) => (await callers.call("GET", path)).body.items.map((one) => one.resource);
  const [held, taken] = [
    ["breaking", "held:1", "held:2"],
    ["breaking", "broken", "expired", "held:1", "held:2"],
  ];
  assert.deepEqual(await names("/locks"), held);
  assert.deepEqual(await names("/locks?also_ended=true"), taken);

  const page = await open(t, callers);
  const shown = async () => (await page.getByRole("row").locator("a.name").allInnerTexts()).sort();
  await page.getByText("2 held · 1 breaking · 0 waiting").waitFor();
  assert.deepEqual(await shown(), held);
  await page.getByLabel("State").selectOption("all");
  await page.getByText("2 held · 1 breaking · 1 expired, may come back · 1 broken · 0 waiting").waitFor();
  assert.deepEqual(await shown(), taken);
  await page.getByLabel("State").selectOption("broken");
  await page.getByRole("row").filter({ hasText: "of-broken" }).waitFor();
  assert.deepEqual(await shown(), ["broken"]);

  const { stdout } = await promisify(execFile)(fence, ["locks", "--url", callers.url]);
  const listed = (text) =>
    text
      .split("\n")
      .slice(1)
      .filter(Boolean)
      .map((line) => line.split(/  +/).slice(0, 2));
  assert.deepEqual(
    listed(stdout).map(([name]) => name),
    held,
  );
  assert.ok(listed(stdout)[0][1].startsWith("held, broken in "), stdout);
  const all = await promisify(execFile)(fence, ["locks", "--all", "--sort", "age", "--url", callers.url]);
  assert.deepEqual(
    listed(all.stdout).map(([name]) => name),
    ["held:1", "held:2", "breaking", "broken", "expired"],
  );
  assert.deepEqual(
    listed(all.stdout)
      .slice(3)
      .map(([, state]) => state),
    ["broken", "expired, may come back"],
  );

  await goTo(page, "status");
  const fact = page.locator(".facts > div").filter({ hasText: "Locks held, breaking or draining" });
  await fact.getByText("3", { exact: true }).waitFor();
});

test("who waits is shown in order", async (t) => {
  const callers = await dev(t);
  await callers.lock("holder", "queue:1");
  const inLine = async () => (await callers.call("GET", "/resources/queue:1/waiters")).body.items;
  for (const [at, owner] of ["second", "third", "fourth"].entries()) {
    void callers.lock(owner, "queue:1", "60s", { wait: "50s" }).catch(() => {});
    await eventually(`${owner} is in line`, async () => (await inLine()).length > at);
  }
  const page = await open(t, callers, "resource?name=queue:1");
  const waiting = page.getByRole("table", { name: "Who waits, in order" });
  await waiting.getByText("fourth").waitFor();
  const cells = await waiting.getByRole("row").allInnerTexts();
  const owners = cells.slice(1).map((text) => text.split(/\s+/).find((word) => /second|third|fourth/.test(word)));
  assert.deepEqual(owners, ["second", "third", "fourth"]);
});

test("a late write is shown with how late it was", async (t) => {
  const callers = await dev(t);
  const late = await callers.lock("worker-a", "invoices:2", "1s");
  await sleep(1_200);
  const seconds = () => performance.now() / 1000;
  const asked = seconds();
  await callers.lock("worker-b", "invoices:2");
  const granted = seconds();
  await sleep(2_000);
  const wrote = seconds();
  assert.equal((await callers.put(late, "total.txt", "late")).status, 412);
  const [least, most] = [wrote - granted, seconds() - asked];
  const page = await open(t, callers, "rejections");
  const drawn = row(page, "total.txt").getByRole("img");
  await drawn.waitFor();
  const words = await drawn.getAttribute("aria-label");
  const told = /^worker-a wrote ([\d.]+) s late, 1 grant behind\.$/.exec(words ?? "");
  // It is rounded to tenths.
  const isRight = told && Number(told[1]) > least - 0.1 && Number(told[1]) < most + 0.1;
  assert.ok(isRight, `${words}, and it was from ${least} to ${most}`);
  await page.getByLabel("Group by").selectOption("owner");
  await row(page, "worker-a").getByText("1 write").first().waitFor();
});

test("a refused write is told by its kind, and called harmful only where it is", async (t) => {
  const callers = await dev(t);
  const lock = await callers.lock("worker-a", "r", "10m");
  const put = (headers) =>
    callers.call("PUT", "/resources/r/objects/x", "1", {
      "x-fence-token": lock.token,
      "x-lock-id": lock.id,
      ...headers,
    });
  assert.equal((await put({})).status, 201);
  const codes = [];
  const refused = async (answer, code) => codes.push((assert.equal((await answer).body.code, code), code));
  await refused(put({ "if-none-match": "*" }), "version-mismatch");
  await callers.post("/resources/r/protect", { reason: "books" });
  await refused(
    callers.call("DELETE", "/resources/r", undefined, { "x-fence-token": lock.token }),
    "resource-protected",
  );
  await callers.post("/resources/r/freeze", { reason: "books" });
  await refused(put({}), "resource-frozen");
  await callers.post("/resources/r/unfreeze", { reason: "books" });
  await refused(put({ "x-lock-id": "0190a1b2-0000-7000-8000-000000000000" }), "lock-id-mismatch");
  await refused(put({ "x-fence-token": "1234567890123" }), "fence-token-unknown");
  await callers.call("DELETE", `/locks/${lock.id}`);
  await refused(put({}), "fence-token-released");
  const told = async () => (await callers.call("GET", "/rejections")).body.items;
  await eventually("all are on record", async () => (await told()).length === codes.length);
  const page = await open(t, callers, "rejections");
  const sentences = {
    "version-mismatch": "expected another version",
    "resource-protected": "tried to delete the resource, which an operator protects",
    "resource-frozen": "wrote while an operator had frozen the resource",
    "lock-id-mismatch": "wrote under a token with the id of another lock",
    "fence-token-unknown": "wrote under a token that was never granted on this resource",
    "fence-token-released": "wrote after the lock was given back",
  };
  const fenced = ["lock-id-mismatch", "fence-token-unknown", "fence-token-released"];
  for (const code of codes) {
    await row(page, code).getByText(sentences[code]).waitFor();
    assert.equal(await row(page, code).getByText("fenced off").count(), fenced.includes(code) ? 1 : 0, code);
  }
  await page.getByText("3 fenced off").waitFor();
  const { stdout } = await promisify(execFile)(fence, ["rejections", "--url", callers.url]);
  for (const title of [
    "The version is not the expected one",
    "The resource is frozen",
    "The lock of this fence token was released",
  ])
    assert.ok(stdout.includes(title), stdout);
});

test("what is written is shown as it is written", async (t) => {
  const callers = await dev(t);
  const page = await open(t, callers, "events");
  await page.getByText("This view waits for it.").waitFor();
  const lock = await callers.lock("worker-a", "invoices:3");
  await callers.put(lock, "first.txt", "hello");
  await row(page, "first.txt").waitFor();
  await callers.put(lock, "second.txt", "hello");
  await row(page, "second.txt").waitFor();
});

test("a gateway that is gone is said to be, and what is shown gets old", async (t) => {
  const { callers, start, kill } = await serve(t);
  await callers.lock("worker-a", "invoices:4", "10m");
  const page = await open(t, callers);
  await row(page, "worker-a").waitFor();
  await kill();
  const banner = page.getByText("The gateway has not answered for");
  await banner.waitFor();
  await row(page, "worker-a").waitFor();
  await page.getByText(/^This is .* old\.$/).waitFor();
  const filter = await row(page, "worker-a")
    .locator("xpath=ancestor::table")
    .evaluate((table) => getComputedStyle(table).filter);
  assert.match(filter, /grayscale/);
  assert.equal(await page.getByText("Loading").count(), 0);
  await start();
  await banner.waitFor({ state: "detached" });
  await row(page, "worker-a").waitFor();
});

test("a tab that nobody sees asks for nothing", async (t) => {
  const callers = await dev(t);
  const page = await open(t, callers);
  await page.getByText("No lock is held.").waitFor();
  let asked = [];
  page.on("request", (one) => asked.push(one.url()));
  await eventually("it asks while it is seen", () => asked.length >= 2);
  const see = (isHidden) =>
    page.evaluate((isHidden) => {
      Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, isHidden);
  await see(true);
  // What was under way when it was hidden is over.
  await settled(page);
  asked = [];
  await sleep(4_000);
  // Comes after whatever it has asked for.
  const mine = `${callers.url}/healthz`;
  await page.evaluate((url) => fetch(url).then(() => {}), mine);
  assert.deepEqual(asked, [mine]);
  await see(false);
  await eventually("it goes on once it is seen", () => asked.length > 1);
});

test("the search finds a resource, an owner, a request and an operation", async (t) => {
  const callers = await dev(t);
  const lock = await callers.lock("worker-a:4711", "crm:7", "1s");
  const written = await callers.put(lock, "a.txt", "hello");
  await sleep(1_200);
  await callers.lock("worker-b", "crm:7");
  const refused = await callers.put(lock, "a.txt", "late");
  const page = await open(t, callers);
  const search = async (text) => {
    await page.getByRole("searchbox").fill(text);
    await page.getByRole("searchbox").press("Enter");
    await page.getByRole("heading", { level: 1, name: text }).waitFor();
  };
  await search("crm");
  await page.getByRole("link", { name: "crm:7" }).first().waitFor();
  await search("4711");
  await page.getByRole("table", { name: "Refused writes" }).getByText("worker-a:4711").waitFor();
  await search(refused.body.request_id);
  await page.getByText("fence-token-stale").waitFor();
  await search(written.body.operation);
  await page.getByText("It took effect").waitFor();
  await search("no such thing");
  await page.getByText("Nothing was found").waitFor();
});

test("each view has its address, and all that it shows is in it", async (t) => {
  const callers = await dev(t);
  await callers.lock("worker-a", "job:1");
  await callers.lock("worker-b", "crm:1");
  const page = await open(t, callers, "locks?prefix=job%3A&sort=oldest");
  await row(page, "worker-a").waitFor();
  assert.equal(await row(page, "worker-b").count(), 0);
  assert.equal(await page.getByLabel("Sort by").inputValue(), "oldest");
  await page.getByLabel("Name begins with").fill("crm:");
  await row(page, "worker-b").waitFor();
  assert.match(page.url(), /prefix=crm%3A/);
  await page.keyboard.press("Escape");
  await goTo(page, "status");
  await page.getByText("It is ready, for new locks too").waitFor();
});
