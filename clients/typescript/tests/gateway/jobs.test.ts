// Runs of jobs against a real gateway: what is done once, what is recorded, and what bounces.

import assert from "node:assert/strict";
import { test } from "node:test";
import { begins, slotAt, slotText } from "../../src/core/slots.js";
import { heldOf } from "../../src/guard/guard.js";
import { Changed, LockLost, Misuse } from "../../src/index.js";
import { job, type JobDocument, type JobOptions, type Run, type RunRecord } from "../../src/jobs/index.js";
import { nodeFetch } from "../../src/node/http.js";
import type { Fencegate } from "../../src/node/main.js";
import { aborted, client, failure, gateway, sleep, until } from "./world.js";

const SLOT = "20261122T020000Z";
const NEXT = "20261122T030000Z";

let names = 0;

/** The name of a job that no other test has. */
function fresh(): string {
  names += 1;
  return `job-${process.pid}.${names}`;
}

/** What is kept of a job: all its objects. */
class Objects {
  readonly all: Readonly<Record<string, unknown>>;

  constructor(all: Record<string, unknown>) {
    this.all = all;
  }

  get keys(): string[] {
    return Object.keys(this.all);
  }

  get state(): JobDocument {
    return this.all["state.json"] as JobDocument;
  }

  run(slot: string, attempt = 1): RunRecord {
    return this.all[`runs/${slot}.${attempt}.json`] as RunRecord;
  }
}

async function kept(fg: Fencegate, name: string): Promise<Objects> {
  const resource = `job:${name}`;
  const all: Record<string, unknown> = {};
  for await (const { key } of fg.list(resource)) {
    const found = await fg.getIfPresent(resource, key);
    all[key] = key.endsWith(".json") ? found?.json() : Buffer.from(found?.bytes ?? []).toString("latin1");
  }
  return new Objects(all);
}

/** Stores records of earlier runs. */
async function store(fg: Fencegate, name: string, objects: Record<string, unknown>): Promise<void> {
  await fg.lock(`job:${name}`, { wait: "60s" }, async (lock) => {
    const commit = lock.commit();
    for (const [key, value] of Object.entries(objects)) commit.put(`job:${name}`, key, JSON.stringify(value));
    await commit.send();
  });
}

function fail(): never {
  throw new RangeError("it failed");
}

/** Runs until it is told to end. */
async function stopped(run: Run): Promise<never> {
  await aborted(run.signal);
  throw run.signal.reason as Error;
}

test("a run is recorded from its beginning to its end", async () => {
  const [fg, name] = [await client(), fresh()];
  const closeBooks = job(fg, name, { every: "1d", overdueAfter: "2h", maxRuntime: "3h" });
  let begun = new Objects({});
  const before = Date.now() / 1000;
  const end = await closeBooks.run(async (run) => {
    begun = await kept(fg, name);
    assert.deepEqual([run.job, run.attempt, run.isResumed, run.shard], [name, 1, false, undefined]);
    await run.lock.put("books.txt", "closed");
    return 7;
  });
  assert.deepEqual([end.status, end.value, end.run?.status], ["succeeded", 7, "succeeded"]);
  const slot = end.run?.slot ?? "";
  const day = (at: number): number => Math.floor(at / 86_400) * 86_400;
  assert.ok([day(before), day(Date.now() / 1000)].includes(begins(slot)));
  const started = begun.run(slot);
  assert.deepEqual(begun.state.running, started);
  assert.equal(started.status, "started");
  for (const member of ["finished_at", "fence", "duration_ms", "shard"]) assert.ok(!(member in started), member);
  const objects = await kept(fg, name);
  assert.deepEqual(objects.keys, ["books.txt", `runs/${slot}.1.json`, `slots/${slot}.json`, "state.json"]);
  const record = objects.run(slot);
  assert.deepEqual(record, end.run);
  assert.deepEqual([record.v, record.job, record.attempt, record.trigger], [1, name, 1, "schedule"]);
  assert.equal(record.owner, fg.owner);
  assert.ok(record.program !== undefined && !record.program.includes("/") && record.pid === process.pid && record.host);
  assert.equal(record.acquired_at, (await fg.resource(`job:${name}`)).acquired_at);
  assert.ok(BigInt(record.fence ?? 0) > 0n && (record.duration_ms ?? -1) >= 0);
  const done = { v: 1, run: record.run, object: `runs/${slot}.1.json`, status: "succeeded" };
  assert.deepEqual(objects.all[`slots/${slot}.json`], done);
  const { state } = objects;
  assert.deepEqual(state.expect, { every_ms: 86_400_000, overdue_after_ms: 7_200_000, max_runtime_ms: 10_800_000 });
  assert.deepEqual([state.last, state.recent], [state.last_success, [state.last]]);
  assert.deepEqual([state.last_slot, state.failures_in_row, state.last?.run], [slot, 0, record.run]);
  assert.ok(!("running" in state));
  const again = await closeBooks.run(fail);
  assert.deepEqual(again, { status: "done before", run: record, value: undefined, parts: [] });
  assert.deepEqual(await kept(fg, name), objects);
});

