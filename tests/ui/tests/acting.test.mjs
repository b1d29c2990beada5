// What operators do: with a reason, on the record, and only those who may.

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { Callers, closeBrowser, dev, eventually, newKey, open, redrawn, row, serve } from "./rig.mjs";

after(closeBrowser);

test("a break needs a reason, counts down, and is on the record", async (t) => {
  const callers = await dev(t);
  await callers.lock("worker-a", "invoices:1", "10m");
  const page = await open(t, callers, "resource?name=invoices:1");
  await page.getByRole("button", { name: "Break" }).click();
  const dialog = page.getByRole("dialog");
  const submit = dialog.getByRole("button", { name: "Break" });
  assert.equal(await submit.isDisabled(), true);
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await dialog.waitFor({ state: "detached" });
  const { body } = await callers.call("GET", "/resources/invoices:1");
  assert.equal(body.state, "leased");
  assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Break");

  await page.getByRole("button", { name: "Break" }).click();
  await dialog.getByLabel("in 30 s").check();
  await dialog.getByLabel(/^Reason/).fill("worker-a hangs");
  await submit.click();
  await page.getByText("breaking: due in").first().waitFor();
  const due = async () => Number(/due in (\d+)/.exec(await page.locator(".state.bad").first().innerText())?.[1]);
  const before = await due();
  assert.ok(before <= 30, `${before}`);
  await eventually("it counts down", async () => (await due()) < before);
  await page.getByText("worker-a hangs").first().waitFor();
  const audit = await callers.call("GET", "/audit?action=break");
  assert.equal(audit.body.items[0].reason, "worker-a hangs");
});

test("a break as it is preselected leaves the lock until it expires", async (t) => {
  const callers = await dev(t);
  const lock = await callers.lock("worker-a", "invoices:9", "10m");
  const page = await open(t, callers, "resource?name=invoices:9");
  await page.getByRole("button", { name: "Break" }).click();
  const dialog = page.getByRole("dialog");
  assert.equal(await dialog.getByLabel("when it expires anyway").isChecked(), true);
  await dialog.getByLabel(/^Reason/).fill("not again");
  await dialog.getByRole("button", { name: "Break" }).click();
  await dialog.waitFor({ state: "detached" });
  await page.getByText("breaking: due in 9 min").first().waitFor();
  assert.equal((await callers.put(lock, "x", "in time")).status, 201);
});

