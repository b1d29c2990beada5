// Locks of a real gateway: taken, waited for, kept, lost and given back.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Busy, LockLost, Misuse, NotFound, WouldDeadlock, type ClientEvent, type Lock } from "../../src/index.js";
import { aborted, client, failure, fresh, gateway, sleep, until } from "./world.js";

test("a scope takes the lock, and gives it back", async () => {
  const [fg, name] = [await client({ owner: "worker-a" }), fresh()];
  const value = await fg.lock(name, async (lock) => {
    assert.match(lock.token, /^[1-9][0-9]*$/);
    assert.deepEqual([lock.state, lock.owner, lock.resources], ["held", "worker-a", [name]]);
    assert.equal((await fg.resource(name)).state, "leased");
    return 7;
  });
  assert.equal(value, 7);
  assert.equal((await fg.resource(name)).state, "released");
});

test("a held lock is told with its holder, and tried without an error", async () => {
  const [fg, name] = [await client({ owner: "worker-a" }), fresh()];
  const lock = await fg.acquire(name);
  const error = await failure((await client()).acquire(name));
  assert.ok(error instanceof Busy && error.kind === "LockHeld" && error.holder === "worker-a");
  assert.equal(await fg.tryLock(name), null);
  await lock.release();
  const again = await fg.tryLock(name);
  assert.ok(again !== null && BigInt(again.token) > BigInt(lock.token));
  await again.release();
});

test("a waiter is granted the lock when it is free, first come first served", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name);
  const order: string[] = [];
  const wait = async (who: string): Promise<void> => {
    const other = await (await client({ owner: who })).acquire(name, { wait: "forever" });
    order.push(who);
    await other.release();
  };
  const first = wait("first");
  await until(async () => (await fg.waiters(name).all()).length === 1);
  const second = wait("second");
  await until(async () => (await fg.waiters(name).all()).length === 2);
  await lock.release();
  await Promise.all([first, second]);
  assert.deepEqual(order, ["first", "second"]);
});

test("a wait that is over is told, and leaves no place in line", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name);
  const error = await failure(fg.acquire(name, { wait: "300ms" }));
  assert.ok(error instanceof Busy && error.kind === "WaitElapsed", String(error));
  assert.deepEqual(await fg.waiters(name).all(), []);
  await lock.release();
});

test("an acquire that is aborted leaves nothing", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name);
  const controller = new AbortController();
  const waiting = failure(fg.acquire(name, { wait: "forever", signal: controller.signal }));
  await until(async () => (await fg.waiters(name).all()).length === 1);
  controller.abort(new Error("enough"));
  assert.equal(((await waiting) as Error).message, "enough");
  assert.deepEqual(await fg.waiters(name).all(), []);
  await lock.release();
  assert.equal((await fg.resource(name)).state, "released");
});

test("a lock on several resources is had on all or none", async () => {
  const [fg, one, other] = [await client(), fresh("b"), fresh("a")];
  const both = await fg.acquire([one, other]);
  assert.deepEqual(both.resources, [other, one]);
  assert.equal(both.version(one), 0);
  assert.ok((await failure(fg.acquire(one))) instanceof Busy);
  assert.ok((await failure(both.put("k", "x"))) instanceof Misuse);
  assert.equal((await both.put("k", "x", { resource: one })).resource, one);
  await both.release();
});

test("a lock is kept by renewals", async () => {
  const events: ClientEvent[] = [];
  const fg = await client({ onEvent: (event) => events.push(event) });
  const lock = await fg.acquire(fresh(), { ttl: "9s" });
  // One comes with each third of the ttl.
  await until(() => lock.state !== "held" || events.filter((event) => event.type === "renewed").length >= 4);
  assert.equal(lock.state, "held");
  await lock.put("k", "still mine");
  await lock.release();
});

test("who loses the lock is told by its signal, and its late write bounces", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name);
  await lock.put("total.txt", "110");
  await (await gateway()).takeOver(name);
  const error = await failure(lock.put("total.txt", "999"));
  assert.ok(error instanceof LockLost && ["superseded", "broken"].includes(error.reason));
  assert.ok(lock.signal.aborted && lock.signal.reason instanceof LockLost);
  assert.throws(() => lock.check(), LockLost);
  assert.equal((await fg.get(name, "total.txt")).text(), "110");
});

