// What operators see of jobs: which run, which ran, which should have, and what each run did. The records are those that `fence job`
// writes.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, test } from "node:test";
import { closeBrowser, dev, fence, goTo, job, jobDone, lost, open, row, running, sleep, stateOf } from "./rig.mjs";

after(closeBrowser);

const MARKUP = `<img src=x onerror="globalThis.bitten=1"><script>globalThis.bitten=1</script>`;
/** What is said of a job, or of a run: the words, each with its letter. */
const words = async (found) => (await found.locator(".words").innerText()).replaceAll(/\s+/g, " ").trim();

/** The page says of a job what `fence job ls` says of it. */
async function asListed(callers, t, name, found) {
  const { said } = await job(t, callers, ["ls", name, "--output", "json"]).ended;
  const { status, is_overdue, is_stuck, parts, parts_done } = JSON.parse(said).items[0];
  const flags = [is_overdue && "overdue", is_stuck && "stuck", parts && `${parts_done} of ${parts}`];
  const listed = [status.replace("_", " "), ...flags].filter(Boolean).join(" ");
  assert.equal((await words(found)).replaceAll(/\b[A-Z] /g, ""), listed, name);
}

test("each job has its word, and a letter with it", async (t) => {
  const callers = await dev(t);
  await Promise.all([
    jobDone(t, callers, ["run", "good", "--every", "1d", "--", "true"]),
    jobDone(t, callers, ["run", "bad", "--every", "1d", "--", "sh", "-c", "exit 3"], 3),
    jobDone(t, callers, ["run", "late", "--every", "1s", "--overdue-after", "1s", "--", "true"]),
    running(t, callers, "busy", [], { owner: "cron-1:77:ab12" }),
    lost(t, callers, "gone"),
    (async () => {
      // What may be expected of a run is kept from the call that said it.
      await jobDone(t, callers, ["run", "slow", "--max-runtime", "1s", "--", "true"]);
      await running(t, callers, "slow");
    })(),
  ]);
  // What is no job's is not listed as one.
  await callers.lock("somebody", "job:not-a-job");
  const page = await open(t, callers, "jobs");
  const of = (name) => page.getByRole("row").filter({ has: page.getByRole("link", { name, exact: true }) });
  await of("late").getByText("overdue").waitFor();
  assert.equal(await words(of("good")), "S succeeded");
  assert.equal(await words(of("bad")), "F failed");
  assert.equal(await words(of("late")), "S succeeded O overdue");
  assert.equal(await words(of("busy")), "R running");
  assert.equal(await words(of("gone")), "L lost");
  await of("slow").getByText("stuck").waitFor();
  assert.equal(await words(of("slow")), "R running K stuck");
  for (const name of ["good", "bad", "late", "busy", "gone", "slow"]) await asListed(callers, t, name, of(name));
  await of("busy").getByText("cron-1:77:ab12").waitFor();
  const { last_slot } = await stateOf(callers, "job:good");
  await of("good").getByText(last_slot, { exact: true }).waitFor();
  await page.getByText("6 jobs · 4 overdue, stuck, lost or failed").waitFor();
  await page.getByLabel("Which").selectOption("running");
  await of("good").waitFor({ state: "detached" });
  assert.deepEqual([await of("busy").count(), await of("slow").count(), await of("gone").count()], [1, 1, 0]);

  // It follows: a run that was lost is abandoned as the next one begins.
  await jobDone(t, callers, ["run", "gone", "--", "true"]);
  await goTo(page, "jobs");
  await of("gone").getByText("succeeded").waitFor();
  await page.getByRole("link", { name: "gone", exact: true }).click();
  await page.getByRole("link", { name: /^A: .*: abandoned/ }).waitFor();
});

test("a clock of the browser that is wrong changes nothing", async (t) => {
  const callers = await dev(t);
  await jobDone(t, callers, ["run", "good", "--every", "1d", "--", "true"]);
  const first = () => {
    const now = Date.now;
    Date.now = () => now() + 30 * 86_400_000;
  };
  const page = await open(t, callers, "jobs", { first });
  assert.equal(await words(row(page, "good")), "S succeeded");
  const later = { ...(await stateOf(callers, "job:good")), expect: { every_ms: 1000, overdue_after_ms: 1000 } };
  const lock = await callers.lock("somebody", "job:good");
  await sleep(1_000);
  await callers.put(lock, "state.json", JSON.stringify(later), "application/json");
  await row(page, "good").getByText("overdue").waitFor();
});