test("of many callers at once one runs the slot", async () => {
  const name = fresh();
  const ran: string[] = [];
  const call = async () => job(await client(), name, { slot: SLOT, overlap: "wait" }).run((run) => ran.push(run.id));
  const ends = await Promise.all(Array.from({ length: 6 }, call));
  const statuses = ends.map(({ status }) => status).sort();
  assert.deepEqual(statuses, [...Array<string>(5).fill("done before"), "succeeded"]);
  assert.equal(ran.length, 1);
  assert.ok(ends.every(({ run }) => run?.run === ran[0]));
});

test("whoever does not wait is told that somebody else has it", async () => {
  const [fg, other, name] = [await client(), await client(), fresh()];
  await fg.lock(`job:${name}`, async () => {
    const end = await job(other, name).run(fail);
    assert.deepEqual(end, { status: "held", run: undefined, value: undefined, parts: [] });
    assert.equal((await job(other, name, { overlap: "wait", wait: "100ms" }).run(fail)).status, "held");
  });
  assert.deepEqual((await kept(fg, name)).all, {});
});

test("a body that fails is recorded, and the next run is the second", async () => {
  const [fg, name] = [await client(), fresh()];
  const closeBooks = job(fg, name, { slot: SLOT });
  const long = new RangeError("😀".repeat(1_000));
  for (const number of [1, 2]) {
    assert.equal(await failure(closeBooks.run(() => Promise.reject(long))), long);
    assert.equal((await kept(fg, name)).state.failures_in_row, number);
  }
  const objects = await kept(fg, name);
  assert.ok(!objects.keys.includes(`slots/${SLOT}.json`));
  const record = objects.run(SLOT, 2);
  assert.deepEqual([record.status, record.attempt], ["failed", 2]);
  assert.equal(record.reason, `RangeError: ${"😀".repeat(488)}`);
  assert.equal(objects.state.last?.reason, record.reason);
  const end = await closeBooks.run((run) => run.attempt);
  assert.deepEqual([end.status, end.value], ["succeeded", 3]);
  const { state } = await kept(fg, name);
  assert.equal(state.failures_in_row, 0);
  assert.deepEqual(
    state.recent?.map(({ status }) => status),
    ["succeeded", "failed", "failed"],
  );
});

test("retries are runs of their own", async () => {
  const [fg, name] = [await client(), fresh()];
  const tokens = new Set<string>();
  const secondTime = (run: Run): number => {
    tokens.add(run.lock.token);
    return run.attempt === 1 ? fail() : run.attempt;
  };
  for (const options of [{ slot: SLOT }, {}]) {
    const end = await job(fg, name, { retries: 1, backoff: 10, ...options }).run(secondTime);
    assert.deepEqual([end.status, end.value, end.run?.trigger], ["succeeded", 2, "retry"]);
  }
  assert.equal(tokens.size, 4);
  const beganMs = performance.now();
  assert.ok((await failure(job(fg, name, { slot: NEXT, retries: 2, backoff: 100 }).run(fail))) instanceof RangeError);
  assert.ok(performance.now() - beganMs >= 299);
  const { state } = await kept(fg, name);
  assert.deepEqual(
    state.recent?.slice(0, 3).map(({ attempt }) => attempt),
    [3, 2, 1],
  );
});

test("a run whose lock ran out is abandoned by the next", async () => {
  const [fg, other, name] = [await client(), await client(), fresh()];
  let crashed = (): void => {};
  const hanging = failure(
    job(fg, name, { slot: SLOT, ttl: "9s", maxRuntime: "1h" }).run(async (run) => {
      // As if its process had ended: nobody renews the lock, and nobody gives it back.
      heldOf(run.lock).lease.stopRenewing();
      await new Promise<void>((resolve) => (crashed = resolve));
    }),
  );
  await until(async () => (await job(other, name).state())?.isRunning === true);
  const running = await job(other, name).state();
  assert.ok(running !== undefined && !running.isLost && !running.isStuck);
  const end = await job(other, name, { slot: SLOT, overlap: "wait" }).run((run) => run.attempt);
  crashed();
  assert.ok((await hanging) instanceof LockLost);
  assert.deepEqual([end.status, end.value], ["succeeded", 2]);
  const objects = await kept(other, name);
  const left = objects.run(SLOT);
  assert.equal(left.status, "abandoned");
  for (const member of ["finished_at", "reason", "fence"]) assert.ok(!(member in left), member);
  assert.deepEqual(
    objects.state.recent?.map(({ status }) => status),
    ["succeeded", "abandoned"],
  );
});

