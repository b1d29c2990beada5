// What operators do to jobs: they end runs, and ask for some where an agent waits for orders. With a reason, and only who may.

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import {
  Callers,
  closeBrowser,
  dev,
  eventually,
  goTo,
  job,
  jobDone,
  newKey,
  open,
  redrawn,
  running,
  stateOf,
} from "./rig.mjs";

after(closeBrowser);

/** An agent whose command notes each run in a file. `runs` reads that. */
async function agent(t, callers, name, more = {}) {
  const home = await mkdtemp(join(tmpdir(), "fence-ui-"));
  t.after(() => rm(home, { recursive: true, force: true }));
  const file = join(home, "runs");
  await writeFile(file, "");
  const note = ["sh", "-c", 'echo "$FENCE_JOB $FENCE_SLOT resume=$FENCE_RESUME" >> "$1"', "-", file];
  const { child } = job(t, callers, ["agent", name, "--", ...note], { owner: "agent-1", ...more });
  const asked = () => callers.call("GET", `/resources/job-agent:${name}`);
  await eventually("the agent waits", async () => (await asked()).body.state === "leased");
  return { child, runs: async () => (await readFile(file, "utf8")).split("\n").filter(Boolean) };
}

const actions = (page) => page.getByRole("group", { name: "Actions" });
const askFor = (page) => actions(page).getByRole("button", { name: "Run now" });
const breaks = (page) => actions(page).getByRole("button", { name: "Break" });

test("a break wants a reason and the name of the job, and ends the run", async (t) => {
  const callers = await dev(t);
  const { child, ended } = await running(t, callers, "books", [], { owner: "cron-1" });
  const { running: run } = await stateOf(callers, "job:books");
  const page = await open(t, callers, "job?name=books");
  await breaks(page).click();
  const dialog = page.getByRole("dialog");
  const stem = `${run.slot}.${run.attempt}`;
  await dialog.getByText(`Run ${stem} of cron-1 on ${hostname()} will find its next write refused`).waitFor();
  const submit = dialog.getByRole("button", { name: "Break" });
  await dialog.getByLabel("now", { exact: true }).check();
  await dialog.getByLabel(/^To confirm/).fill("books");
  assert.equal(await submit.isDisabled(), true, "without a reason");
  await dialog.getByLabel(/^Reason/).fill("it hangs");
  await dialog.getByLabel(/^To confirm/).fill("job:books");
  assert.equal(await submit.isDisabled(), true, "with another name");
  await dialog.getByText("fence job break --now --reason 'it hangs' books").waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.equal(child.exitCode, null, "nothing is done by what was cancelled");
  assert.equal((await callers.call("GET", "/resources/job:books")).body.state, "leased");

  await breaks(page).click();
  await dialog.getByLabel("now", { exact: true }).check();
  await dialog.getByLabel(/^Reason/).fill("it hangs");
  await dialog.getByLabel(/^To confirm/).fill("books");
  await submit.click();
  await dialog.waitFor({ state: "detached" });
  assert.equal((await ended).code, 121);
  await page.locator(".words").getByText("lost").waitFor();
  await page.getByText("has ended without a word").waitFor();
  await breaks(page).waitFor({ state: "detached" });
  const audit = await callers.call("GET", "/audit?action=break");
  assert.equal(audit.body.items[0].reason, "it hangs");
});