test("a takeover while a write is under way lets it take effect before, or not at all", async () => {
  const [fg, name] = [await client(), fresh()];
  for (let round = 0; round < 5; round += 1) {
    const lock = await fg.acquire(name, { wait: "10s" });
    const writing = lock.put("k", `round ${round} `.repeat(100_000)).then(
      (written) => written.version,
      (error: unknown) => error,
    );
    const rival = await (await gateway()).takeOver(name);
    const seen = rival.version(name) ?? 0;
    const outcome = await writing;
    if (typeof outcome === "number") assert.ok(outcome <= seen, "a write took effect behind the takeover");
    else assert.ok(outcome instanceof LockLost, String(outcome));
    await rival.release();
  }
});

test("a scope whose lock is lost fails as LockLost, though its body ended well", async () => {
  const [fg, name] = [await client(), fresh()];
  const error = await failure(
    fg.lock(name, { ttl: "1s" }, async (lock) => {
      await (await gateway()).takeOver(name);
      await aborted(lock.signal);
      return "all done";
    }),
  );
  assert.ok(error instanceof LockLost);
});

test("a body that is ended by the signal is told as lost, and its own error wins otherwise", async () => {
  const [fg, name, other] = [await client(), fresh(), fresh()];
  const ended = fg.lock(name, { ttl: "1s" }, async (lock) => {
    await (await gateway()).takeOver(name);
    await fetch(`${(await gateway()).url}/resources/${name}?wait=20s&since=x`, { signal: lock.signal }).catch(() => {});
    await aborted(lock.signal);
    throw lock.signal.reason as Error;
  });
  assert.ok((await failure(ended)) instanceof LockLost);
  const own = new Error("mine");
  assert.equal(
    await failure(
      fg.lock(other, async () => {
        throw own;
      }),
    ),
    own,
  );
  assert.equal((await fg.resource(other)).state, "released");
});

test("who ignores the loss gets what the body gave", async () => {
  const [fg, name] = [await client(), fresh()];
  const value = await fg.lock(name, { onLost: "ignore", ttl: "1s" }, async (lock) => {
    await (await gateway()).takeOver(name);
    await until(() => lock.state === "lost");
    return "kept";
  });
  assert.equal(value, "kept");
});

test("a lock that is released is no loss, and takes no writes", async () => {
  const fg = await client();
  const lock = await fg.acquire(fresh());
  assert.equal(await lock.release(), true);
  assert.equal(await lock.release(), true);
  assert.deepEqual([lock.state, lock.signal.aborted], ["released", false]);
  const error = await failure(lock.put("k", "late"));
  assert.ok(error instanceof LockLost && error.reason === "released");
});

test("await using gives the lock back", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name);
  await lock[Symbol.asyncDispose]();
  assert.equal((await fg.resource(name)).state, "released");
});

test("a break with a delay warns, then the guard is lost in time", async () => {
  const events: ClientEvent[] = [];
  const [fg, name] = [await client({ onEvent: (event) => events.push(event) }), fresh()];
  const lock = await fg.acquire(name, { ttl: "30s" });
  // The next renewal, after 10 s, tells the holder.
  await fg.admin.break(name, "to be moved", { after: "20s" });
  await until(() => events.some((event) => event.type === "breaking"));
  assert.equal(lock.state, "held");
  assert.ok((lock.breaksInMs ?? Infinity) <= 20_000);
  await lock.put("last.txt", "in time");
  await until(() => lock.signal.aborted);
  assert.equal((lock.signal.reason as LockLost).reason, "broken");
});

test("an infinite lock is confirmed, and does not expire", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name, { ttl: "infinite" });
  assert.equal(lock.remainingMs, undefined);
  assert.equal((await fg.resource(name)).expires_in_ms, null);
  await lock.renew({ ttl: "30s" });
  assert.ok((lock.remainingMs ?? 0) > 25_000);
  await lock.release();
});