test("a run without an end is lost until the next one, and nothing of a run that was fenced off is stored", async () => {
  const [fg, name] = [await client(), fresh()];
  assert.equal(await job(fg, name).state(), undefined);
  let before = new Objects({});
  const lost = await failure(
    job(fg, name, { slot: SLOT }).run(async (run) => {
      await run.checkpoint.save({ page: 1 });
      before = await kept(fg, name);
      await (await (await gateway()).takeOver(`job:${name}`)).release();
      assert.ok((await failure(run.checkpoint.save({ page: 2 }))) instanceof LockLost);
      assert.ok(run.signal.aborted && run.signal.reason instanceof LockLost);
    }),
  );
  assert.ok(lost instanceof LockLost);
  assert.deepEqual(await kept(fg, name), before);
  assert.equal(before.run(SLOT).status, "started");
  assert.equal(before.all[`checkpoints/${SLOT}`], '{"page":1}');
  const state = await job(fg, name).state();
  assert.ok(state !== undefined && state.isLost && !state.isRunning && !state.isOverdue);
  const error = await failure(
    job(fg, name, { slot: NEXT }).run(async () => {
      await (await (await gateway()).takeOver(`job:${name}`)).release();
      // It does not know, and its end bounces.
      fail();
    }),
  );
  assert.ok(error instanceof LockLost);
  const objects = await kept(fg, name);
  assert.deepEqual([objects.run(SLOT).status, objects.run(NEXT).status], ["abandoned", "started"]);
  assert.ok(!objects.keys.includes(`slots/${NEXT}.json`) && objects.state.failures_in_row === 1);
});

test("a run goes on with the checkpoint of the one before, and without resume it is removed", async () => {
  const fg = await client();
  for (const value of [{ page: 7 }, new Uint8Array([0, 255]), "text", null]) {
    for (const resume of [true, false]) {
      const name = fresh();
      const error = await failure(
        job(fg, name, { slot: SLOT, resume }).run(async (run) => {
          assert.ok(!run.isResumed && (await run.checkpoint.load()) === undefined);
          await run.checkpoint.save(value);
          fail();
        }),
      );
      assert.ok(error instanceof RangeError);
      const end = await job(fg, name, { slot: SLOT, resume }).run(
        async (run) => [run.isResumed, await run.checkpoint.load()] as const,
      );
      assert.deepEqual(end.value, resume ? [true, value] : [false, undefined]);
      assert.equal(end.run?.resumed_from, resume ? `${SLOT}.1` : undefined);
      assert.ok(!(await kept(fg, name)).keys.includes(`checkpoints/${SLOT}`));
    }
  }
});

test("what is claimed is run at most once", async () => {
  const [fg, name] = [await client(), fresh()];
  const closeBooks = job(fg, name, { slot: SLOT, once: "claimed" });
  assert.ok((await failure(closeBooks.run(fail))) instanceof RangeError);
  const end = await closeBooks.run(() => assert.fail("it was run again"));
  assert.deepEqual([end.status, end.run?.status], ["done before", "failed"]);
  assert.equal(((await kept(fg, name)).all[`slots/${SLOT}.json`] as RunRecord).status, "started");
  assert.equal((await job(fg, name, { slot: NEXT, once: "claimed" }).run(() => 1)).status, "succeeded");
});

test("a run takes the place of another, and says why", async () => {
  const [fg, other, name] = [await client(), await client(), fresh()];
  let begun = false;
  const hanging = failure(
    job(fg, name, { slot: SLOT }).run(async (run) => {
      begun = true;
      await stopped(run);
    }),
  );
  await until(() => begun);
  const replacing = job(other, name, { slot: SLOT, overlap: "replace", reason: "it hangs" });
  const end = await replacing.run((run) => run.attempt);
  assert.deepEqual([end.status, end.value], ["succeeded", 2]);
  const left = (await kept(other, name)).run(SLOT);
  assert.deepEqual([left.status, left.reason], ["cancelled", "replaced: it hangs"]);
  await fg.close("1s");
  assert.ok((await hanging) instanceof LockLost);
});