test("the parts of a job are one row, and each has a page", async (t) => {
  const callers = await dev(t);
  const command = ["--", "sh", "-c", 'test "$FENCE_SHARD" != 2'];
  await jobDone(t, callers, ["run", "split", "--every", "1d", "--shards", "12", ...command], 1);
  const page = await open(t, callers, "jobs");
  const only = row(page, "split");
  await only.waitFor();
  assert.equal(await only.count(), 1);
  assert.equal(await words(only), "F failed 11 of 12");
  await asListed(callers, t, "split", only);
  await page.getByRole("link", { name: "split", exact: true }).click();
  const parts = page.getByRole("table", { name: "Parts of the job" });
  await parts.getByRole("link", { name: "split@11.12" }).waitFor();
  assert.equal(await words(parts.getByRole("row").filter({ hasText: "split@02.12" })), "F failed");
  await parts.getByRole("link", { name: "split@02.12" }).click();
  await page.getByRole("heading", { level: 1, name: "split@02.12" }).waitFor();
  await page.getByRole("table", { name: "The last runs, newest first" }).getByText("failed").first().waitFor();
});

test("a run that ends between two readings is not called lost", async (t) => {
  const callers = await dev(t);
  const { child, ended } = await running(t, callers, "busy");
  const before = JSON.stringify(await stateOf(callers, "job:busy"));
  child.kill("SIGTERM");
  await ended;
  const page = await open(t, callers, "locks");
  let read = 0;
  await page.route("**/objects/state.json", (route) =>
    read++ === 0 ? route.fulfill({ body: before, contentType: "application/json" }) : route.continue(),
  );
  await goTo(page, "jobs");
  await row(page, "busy").waitFor();
  assert.deepEqual([await words(row(page, "busy")), read], ["C cancelled", 2]);
});

test("of very many jobs it says that it shows some", async (t) => {
  const callers = await dev(t);
  await jobDone(t, callers, ["run", "aaa", "--", "true"]);
  await jobDone(t, callers, ["run", "zzz", "--", "true"]);
  for (let from = 0; from < 512; from += 32) {
    const resources = Array.from({ length: 32 }, (_, at) => `job:many-${from + at}`);
    assert.equal((await callers.post("/locks", { owner: "x", resources })).status, 201);
  }
  const page = await open(t, callers, "jobs");
  await page.getByText("Only the first 500 resources of jobs").waitFor();
  await row(page, "aaa").waitFor();
  assert.equal(await row(page, "zzz").count(), 0);
  await page.getByLabel("Name begins with").fill("zz");
  await row(page, "zzz").waitFor();
  assert.equal(await page.getByText("Only the first 500").count(), 0);
});