test("max_hold ends a lock, however often it is renewed", async () => {
  const fg = await client();
  const lock = await fg.acquire(fresh(), { ttl: "1s", maxHold: "1500ms" });
  await until(() => lock.signal.aborted);
  const { reason } = lock.signal.reason as LockLost;
  assert.ok(["hold_exceeded", "unconfirmed"].includes(reason), reason);
});

test("work that gives no sign of life is stopped", async () => {
  const fg = await client();
  const lock = await fg.acquire(fresh(), { stallAfter: "5s" });
  for (let beats = 0; beats < 4; beats += 1) {
    await sleep(1_500);
    lock.beat();
  }
  assert.equal(lock.state, "held");
  await until(() => lock.signal.aborted);
  assert.equal((lock.signal.reason as LockLost).reason, "stalled");
});

test("a lock is handed over as text, and its predecessor is over without a signal", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name);
  const text = (await lock.transfer("second-stage")).toText();
  assert.match(text, /^fence1:[A-Za-z0-9_-]+$/);
  assert.deepEqual([lock.state, lock.lostReason, lock.signal.aborted], ["lost", "transferred", false]);
  const successor = await (await client()).adopt(text);
  assert.ok(BigInt(successor.token) > BigInt(lock.token) && successor.owner === "second-stage");
  await successor.put("state.txt", "second stage");
  assert.ok((await failure(lock.put("state.txt", "first stage"))) instanceof LockLost);
  await successor.release();
  assert.ok((await failure(fg.adopt(text))) instanceof LockLost);
});

test("a handoff that is none is refused", async () => {
  const fg = await client();
  for (const text of ["", "fence1:", "fence1:!", "fence2:e30", `fence1:${btoa("{}")}`, `fence1:${btoa("null")}`]) {
    assert.ok((await failure(fg.adopt(text))) instanceof Misuse, text);
  }
});

test("a token that is lent writes without numbers", async () => {
  const [fg, name] = [await client(), fresh()];
  const lock = await fg.acquire(name, { numbers: false });
  const lent = fg.lent(name, { token: lock.token, id: lock.id });
  assert.equal((await lent.put("a", "1")).receipt.number, undefined);
  assert.equal((await lock.put("a", "2")).receipt.number, undefined);
  await lock.release();
  assert.ok((await failure(lent.put("a", "3"))) instanceof LockLost);
  assert.throws(() => fg.lent(name, { token: "01", id: lock.id }), Misuse);
});

test("a fence is for locks that are kept elsewhere, and its order rises", async () => {
  const [fg, name] = [await client(), fresh()];
  const fence = await fg.fence(name, { order: 7 });
  await fence.put("k", "seven");
  const stale = await failure(fg.fence(name, { order: "7" }));
  assert.ok(stale instanceof LockLost && stale.reason === "order_stale");
  const next = await fg.fence(name, { order: 2n ** 63n - 1n });
  assert.ok((await failure(fence.put("k", "late"))) instanceof LockLost);
  await next.put("k", "newest");
  for (const order of [0, -1, 1.5, 2 ** 60, 2n ** 63n, "x"]) {
    assert.ok((await failure(fg.fence(name, { order }))) instanceof Misuse, String(order));
  }
});

test("a scope that asks for what it holds is told at once, also by what it calls", async () => {
  const [fg, name] = [await client(), fresh()];
  await fg.lock(name, async () => {
    assert.ok((await failure(fg.acquire(name, { wait: "forever" }))) instanceof WouldDeadlock);
    await sleep(10);
    assert.ok((await failure(Promise.resolve().then(() => fg.acquire([name, fresh()])))) instanceof WouldDeadlock);
  });
  await fg.lock(name, () => {});
});