test("runs beyond those that are kept go, and their slots are refused", async () => {
  const [fg, name] = [await client(), fresh()];
  const hours = Array.from({ length: 5 }, (_, hour) => `20261122T0${hour}0000Z`);
  const run = (hour: number, options: JobOptions = {}) =>
    job(fg, name, { slot: hours[hour], keep: 2, ...options }).run(() => {});
  await failure(job(fg, name, { slot: hours[0], keep: 2 }).run(fail));
  await store(fg, name, { [`runs/${hours[0]}.1.log`]: "its output", [`checkpoints/${hours[0]}`]: 1 });
  await run(0, { resume: true });
  await run(1);
  let objects = await kept(fg, name);
  // Of the first slot, a run is left: the slot is done as before.
  for (const key of [`runs/${hours[0]}.2.json`, `slots/${hours[0]}.json`]) assert.ok(objects.keys.includes(key), key);
  for (const key of [`runs/${hours[0]}.1.json`, `runs/${hours[0]}.1.log`]) assert.ok(!objects.keys.includes(key), key);
  assert.ok(!("forgotten_through" in objects.state));
  await run(3);
  await run(4);
  objects = await kept(fg, name);
  const left = [hours[3], hours[4]].flatMap((hour) => [`runs/${hour}.1.json`, `slots/${hour}.json`]);
  assert.deepEqual(objects.keys, [...left, "state.json"].sort());
  assert.equal(objects.state.forgotten_through, hours[1]);
  for (const hour of [0, 1]) {
    const error = await failure(run(hour));
    assert.ok(error instanceof Misuse && error.message.includes("nobody knows"));
  }
  assert.deepEqual(await kept(fg, name), objects);
  // One that lies behind was never run.
  assert.equal((await run(2)).status, "succeeded");
  assert.ok((await kept(fg, name)).keys.includes(`runs/${hours[2]}.1.json`));
});

test("the newest slot and those younger than a run are not pushed out", async () => {
  const [fg, name] = [await client(), fresh()];
  const run = (hour: string, keep: number) => job(fg, name, { slot: `20261122T${hour}0000Z`, keep }).run(() => {});
  for (const hour of ["09", "10", "11"]) await run(hour, 10);
  // Backwards, over more runs than are kept.
  for (const hour of ["08", "07"]) assert.equal((await run(hour, 2)).status, "succeeded");
  assert.ok(!("forgotten_through" in (await kept(fg, name)).state));
  // By hand, and later.
  for (const _ of [1, 2]) await job(fg, name, { keep: 1 }).run(() => {});
  assert.equal((await run("11", 1)).status, "done before");
  assert.equal((await kept(fg, name)).state.forgotten_through, "20261122T100000Z");
});

test("a slot that is forgotten stops no later one", async () => {
  const [fg, name] = [await client(), fresh()];
  const ago = slotText(Math.floor(Date.now() / 1000) - 2 * 86_400);
  await store(fg, name, { "state.json": { v: 1, job: name, last_slot: ago, forgotten_through: ago } });
  const ran: string[] = [];
  const end = await job(fg, name, { every: "1d", catchUp: "all" }).run((run) => ran.push(run.slot));
  assert.equal(end.status, "succeeded");
  assert.ok(ran.length > 0 && ran[0]! > ago);
});

test("a run that is too late ends nobody's run", async () => {
  const [fg, other, name] = [await client(), await client(), fresh()];
  await fg.lock(`job:${name}`, async () => {
    const late: JobOptions = { slot: SLOT, catchUp: "none", overdueAfter: "1h" };
    const end = await job(other, name, { ...late, overlap: "replace", reason: "x", wait: "1s" }).run(fail);
    assert.equal(end.status, "held");
    assert.equal((await other.resource(`job:${name}`)).state, "leased");
  });
});

test("a retry is never too late", async () => {
  const [fg, name] = [await client(), fresh()];
  const now = Date.now();
  const slot = new Date(now).toISOString().replace(/\.\d+/, "");
  const options: JobOptions = { slot, catchUp: "none", overdueAfter: "10s", retries: 1, backoff: 10 };
  const failWhenItIsLate = async (): Promise<never> => (await sleep(Math.max(0, now + 11_000 - Date.now())), fail());
  assert.ok((await failure(job(fg, name, options).run(failWhenItIsLate))) instanceof RangeError);
  const { recent } = (await kept(fg, name)).state;
  assert.deepEqual(
    recent?.map(({ status }) => status),
    ["failed", "failed"],
  );
});