test("a run has its record and its output, and all of it is text", async (t) => {
  const callers = await dev(t);
  const print = (text) => ["sh", "-c", `printf %s "$1"; printf ' to the other' >&2; exit 4`, "-", text];
  await jobDone(t, callers, ["run", "books", "--every", "1d", "--", ...print(MARKUP)], 4, { owner: "<b>cron</b>" });
  const script = 'fence=$1; printf 42 | "$fence" job checkpoint save; exit 5';
  await jobDone(t, callers, ["run", "books", "--every", "1d", "--resume", "--", "sh", "-c", script, "-", fence], 5);
  await jobDone(t, callers, ["run", "books", "--every", "1d", "--resume", "--", "sh", "-c", "exit 6"], 6);
  const { recent } = await stateOf(callers, "job:books");
  const [third, second, first] = recent.map((run) => `${run.slot}.${run.attempt}`);

  const page = await open(t, callers, "job?name=books");
  const strip = page.getByRole("list", { name: "Runs, newest first" });
  await strip.getByRole("link", { name: `F: ${first}: failed` }).waitFor();
  assert.equal(await strip.getByRole("link").count(), 3);
  assert.match((await strip.getByRole("link").first().getAttribute("title")) ?? "", /failed, took/);
  await row(page, first).getByText("<b>cron</b>").waitFor();
  await row(page, first).getByText("4", { exact: true }).waitFor();
  await row(page, first).getByRole("link").click();
  await page.getByRole("heading", { level: 1, name: first }).waitFor();
  await page.getByLabel("Output of the run").getByText(MARKUP).waitFor();
  await page.getByLabel("Output of the run").getByText("to the other").waitFor();
  await page.locator(".facts").getByText("<b>cron</b>").waitFor();
  await page.locator(".facts").getByText("sh", { exact: true }).waitFor();
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Save as a file" }).click();
  assert.equal((await download).suggestedFilename(), `${first}.log`);

  await goTo(page, `run?name=books&run=${third}`);
  await page.getByText("It wrote nothing.").waitFor();
  await page.locator(".facts").getByText("kept, 2 B").waitFor();
  await page.locator(".facts").getByRole("link", { name: second }).click();
  await page.getByRole("heading", { level: 1, name: second }).waitFor();
  assert.equal(await page.evaluate(() => globalThis.bitten), undefined);
  assert.equal(await page.locator("main img, main script, main b").count(), 0);
});

test("of long output the last is shown", async (t) => {
  const callers = await dev(t);
  const long = ["sh", "-c", "echo the very first; yes | head -c 200000; echo; echo the very last"];
  await jobDone(t, callers, ["run", "long", "--log", "full", "--", ...long]);
  const [{ slot, attempt }] = (await stateOf(callers, "job:long")).recent;
  const page = await open(t, callers, `run?name=long&run=${slot}.${attempt}`);
  await page.getByText("The last 64 KiB of 195 KiB.").waitFor();
  const shown = await page.getByLabel("Output of the run").innerText();
  assert.ok(shown.includes("the very last") && !shown.includes("the very first"));
  const download = page.waitForEvent("download");
  await page.getByRole("button", { name: "Save as a file" }).click();
  const saved = await (await download).createReadStream();
  let bytes = 0;
  for await (const piece of saved) bytes += piece.length;
  assert.ok(bytes > 200_000, `${bytes}`);
});

test("a run that is under way says where to look for it", async (t) => {
  const callers = await dev(t);
  const { child } = await running(t, callers, "busy");
  const { running: run } = await stateOf(callers, "job:busy");
  const page = await open(t, callers, "job?name=busy");
  await page.getByText(`It is process ${child.pid} on ${run.host}.`).waitFor();
  await page.getByRole("link", { name: new RegExp(`^R: ${run.slot}`) }).click();
  await page.getByText("It is kept once the run has ended.").waitFor();
  await page.locator(".facts").getByText("running").waitFor();
});

test("records that are none do no harm", async (t) => {
  const callers = await dev(t);
  const bad = {
    array: "[]",
    nothing: "null",
    text: "<!doctype html>",
    newer: JSON.stringify({ v: 2, job: "newer" }),
    numbers: JSON.stringify({ v: 1, job: 7, running: 8, last: [], recent: {} }),
    markup: JSON.stringify({
      v: 1,
      job: MARKUP,
      expect: { every_ms: "x", max_runtime_ms: {} },
      last_slot: MARKUP,
      last: { run: MARKUP, slot: "20261122T020000Z", attempt: 1, status: MARKUP, reason: { a: 1 }, started_at: "soon" },
      recent: [
        { run: 1 },
        null,
        { run: "r", slot: "20261122T020000Z", attempt: 1, status: "__proto__", reason: MARKUP },
      ],
    }),
  };
  for (const [name, content] of Object.entries(bad)) {
    const lock = await callers.lock("somebody", `job:${name}`);
    await callers.put(lock, "state.json", content, "application/json");
  }
  const page = await open(t, callers, "jobs");
  await row(page, MARKUP).waitFor();
  assert.equal(await page.locator("tbody tr").count(), 1);
  await goTo(page, "job?name=markup");
  await row(page, MARKUP).getByText("__proto__").waitFor();
  await goTo(page, "job?name=array");
  await page.getByText("No run of it is recorded.").waitFor();
  for (const [view, told] of [
    ["job?name=a/b", "This is no name of a job."],
    ["run?name=markup&run=x", "This is no run of a job."],
    ["run?name=markup&run=20261122T020000Z.9", "There is no record of it"],
  ]) {
    await goTo(page, view);
    await page.getByText(told).waitFor();
  }
  assert.equal(await page.evaluate(() => globalThis.bitten), undefined);
  assert.equal(await page.locator("main img, main script").count(), 0);
});