test("an agent is asked for a run, runs it once, and it shows", async (t) => {
  const callers = await dev(t);
  await jobDone(t, callers, ["run", "books", "--every", "1d", "--", "true"]);
  const page = await open(t, callers, "job?name=books");
  await page.locator(".words").getByText("succeeded").waitFor();
  await redrawn(page);
  assert.equal(await askFor(page).count(), 0, "without an agent there is no button");

  const { child, runs } = await agent(t, callers, "books");
  await page.getByText("An agent waits for orders: agent-1").waitFor();
  await askFor(page).click();
  const dialog = page.getByRole("dialog");
  const submit = dialog.getByRole("button", { name: "Run now" });
  assert.equal(await submit.isDisabled(), true, "without a reason");
  await dialog.getByLabel(/^Reason/).fill("the file came late");
  await dialog.getByLabel(/^Slot/).fill("2026-02-31T00:00:00Z");
  assert.equal(await submit.isDisabled(), true, "with no slot of any calendar");
  await dialog.getByText("A slot is 20261122T020000Z").waitFor();
  await dialog.getByLabel(/^Slot/).fill("2026-02-28T00:00:00Z");
  await dialog.getByLabel("Go on where the run before").check();
  const command = "fence job start --slot 20260228T000000Z --resume --reason 'the file came late' books";
  await dialog.getByText(command).waitFor();
  await submit.click();
  await dialog.waitFor({ state: "detached" });
  const told = await page.getByText("Asked for, as request").innerText();
  const request = /request ([0-9a-f-]+)\./.exec(told)?.[1] ?? "";
  assert.match(request, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  const made = Number.parseInt(request.replaceAll("-", "").slice(0, 12), 16);
  assert.ok(Math.abs(made - Date.now()) < 600_000, request);
  await page.getByRole("link", { name: /^S: 20260228T000000Z\.1: succeeded/ }).click();
  await page.locator(".facts").getByText(request).waitFor();
  await page.locator(".facts").getByText("request", { exact: true }).waitFor();
  const body = await eventually("the inbox is empty", async () => {
    const { body } = await callers.call("GET", "/resources/job-inbox:books");
    return body.objects === 0 && body.state === "released" && body;
  });
  assert.deepEqual(await runs(), ["books 20260228T000000Z resume="]);
  assert.match(body.owner, /^agent-1/, "whoever took the request from the inbox had its lock last");

  await goTo(page, "job?name=books");
  await askFor(page).waitFor();
  child.kill("SIGTERM");
  await askFor(page).waitFor({ state: "detached" });
});

test("a request that waits is shown, exactly as the page made it", async (t) => {
  const callers = await dev(t);
  await agent(t, callers, "books");
  await running(t, callers, "books");
  const page = await open(t, callers, "job?name=books");
  await askFor(page).click();
  const dialog = page.getByRole("dialog");
  const reason = "<b>now</b>";
  await dialog.getByLabel(/^Reason/).fill(reason);
  await dialog.getByRole("button", { name: "Run now" }).click();
  const waiting = page.getByRole("table", { name: "Runs that were asked for" });
  await waiting.getByText(reason).waitFor();
  const inbox = "/resources/job-inbox:books/objects";
  const { body: list } = await callers.call("GET", `${inbox}?prefix=requests/`);
  assert.equal(list.items.length, 1);
  const [{ key, content_type }] = list.items;
  const { body: record } = await callers.call("GET", `${inbox}/${key}`);
  const { request, by, requested_at, ...rest } = record;
  assert.deepEqual(rest, { v: 1, job: "books", resume: false, reason });
  assert.equal(key, `requests/${request}.json`);
  assert.equal(content_type, "application/json");
  assert.match(by, /^page:[0-9a-f]{4}$/);
  assert.ok(Math.abs(Date.parse(requested_at) - Date.now()) < 600_000);
  await waiting.getByText(by).waitFor();
  assert.equal(await page.locator("main b").count(), 0);
  const { body } = await callers.call("GET", "/resources/job-inbox:books");
  assert.deepEqual([body.state, body.owner], ["released", by]);
});

test("an inbox that is full takes no more", async (t) => {
  const callers = await dev(t);
  await agent(t, callers, "books");
  await running(t, callers, "books");
  const lock = await callers.lock("somebody", "job-inbox:books");
  const request = { v: 1, job: "books", resume: false, reason: "x", by: "y", requested_at: "2026-11-22T02:00:00Z" };
  for (let count = 0; count < 100; count++) {
    const id = `01890000-0000-7000-8000-${String(count).padStart(12, "0")}`;
    const body = JSON.stringify({ ...request, request: id });
    assert.equal((await callers.put(lock, `requests/${id}.json`, body, "application/json")).status, 201);
  }
  await callers.call("DELETE", `/locks/${lock.id}`);
  const page = await open(t, callers, "job?name=books");
  await askFor(page).click();
  await page.getByLabel(/^Reason/).fill("one more");
  await page.getByRole("dialog").getByRole("button", { name: "Run now" }).click();
  await page.getByText("100 requests wait already.").waitFor();
  const { body } = await callers.call("GET", "/resources/job-inbox:books");
  assert.deepEqual([body.objects, body.state], [100, "released"]);
});

test("a request without an answer is sent again as it is, and run once", async (t) => {
  const callers = await dev(t);
  const { runs } = await agent(t, callers, "books");
  const page = await open(t, callers, "job?name=books");
  await askFor(page).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel(/^Reason/).fill("only once");
  // The gateway takes the request, and its answer is lost.
  const sent = [];
  await page.route("**/objects/requests/**", async (route) => {
    sent.push(route.request().url());
    if (sent.length > 1) return route.continue();
    await route.fetch();
    await route.abort();
  });
  const submit = dialog.getByRole("button", { name: "Run now" });
  await submit.click();
  await dialog.getByText("Whether it was done is not known.").waitFor();
  assert.equal(await dialog.getByLabel(/^Reason/).isEditable(), false);
  await page.getByRole("link", { name: /^S: .*: succeeded/ }).waitFor();
  await submit.click();
  await dialog.waitFor({ state: "detached" });
  assert.equal(sent[0], sent[1], "it is the same request");
  const inbox = () => callers.call("GET", "/resources/job-inbox:books");
  await eventually("the inbox is empty", async () => (await inbox()).body.objects === 0);
  assert.equal((await runs()).length, 1);
});

test("who may not, and who only reads, has no button", async (t) => {
  const home = await mkdtemp(join(tmpdir(), "fence-ui-"));
  t.after(() => rm(home, { recursive: true, force: true }));
  const allowed = {
    looker: ["observe", "list", "read"],
    breaker: ["observe", "list", "read", "break"],
    asker: ["observe", "list", "read", "lock", "write"],
    // There is always somebody who may change the rules.
    administrator: ["admin"],
  };
  const keys = {};
  let rules = "";
  for (const [name, allow] of Object.entries(allowed)) {
    keys[name] = await newKey();
    rules += `[[roles]]\nname = "${name}s"\nallow = ${JSON.stringify(allow)}\nresources = ["*"]\n`;
    rules += `[[principals]]\nname = "${name}"\nroles = ["${name}s"]\nkeys = [${keys[name].line}]\n`;
  }
  await writeFile(join(home, "access.toml"), rules);
  const ruled = await dev(t, "--rules", join(home, "access.toml"));
  const asker = new Callers(ruled.url, keys.asker.key);
  const { runs } = await agent(t, asker, "books");
  await running(t, asker, "books");
  const page = await open(t, ruled, "job?name=books");
  const as = async (name, wanted) => {
    await page.getByLabel("Key").fill(keys[name].key);
    await page.getByRole("button", { name: "Sign in" }).click();
    await page.locator(".words").getByText("running").waitFor();
    if (wanted) await actions(page).waitFor();
    else await redrawn(page);
    const shown = wanted ? await actions(page).getByRole("button").allInnerTexts() : await actions(page).count();
    assert.deepEqual(shown, wanted ?? 0, name);
  };
  const signOut = () => page.getByRole("button", { name: "Sign out" }).click();
  await as("looker", null);
  await signOut();
  await as("breaker", ["Break"]);
  await signOut();
  await as("asker", ["Run now"]);
  await askFor(page).click();
  await page.getByLabel(/^Reason/).fill("by name");
  await page.getByRole("dialog").getByRole("button", { name: "Run now" }).click();
  await page.getByRole("table", { name: "Runs that were asked for" }).getByText("page:asker:").waitFor();
  assert.deepEqual(await runs(), []);
});

test("a page that is for reading has no buttons for jobs either", async (t) => {
  const callers = await dev(t, "--ui", "readonly");
  await agent(t, callers, "books");
  await running(t, callers, "books");
  const { running: run } = await stateOf(callers, "job:books");
  const page = await open(t, callers, "job?name=books");
  await page.getByText("An agent waits for orders").waitFor();
  await redrawn(page);
  assert.equal(await actions(page).count(), 0);
  await goTo(page, `run?name=books&run=${run.slot}.${run.attempt}`);
  await page.locator(".facts").getByText("running").waitFor();
  await redrawn(page);
  assert.equal(await actions(page).count(), 0);
});