test("what a body failed with is told if somebody else goes on", async () => {
  const [fg, other, name] = [await client(), await client(), fresh()];
  let begun = false;
  const body = (): never => {
    begun = true;
    return fail();
  };
  const first = failure(job(fg, name, { slot: SLOT, retries: 1, backoff: "3s" }).run(body));
  await until(() => begun);
  await other.lock(`job:${name}`, { wait: "60s" }, async () => assert.ok((await first) instanceof RangeError));
});

test("a slot that is called for by hand leaves what is expected", async () => {
  const [fg, name] = [await client(), fresh()];
  await job(fg, name, { every: "1d", overdueAfter: "2h" }).run(() => {});
  await job(fg, name, { slot: SLOT, overdueAfter: "5m", maxRuntime: "1h" }).run(() => {});
  const expected = { every_ms: 86_400_000, overdue_after_ms: 7_200_000, max_runtime_ms: 3_600_000 };
  assert.deepEqual((await kept(fg, name)).state.expect, expected);
});

test("a skipped run stores what it found, even if little is kept", async () => {
  const [fg, name] = [await client(), fresh()];
  const lost = await failure(
    job(fg, name, { slot: SLOT, keep: 1 }).run(async () => {
      await (await (await gateway()).takeOver(`job:${name}`)).release();
      fail();
    }),
  );
  assert.ok(lost instanceof LockLost);
  const late = job(fg, name, { slot: NEXT, keep: 1, catchUp: "none", overdueAfter: "1h" });
  assert.equal((await late.run(fail)).status, "skipped");
  const objects = await kept(fg, name);
  assert.equal(objects.run(SLOT).status, "abandoned");
  assert.ok(objects.keys.includes(`slots/${NEXT}.json`));
});

test("a run removes at most so many objects", async () => {
  const [fg, name] = [await client(), fresh()];
  const stems = Array.from({ length: 330 }, (_, number) => slotText(60 * number));
  for (const some of [stems.slice(0, 165), stems.slice(165)]) {
    const entries = some.flatMap((stem) => [
      [`runs/${stem}.1.json`, { status: "succeeded" }],
      [`slots/${stem}.json`, {}],
    ]);
    await store(fg, name, Object.fromEntries(entries) as Record<string, unknown>);
  }
  const runs = async (): Promise<number> =>
    (await fg.list(`job:${name}`, { prefix: "runs/" }).all()).filter(({ key }) => key.endsWith(".json")).length;
  await job(fg, name, { slot: SLOT, keep: 10 }).run(() => {});
  // Each goes with three of 900 operations: itself, its slot and its checkpoint.
  const state = (await job(fg, name).state())?.document;
  assert.equal(state?.forgotten_through, stems[299]);
  assert.equal(await runs(), 31);
  await job(fg, name, { slot: NEXT, keep: 10 }).run(() => {});
  assert.equal(await runs(), 10);
});

test("what was missed is run oldest first, at most a hundred slots in one call", async () => {
  const fg = await client();
  const now = await job(fg, fresh(), { every: "1h" }).run(() => {});
  const last = slotText(begins(now.run?.slot ?? "") - 3 * 3600);
  const name = fresh();
  await failure(job(fg, name, { slot: last }).run(fail));
  const ran: string[] = [];
  const all = job(fg, name, { every: "1h", catchUp: "all" });
  const end = await all.run((run) => ran.push(run.slot));
  const expected = [0, 1, 2, 3].map((hour) => slotText(begins(last) + hour * 3600));
  // Unless an hour began meanwhile.
  assert.deepEqual(ran.slice(0, 4), expected);
  assert.equal(end.run?.slot, ran.at(-1));
  assert.deepEqual(
    end.parts.map(({ run }) => run?.trigger),
    ran.map((_, at) => (at === ran.length - 1 ? "schedule" : "catch_up")),
  );
  const again = await all.run((run) => ran.push(run.slot));
  assert.ok(["done before", "succeeded"].includes(again.status) && new Set(ran).size === ran.length);

  const long = fresh();
  const ago = slotText(Math.floor(Date.now() / 1000) - 30 * 86_400);
  await store(fg, long, { "state.json": { v: 1, job: long, last_slot: ago } });
  const hundred: string[] = [];
  const most = await job(fg, long, { every: "1h", catchUp: "all" }).run((run) => hundred.push(run.slot));
  assert.deepEqual([hundred.length, most.parts.length, hundred[0]], [100, 100, ago]);
  assert.deepEqual(hundred, [...hundred].sort());
  assert.equal((await kept(fg, long)).state.last_slot, hundred.at(-1));
});

const LONG = "366d";
const LONG_S = 366 * 86_400;