/** What all clients read alike of records of jobs. */
const VECTORS = new URL("../../../clients/vectors/slots.json", import.meta.url);

test("names, slots, what is late and what takes too long are read as by all clients", async (t) => {
  const callers = await dev(t);
  const page = await open(t, callers, "jobs");
  const { cases } = JSON.parse(await readFile(VECTORS, "utf8"));
  const kinds = ["name", "overdue", "stuck", "text"];
  const wanted = cases.filter(({ kind }) => kinds.includes(kind));
  const wrong = await page.evaluate(async (cases) => {
    const { isOverdue, stuckAfterMs } = await import(String("./jobs/verdict.js"));
    const { jobOf, slotNamed } = await import(String("./jobs/record.js"));
    const units = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
    const ms = (text) => (text === null ? undefined : Number.parseFloat(text) * units[text.at(-1)]);
    const judge = {
      // A name is refused as that of a resource would be: a name with a part is also one.
      name: ({ name, shard, resource, refused }) => {
        const text = resource ?? `job:${name}${shard ? `@${shard.index}.${shard.count}` : ""}`;
        const found = jobOf(text);
        if (refused) return found === null || found.name !== name;
        return found?.name === name && found.part?.index === shard?.index && found.part?.count === shard?.count;
      },
      text: ({ given, slot = null }) => slotNamed(given) === slot,
      overdue: ({ every, overdue_after, last_success, now, overdue }) => {
        const lastSuccess = last_success && { slot: last_success };
        const state = { everyMs: ms(every), overdueAfterMs: ms(overdue_after), lastSuccess };
        return isOverdue({ state, now: Date.parse(now) }) === overdue;
      },
      stuck: ({ running_ms, max_runtime_ms, recent, stuck }) => {
        const runs = recent.map(({ status, duration_ms }) => ({ status, tookMs: duration_ms }));
        const most = stuckAfterMs({ mostMs: max_runtime_ms ?? undefined, recent: runs });
        return (most !== null && running_ms > most) === stuck;
      },
    };
    return cases.filter((one) => !judge[one.kind](one)).map(({ id }) => id);
  }, wanted);
  assert.deepEqual(wrong, []);
  assert.deepEqual([...new Set(wanted.map(({ kind }) => kind))].sort(), kinds);
});

test("all of it can be reached with the keyboard", async (t) => {
  const callers = await dev(t);
  await jobDone(t, callers, ["run", "books", "--every", "1d", "--", "echo", "hello"]);
  const page = await open(t, callers);
  await page.getByText("No lock is held.").waitFor();
  await page.keyboard.press("g");
  await page.keyboard.press("b");
  await page.getByRole("link", { name: "books", exact: true }).waitFor();
  const reach = async (text) => {
    for (let step = 0; step < 60; step++) {
      const focused = await page.evaluate(
        () => document.activeElement?.ariaLabel ?? document.activeElement?.textContent,
      );
      if (text.test(focused ?? "")) return page.keyboard.press("Enter");
      await page.keyboard.press("Tab");
    }
    assert.fail(`the focus never came to ${text}`);
  };
  await reach(/^books$/);
  await page.getByRole("heading", { level: 1, name: "Job books" }).waitFor();
  await page.getByRole("list", { name: "Runs, newest first" }).waitFor();
  await reach(/^S: .*: succeeded/);
  await page.getByLabel("Output of the run").getByText("hello").waitFor();
  assert.equal(await page.evaluate(() => document.activeElement?.id), "view");
});