test("what makes no sense is refused before anything is sent", async () => {
  const fg = await client({ fetch: () => assert.fail("it was sent") });
  const wrong: Promise<unknown>[] = [
    fg.acquire("a/b"),
    fg.acquire([]),
    fg.acquire(["a", "a"]),
    fg.acquire(Array.from({ length: 33 }, (_, index) => `r${index}`)),
    fg.acquire("r", { ttl: "999ms" }),
    fg.acquire("r", { ttl: "1 s" }),
    fg.acquire("r", { wait: -1 }),
    fg.acquire("r", { owner: "a\nb" }),
    fg.acquire("r", { metadata: { "": "x" } }),
    fg.acquire("r", { writers: ["role:"] }),
    fg.acquire("r", { stallAfter: 0 }),
    fg.get("r", "a//b"),
    fg.get("r", "k", { version: 0 }),
    fg.admin.freeze("r", ""),
    fg.admin.break("r", "x", { after: "25h" }),
  ];
  for (const one of wrong) assert.ok((await failure(one)) instanceof Misuse);
  assert.throws(() => fg.shards("r", 0), Misuse);
  assert.throws(() => fg.list("a/b"), Misuse);
});

test("many guards of one client are renewed together", async () => {
  const events: ClientEvent[] = [];
  const fg = await client({ onEvent: (event) => events.push(event) });
  const locks: Lock[] = await Promise.all(
    Array.from({ length: 200 }, () => fg.acquire(fresh("many"), { ttl: "30s", watch: false })),
  );
  const renewals = (): number => events.filter((event) => event.type === "renewed").length;
  await until(() => locks.some((lock) => lock.state !== "held") || renewals() >= 2 * locks.length);
  assert.ok(locks.every((lock) => lock.state === "held"));
  await Promise.all(locks.map((lock) => lock.release()));
});

test("one leads at a time, and the next does when it resigns or loses", async () => {
  const name = fresh("leader");
  const leads: string[] = [];
  const stand = async (owner: string, losesFirst: boolean): Promise<string> => {
    const fg = await client();
    let terms = 0;
    return fg.elect(name, { owner, ttl: "9s" }, async (lock) => {
      leads.push(owner);
      terms += 1;
      if (losesFirst && terms === 1) {
        await (await gateway()).takeOver(name).then((rival) => rival.release());
        await aborted(lock.signal);
      }
      return owner;
    });
  };
  assert.equal(await stand("a", false), "a");
  assert.equal(await stand("b", true), "b");
  assert.deepEqual(leads, ["a", "b", "b"]);
  const own = new Error("mine");
  const fg = await client();
  assert.equal(await failure(fg.elect(name, () => Promise.reject(own))), own);
  assert.equal((await fg.resource(name)).state, "released");
});

test("who leads is told with each change", async () => {
  const [fg, name] = [await client({ owner: "10.0.0.7:9000" }), fresh("leader")];
  const leaders = fg.observe(name);
  assert.equal((await leaders.next()).value, undefined);
  const lock = await fg.acquire(name);
  const leader = (await leaders.next()).value;
  assert.ok(leader?.leads && leader.owner === "10.0.0.7:9000");
  await lock.release();
  assert.equal((await leaders.next()).value?.leads, false);
  await leaders.return();
});

test("shards are taken by those that come, each by one", async () => {
  const name = fresh("export");
  const taken = new Set<number>();
  const locks: Lock[] = [];
  for (let worker = 0; worker < 2; worker += 1) {
    for await (const { index, lock } of (await client()).shards(name, 4)) {
      assert.ok(!taken.has(index));
      assert.deepEqual(lock.resources, [`${name}@${index}.4`]);
      taken.add(index);
      locks.push(lock);
    }
  }
  assert.equal(taken.size, 4);
  await Promise.all(locks.map((lock) => lock.release()));
});

test("a client that is closed ends its guards and gives their locks back", async () => {
  const [fg, other, name] = [await client(), await client(), fresh()];
  const lock = await fg.acquire(name);
  await fg.close();
  assert.equal((lock.signal.reason as LockLost).reason, "closed");
  assert.equal((await other.resource(name)).state, "released");
  assert.ok((await failure(fg.acquire(name))) instanceof Error);
  assert.equal((await fg.events().next()).done, true);
});

test("what was never locked is not found", async () => {
  const fg = await client();
  assert.ok((await failure(fg.resource(fresh()))) instanceof NotFound);
  assert.ok((await failure(fg.acquire(fresh(), { onlyIfExists: true }))) instanceof NotFound);
});