/** The slots of so many long intervals before this one. */
function longSlots(...before: number[]): string[] {
  const now = slotAt(LONG_S * 1000, Math.floor(Date.now() / 1000));
  return before.map((number) => slotText(now - number * LONG_S));
}

/** A client for which others do something before it asks for a lock first. Until then the gateway's clock is so far behind. */
async function meanwhile(what: () => Promise<unknown>, behindS = 0): Promise<Fencegate> {
  const send = nodeFetch();
  let isDone = false;
  return client({
    fetch: async (input, init) => {
      if (!isDone && String(input).endsWith("/locks")) {
        isDone = true;
        await what();
      }
      const answer = await send(input, init);
      const at = Date.parse(answer.headers.get("date") ?? "");
      if (isDone || Number.isNaN(at)) return answer;
      const headers = new Headers(answer.headers);
      headers.set("date", new Date(at - behindS * 1000).toUTCString());
      return new Response(await answer.arrayBuffer(), { status: answer.status, headers });
    },
  });
}

test("a slot that was begun while the lock was waited for comes first", async () => {
  const fg = await client();
  const slots = longSlots(2, 1, 0);
  for (const ending of ["failed", "abandoned", "failed, and another since"]) {
    const name = fresh();
    const other = await meanwhile(async () => {
      const begun = job(fg, name, { slot: slots[0] }).run(async () => {
        if (ending === "abandoned") await (await (await gateway()).takeOver(`job:${name}`)).release();
        fail();
      });
      assert.ok((await failure(begun)) instanceof (ending === "abandoned" ? LockLost : RangeError));
      if (ending === "failed, and another since") await job(fg, name).run(() => {});
    });
    const all = job(other, name, { every: LONG, catchUp: "all" });
    const { parts } = await all.run((run) => [run.slot, run.attempt]);
    assert.deepEqual(
      parts.map(({ value }) => value),
      [
        [slots[0], 2],
        [slots[1], 1],
        [slots[2], 1],
      ],
    );
    assert.deepEqual(
      parts.map(({ run }) => run?.trigger),
      ["catch_up", "catch_up", "schedule"],
    );
  }
});

test("what comes first and fails is not jumped over", async () => {
  const [fg, name, slots] = [await client(), fresh(), longSlots(1, 0)];
  const other = await meanwhile(() => failure(job(fg, name, { slot: slots[0] }).run(fail)));
  const ran: string[] = [];
  const all = job(other, name, { every: LONG, catchUp: "all", retries: 1, backoff: 10 });
  const error = await failure(
    all.run((run) => {
      ran.push(run.slot);
      fail();
    }),
  );
  assert.ok(error instanceof RangeError);
  assert.deepEqual(ran, [slots[0], slots[0]]);
  assert.equal((await kept(fg, name)).state.last_slot, slots[0]);
});

test("a slot that was claimed meanwhile is done", async () => {
  const [fg, name, slots] = [await client(), fresh(), longSlots(1, 0)];
  const other = await meanwhile(() => failure(job(fg, name, { slot: slots[0], once: "claimed" }).run(fail)));
  const { parts } = await job(other, name, { every: LONG, catchUp: "all", once: "claimed" }).run((run) => run.slot);
  assert.deepEqual(
    parts.map(({ value }) => value),
    slots.slice(1),
  );
});

test("a slot before one that was begun meanwhile is not begun", async () => {
  const [fg, name] = [await client(), fresh()];
  const other = await meanwhile(() => job(fg, name, { every: LONG }).run(() => {}), LONG_S);
  const end = await job(other, name, { every: LONG, catchUp: "all" }).run(() => assert.fail("it was run"));
  assert.deepEqual([end.status, end.run?.slot], ["done before", ...longSlots(0)]);
});

test("the slot of now is run although a later one was named", async () => {
  const [fg, name] = [await client(), fresh()];
  const [later, now] = longSlots(-1, 0);
  await job(fg, name, { slot: later }).run(() => {});
  const all = job(fg, name, { every: LONG, catchUp: "all" });
  assert.equal((await all.run((run) => run.slot)).value, now);
  assert.equal((await all.run(() => assert.fail("again"))).status, "done before");
});