test("a break at once wants the name typed", async (t) => {
  const callers = await dev(t);
  const lock = await callers.lock("worker-a", "invoices:2", "10m");
  const page = await open(t, callers, "resource?name=invoices:2");
  await page.getByRole("button", { name: "Break" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel(/^Reason/).fill("now");
  await dialog.getByLabel("now", { exact: true }).check();
  const submit = dialog.getByRole("button", { name: "Break" });
  assert.equal(await submit.isDisabled(), true);
  await dialog.getByLabel(/^To confirm/).fill("invoices:2");
  await submit.click();
  await page.locator(".facts").getByText("broken").waitFor();
  assert.equal((await callers.put(lock, "x", "late")).body.code, "fence-token-broken");
  assert.equal(await page.getByRole("button", { name: "Break" }).count(), 0);
});

test("all of it goes with the keyboard alone", async (t) => {
  const callers = await dev(t);
  await callers.lock("worker-a", "invoices:3", "10m");
  const page = await open(t, callers);
  await row(page, "worker-a").waitFor();
  const reach = async (text) => {
    for (let step = 0; step < 60; step++) {
      const focused = await page.evaluate(() => {
        const of = document.activeElement;
        return of?.getAttribute("aria-label") ?? of?.closest("label")?.textContent ?? of?.textContent ?? "";
      });
      if (text.test(focused.trim())) return;
      await page.keyboard.press("Tab");
    }
    assert.fail(`the focus never came to ${text}`);
  };
  await reach(/^invoices:3$/);
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Break" }).waitFor();
  await reach(/^Break$/);
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await page.keyboard.press("Escape");
  // It is gone, and not only closed: until then it cannot be opened again.
  await page.locator("dialog").waitFor({ state: "detached" });
  assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Break");
  await page.keyboard.press("Enter");
  await reach(/^when it expires/);
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  await reach(/^Reason/);
  await page.keyboard.type("by keyboard");
  await page.keyboard.press("Enter");
  await page.getByText("breaking: due in").first().waitFor();
  await page.evaluate(() => document.activeElement instanceof HTMLElement && document.activeElement.blur());
  await page.keyboard.press("g");
  await page.keyboard.press("a");
  await page.getByRole("heading", { level: 1, name: "Audit" }).waitFor();
  await row(page, "by keyboard").waitFor();
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "search");
});

test("a frozen resource takes no writes until it is unfrozen", async (t) => {
  const callers = await dev(t);
  const lock = await callers.lock("worker-a", "invoices:4", "10m");
  const page = await open(t, callers, "resource?name=invoices:4");
  const act = async (name, reason) => {
    await page.getByRole("button", { name, exact: true }).click();
    await page
      .getByRole("dialog")
      .getByLabel(/^Reason/)
      .fill(reason);
    await page.getByRole("dialog").getByRole("button", { name, exact: true }).click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
  };
  await act("Freeze", "looking into it");
  await page.getByText("looking into it").first().waitFor();
  const refused = await callers.put(lock, "x", "1");
  assert.deepEqual([refused.status, refused.body.code], [423, "resource-frozen"]);
  await act("Unfreeze", "it was nothing");
  await page.getByRole("button", { name: "Freeze", exact: true }).waitFor();
  assert.equal((await callers.put(lock, "x", "1")).status, 201);
  await act("Protect", "keep it");
  await page.getByRole("button", { name: "Lift protection" }).waitFor();
});

test("who may not has no button, and is refused", async (t) => {
  const home = await mkdtemp(join(tmpdir(), "fence-ui-"));
  t.after(() => rm(home, { recursive: true, force: true }));
  const keys = { looker: await newKey(), operator: await newKey(), nobody: await newKey() };
  const principal = (name, role) =>
    `[[principals]]\nname = "${name}"\nroles = ["${role}"]\nkeys = [${keys[name].line}]\n`;
  const role = (name, allow) =>
    `[[roles]]\nname = "${name}"\nallow = [${allow.map((of) => `"${of}"`).join(", ")}]\nresources = ["*"]\n`;
  await writeFile(
    join(home, "access.toml"),
    role("looks", ["observe", "list", "read"]) +
      role("operates", ["observe", "list", "read", "break", "freeze", "protect", "resolve", "admin", "lock", "write"]) +
      role("nothing", ["lock"]) +
      principal("looker", "looks") +
      principal("operator", "operates") +
      principal("nobody", "nothing"),
  );
  const open_ = await dev(t, "--rules", join(home, "access.toml"));
  const as = (name) => new Callers(open_.url, keys[name].key);
  await as("operator").lock("worker-a", "invoices:5", "10m");

  const page = await open(t, open_, "resource?name=invoices:5");
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
  await page.getByLabel("Key").fill("fgk_abcdefghij_nobody-has-this-key");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").waitFor();
  await page.getByLabel("Key").fill(keys.looker.key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.locator(".facts").getByText("worker-a").waitFor();
  await redrawn(page);
  for (const name of ["Break", "Freeze", "Protect"])
    assert.equal(await page.getByRole("button", { name }).count(), 0, name);
  const refused = await as("looker").post("/resources/invoices:5/break", { reason: "no" });
  assert.deepEqual([refused.status, refused.body.code], [403, "permission-denied"]);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Key").fill(keys.operator.key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("button", { name: "Break" }).waitFor();
  await page.getByRole("link", { name: "Access" }).click();
  await page.getByText("You are").getByText("operator").waitFor();
  await page.getByLabel("Rules of access").getByText("[[roles]]").waitFor();
  await page.getByLabel("Principal").fill("looker");
  await page.getByLabel("Action").selectOption("break");
  await page.getByRole("textbox", { name: "Resource" }).fill("invoices:5");
  await page.getByRole("button", { name: "Ask" }).click();
  await page.getByText("No", { exact: true }).waitFor();
  assert.equal(await page.evaluate(() => localStorage.getItem("fencegate-key")), null);
});

test("an action without an answer is said to be unknown", async (t) => {
  const { callers, start, kill } = await serve(t);
  await callers.lock("worker-a", "invoices:7", "10m");
  const page = await open(t, callers, "resource?name=invoices:7");
  await page.getByRole("button", { name: "Freeze" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel(/^Reason/).fill("looking into it");
  await kill();
  await dialog.getByRole("button", { name: "Freeze" }).click();
  await dialog.getByText("whether it was done is not known").waitFor();
  await start();
  await dialog.getByRole("button", { name: "Freeze" }).click();
  await dialog.waitFor({ state: "detached" });
  await page.getByText("looking into it").first().waitFor();
});

test("an action whose answer something on the way has lost is said to be unknown", async (t) => {
  const callers = await dev(t);
  await callers.lock("worker-a", "invoices:8", "10m");
  const page = await open(t, callers, "resource?name=invoices:8");
  await page.route("**/freeze", async (route) => {
    await route.fetch();
    // By then the page knows it by looking, and has another button in the place of this one.
    await page.getByText("Frozen, because").waitFor();
    await route.fulfill({ status: 504, contentType: "text/html", body: "<h1>504 Gateway Time-out</h1>" });
  });
  await page.getByRole("button", { name: "Freeze" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel(/^Reason/).fill("looking into it");
  await dialog.getByRole("button", { name: "Freeze" }).click();
  await dialog.getByText("whether it was done is not known").waitFor();
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await page.getByText("looking into it").first().waitFor();
});

test("a page that is for reading has no buttons, whoever looks", async (t) => {
  const callers = await dev(t, "--ui", "readonly");
  await callers.lock("worker-a", "invoices:6", "10m");
  const direct = await fetch(`${callers.url}/ui/index.html`);
  assert.match(await direct.text(), /data-mode="readonly"/);
  const page = await open(t, callers, "resource?name=invoices:6");
  await page.locator(".facts").getByText("worker-a").waitFor();
  await redrawn(page);
  for (const name of ["Break", "Freeze", "Protect"])
    assert.equal(await page.getByRole("button", { name }).count(), 0, name);
});

test("where it is off there is no page", async (t) => {
  const callers = await dev(t, "--ui", "off");
  for (const path of ["/ui/", "/ui/app.js"])
    assert.equal((await callers.call("GET", path)).body.code, "route-not-found");
  const home = await callers.call("GET", "/", undefined, { accept: "text/html" });
  assert.equal(home.status, 404);
});