test("a slot for which it is too late is skipped for good", async () => {
  const [fg, name] = [await client(), fresh()];
  await failure(job(fg, name).run(fail));
  const unless: JobOptions = { catchUp: "none", overdueAfter: "30m" };
  const end = await job(fg, name, { slot: SLOT, ...unless }).run(() => assert.fail("it was run"));
  assert.deepEqual([end.status, end.run?.status], ["skipped", "skipped"]);
  const objects = await kept(fg, name);
  assert.equal((objects.all[`slots/${SLOT}.json`] as RunRecord).status, "skipped");
  assert.ok(objects.run(SLOT).reason);
  const { state } = objects;
  assert.deepEqual([state.last_slot, state.failures_in_row, state.last?.status], [SLOT, 1, "skipped"]);
  assert.ok(!("running" in state) && !("last_success" in state));
  assert.equal((await job(fg, name, { slot: SLOT }).run(fail)).status, "done before");
  const inTime = new Date().toISOString().replace(/\.\d+/, "");
  assert.equal((await job(fg, name, { slot: inTime, ...unless }).run(() => 1)).status, "succeeded");
});

test("two hosts share the shards, and each is done once", async () => {
  for (const concurrency of [1, 3]) {
    const name = fresh();
    const done: number[] = [];
    const host = async () =>
      job(await client(), name, { slot: SLOT, shards: 5, concurrency }).run(async (run) => {
        assert.equal(run.shards, 5);
        await sleep(50);
        done.push(run.shard ?? -1);
      });
    const ends = await Promise.all([host(), host()]);
    assert.deepEqual(done.sort(), [0, 1, 2, 3, 4]);
    const ran = ends.flatMap(({ parts }) => parts.filter(({ status }) => status === "succeeded"));
    assert.deepEqual(ran.map(({ run }) => run?.shard).sort(), [0, 1, 2, 3, 4]);
    const fg = await client();
    const record = (await kept(fg, `${name}@3.5`)).run(SLOT);
    assert.deepEqual([record.shard, record.shards], [3, 5]);
    const again = () => assert.fail("again");
    assert.equal((await job(fg, name, { slot: SLOT, shards: 5 }).run(again)).status, "done before");
    const shard = { index: 3, count: 5 };
    assert.equal((await job(fg, name, { slot: SLOT, shard }).run(again)).status, "done before");
    assert.equal((await job(fg, name, { shard }).state())?.document.shard, 3);
  }
});

test("a shard that fails does not keep the others from being done", async () => {
  const [fg, name] = [await client(), fresh()];
  const done: unknown[] = [];
  const parts = job(fg, name, { slot: SLOT, shards: 3 });
  const error = await failure(parts.run((run) => (run.shard === 1 ? fail() : done.push(run.shard))));
  assert.ok(error instanceof RangeError);
  assert.deepEqual(done.sort(), [0, 2]);
  const end = await parts.run((run) => run.attempt);
  assert.deepEqual(
    end.parts.flatMap(({ value }) => value ?? []),
    [2],
  );
});

test("a call without a slot is one of its own", async () => {
  const [fg, name] = [await client(), fresh()];
  await job(fg, name, { every: "1d" }).run(() => {});
  const before = (await kept(fg, name)).state;
  for (const _ of [1, 2]) {
    const { status, run } = await job(fg, name).run(() => {});
    assert.deepEqual([status, run?.trigger], ["succeeded", "manual"]);
    assert.equal(run?.slot, `${run?.slot.slice(0, 16)}-${run?.run.slice(-8)}`);
    assert.ok(Math.abs(begins(run?.slot ?? "") - Date.now() / 1000) < 60);
  }
  const { state } = await kept(fg, name);
  assert.deepEqual([state.last_slot, state.expect], [before.last_slot, before.expect]);
  await failure(
    job(fg, name).run(async (run) => {
      await run.checkpoint.save(run.slot);
      fail();
    }),
  );
  const again = job(fg, name, { resume: true });
  const resumed = await again.run(async (run) => [run.slot, run.attempt, await run.checkpoint.load()] as const);
  const [slot] = resumed.value ?? [""];
  assert.deepEqual(resumed.value, [slot, 2, slot]);
  const anew = await again.run((run) => [run.slot, run.attempt] as const);
  assert.ok(anew.value?.[0] !== slot && anew.value?.[1] === 1);
});

test("options that make no sense are refused at once", async () => {
  const fg = await client();
  const wrong: readonly unknown[] = [
    { every: "1d", slot: SLOT },
    { every: 1500 },
    { slot: "yesterday" },
    { shards: 4 },
    { shards: 4, shard: { index: 1, count: 4 }, slot: SLOT },
    { shards: 4, slot: SLOT, overlap: "wait" },
    { shard: { index: 4, count: 4 } },
    { catchUp: "all", slot: SLOT },
    { catchUp: "some" },
    { once: "claimed", retries: 1, slot: SLOT },
    { overlap: "replace" },
    { reason: "no" },
    { wait: "1s" },
    { keep: 0 },
    { concurrency: 0 },
    { retries: -1 },
  ];
  for (const options of wrong) {
    assert.throws(() => job(fg, "nightly", options as JobOptions), Misuse, JSON.stringify(options));
  }
  assert.throws(() => job(fg, "a/b"), Misuse);
});

test("a state that is not this client's own is left alone", async () => {
  const [fg, newer, changed] = [await client(), fresh(), fresh()];
  await store(fg, newer, { "state.json": { v: 2 } });
  assert.ok((await failure(job(fg, newer).run(fail))) instanceof Misuse);
  assert.deepEqual((await kept(fg, newer)).all, { "state.json": { v: 2 } });
  const error = await failure(job(fg, changed, { slot: SLOT }).run((run) => run.lock.put("state.json", "{}")));
  assert.ok(error instanceof Changed);
  const objects = await kept(fg, changed);
  assert.deepEqual([objects.state, objects.keys.includes(`slots/${SLOT}.json`)], [{}, false]);
});

test("a run that takes too long, or is told to end, is told by its signal and recorded so", async () => {
  const [fg, slow, told] = [await client(), fresh(), fresh()];
  const late = await failure(job(fg, slow, { slot: SLOT, maxRuntime: 100 }).run(stopped));
  assert.equal((late as Error).name, "TimeoutError");
  const objects = await kept(fg, slow);
  assert.equal(objects.run(SLOT).status, "timed_out");
  assert.equal(objects.state.failures_in_row, 1);
  const controller = new AbortController();
  const ending = failure(job(fg, told, { slot: SLOT, retries: 5, signal: controller.signal }).run(stopped));
  await until(async () => (await job(fg, told).state())?.isRunning === true);
  controller.abort(new Error("enough"));
  assert.equal(((await ending) as Error).message, "enough");
  const { state } = await kept(fg, told);
  assert.deepEqual([state.last?.status, state.failures_in_row, state.recent?.length], ["cancelled", 0, 1]);
});

test("a body that ends politely when it is told to end has not succeeded", async () => {
  const [fg, slow, told] = [await client(), fresh(), fresh()];
  const polite = async (run: Run): Promise<string> => {
    await aborted(run.signal);
    return "half of it";
  };
  const late = await failure(job(fg, slow, { slot: SLOT, maxRuntime: 100 }).run(polite));
  assert.equal((late as Error).name, "TimeoutError");
  const controller = new AbortController();
  const ending = failure(job(fg, told, { slot: SLOT, signal: controller.signal }).run(polite));
  await until(async () => (await job(fg, told).state())?.isRunning === true);
  controller.abort(new Error("enough"));
  assert.equal(((await ending) as Error).message, "enough");
  for (const [name, status] of [
    [slow, "timed_out"],
    [told, "cancelled"],
  ] as const) {
    const objects = await kept(fg, name);
    assert.equal(objects.run(SLOT).status, status);
    assert.ok(!objects.keys.includes(`slots/${SLOT}.json`));
  }
});

test("what becomes of the lock once the end is recorded is no matter", async () => {
  const name = fresh();
  const send = nodeFetch();
  let lock: Run["lock"] | undefined;
  const fg = await client({
    fetch: async (input, init) => {
      const answer = await send(input, init);
      if (lock !== undefined && String(input).endsWith("/commit")) heldOf(lock).learn({ on: "lost", reason: "broken" });
      return answer;
    },
  });
  const end = await job(fg, name, { slot: SLOT }).run((run) => {
    lock = run.lock;
    return 7;
  });
  assert.deepEqual([end.status, end.value, lock?.state], ["succeeded", 7, "lost"]);
  assert.equal((await kept(await client(), name)).run(SLOT).status, "succeeded");
});

test("an answer that is lost is looked up until the outcome is known", async () => {
  const fg = await client();
  for (const looks of [0, 2]) {
    const send = nodeFetch();
    let [left, lost] = [looks, 0];
    const cut = await client({
      retries: false,
      fetch: async (input, init) => {
        const url = String(input);
        const isLook = url.includes("operations?") && left > 0;
        if (isLook) left -= 1;
        const answer = await send(input, init);
        if (!isLook && !url.endsWith("/commit")) return answer;
        await answer.arrayBuffer();
        lost += 1;
        throw new TypeError("the answer is lost");
      },
    });
    const name = fresh();
    const end = await job(cut, name, { slot: SLOT }).run(() => 7);
    assert.deepEqual([end.status, end.value, left], ["succeeded", 7, 0]);
    assert.ok(lost >= 2 + looks);
    const objects = await kept(fg, name);
    assert.equal(objects.run(SLOT).status, "succeeded");
    assert.ok(objects.keys.includes(`slots/${SLOT}.json`));
  }
});
