// The small parts by themselves: the clock, turns, numbers, URLs, headers, ids, bodies.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Turn } from "../../src/client/turn.js";
import { anySignal, unlessAborted } from "../../src/client/signals.js";
import { isTold } from "../../src/feed/events.js";
import { Misuse, WouldDeadlock } from "../../src/core/errors.js";
import { randomHex, RequestIds, uuidv7 } from "../../src/core/ids.js";
import { Numbers } from "../../src/guard/numbers.js";
import { Handoff } from "../../src/index.js";
import { Fencegate } from "../../src/node/main.js";
import { tellSafely } from "../../src/hooks.js";
import { shardName } from "../../src/core/slots.js";
import { Body } from "../../src/transport/body.js";
import { sleepAwareClock, Time } from "../../src/transport/time.js";
import { ownHeaders } from "../../src/transport/headers.js";
import { Urls } from "../../src/transport/urls.js";
import { jsonText } from "../../src/write/update.js";

test("a wall clock that runs ahead by more than 5 s counts as elapsed time", () => {
  let [monotonic, wall] = [1_000, 1_000_000];
  const now = sleepAwareClock(
    () => monotonic,
    () => wall,
  );
  const pass = (ms: number, asleep = 0): void => {
    monotonic += ms;
    wall += ms + asleep;
  };
  assert.equal(now(), 1_000);
  pass(100);
  assert.equal(now(), 1_100);
  pass(100, 5_000);
  assert.equal(now(), 1_200, "a clock that is set by a little is none that slept");
  pass(100, 60_000);
  assert.equal(now(), 66_300, "all of what it is ahead by then");
  pass(100);
  assert.equal(now(), 66_400);
  wall -= 3_600_000;
  assert.equal(now(), 66_400, "a clock that is set back takes no time away");
  pass(100, 6_000);
  assert.equal(now(), 72_500, "nor does it hide a sleep after that");
});

test("a timer that is early is set again", () => {
  let now = 0;
  const set: (() => void)[] = [];
  const time = new Time({
    fetch,
    now: () => now,
    random: () => 0.5,
    setTimeout: (wake) => set.push(wake),
    clearTimeout: () => {},
  });
  let woken = 0;
  time.at(100, () => (woken += 1));
  now = 99;
  set.shift()?.();
  assert.deepEqual([woken, set.length], [0, 1]);
  now = 100;
  set.shift()?.();
  assert.deepEqual([woken, set.length], [1, 0]);
});

test("a turn goes from one to the next, in order", async () => {
  const turn = new Turn();
  const order: number[] = [];
  const work = (number: number): Promise<void> =>
    turn.with(async () => {
      await Promise.resolve();
      order.push(number);
    });
  await Promise.all([work(1), work(2), work(3)]);
  assert.deepEqual(order, [1, 2, 3]);
  assert.ok(turn.tryTake() && !turn.tryTake());
});

test("writes overlap if both were under way at some time", () => {
  const numbers = new Numbers();
  const first = numbers.begin();
  assert.ok(!first.overlapped());
  const second = numbers.begin();
  assert.ok(first.overlapped() && second.overlapped());
  first.end();
  first.end();
  assert.ok(second.overlapped(), "it ended while this one was under way");
  second.end();
  const third = numbers.begin();
  assert.ok(!third.overlapped(), "all others had ended before it began");
  numbers.begin().end();
  assert.ok(third.overlapped(), "another came and went");
  assert.deepEqual([numbers.next(), numbers.next(), numbers.next()], [1, 2, 3]);
  assert.ok(numbers.isEarlierOpen(3) && !numbers.isEarlierOpen(1));
  numbers.settled(1);
  numbers.settled(2);
  assert.ok(!numbers.isEarlierOpen(3));
});

test("a gateway that failed is left alone for half a minute, and the first is the first again", () => {
  const urls = new Urls("http://a/, http://b/in/front//,https://c");
  assert.deepEqual(
    [0, 1, 2].map((place) => urls.at(place)),
    ["http://a", "http://b/in/front", "https://c"],
  );
  urls.avoid(0, 0);
  assert.equal(urls.current(1), 1);
  urls.avoid(1, 10);
  urls.avoid(2, 20);
  assert.equal(urls.current(30), 0, "all have failed: the one that did so longest ago");
  assert.equal(urls.current(30_000), 0);
  for (const wrong of ["", "ftp://a", "a", "http://a?x", "http://a#x", "http://u:p@a", ",http://a"]) {
    assert.throws(() => new Urls(wrong), Misuse, wrong);
  }
  assert.throws(
    () => new Urls("http://user:secret@a"),
    (error: Error) => !error.message.includes("secret"),
  );
});

test("the caller's headers are its own", () => {
  assert.deepEqual(ownHeaders({ "X-Team": "billing" }), { "x-team": "billing" });
  for (const wrong of [{ "X-Fence-Token": "7" }, { "a b": "c" }, { a: "b\nc" }, { Authorization: "x" }]) {
    assert.throws(() => ownHeaders(wrong as Record<string, string>), Misuse);
  }
});

test("ids are UUIDs of version 7, each another, and attempts are found together", () => {
  const ids = new Set(Array.from({ length: 2_000 }, uuidv7));
  assert.equal(ids.size, 2_000);
  for (const id of ids) assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  const made = parseInt([...ids][0]!.replaceAll("-", "").slice(0, 12), 16);
  assert.ok(Math.abs(Date.now() - made) < 5_000);
  assert.match(randomHex(4), /^[0-9a-f]{8}$/);
  const attempts = new RequestIds();
  const first = attempts.next();
  assert.deepEqual([attempts.next(), attempts.next(), attempts.attempts], [`${first}.2`, `${first}.3`, 3]);
});

test("a handoff as text is read back, and shows nothing when it is printed", async () => {
  const id = uuidv7();
  const json = JSON.stringify({ id, token: "9223372036854775807", resources: ["ä:1".slice(2)], owner: "größer" });
  const text = `fence1:${Buffer.from(json).toString("base64url")}`;
  const handoff = Handoff.fromText(` ${text}\n`);
  assert.deepEqual([handoff.id, handoff.token, handoff.owner], [id, "9223372036854775807", "größer"]);
  assert.equal(handoff.toText(), text);
  const { inspect } = await import("node:util");
  assert.ok(!inspect(handoff).includes(id) && !JSON.stringify(handoff).includes(id));
});

test("several signals are one, and let go of it", async () => {
  const [one, other] = [new AbortController(), new AbortController()];
  const { signal, done } = anySignal(one.signal, undefined, other.signal);
  const waiting = unlessAborted(new Promise(() => {}), signal);
  other.abort("why");
  await assert.rejects(waiting, (error) => error === "why");
  assert.ok(signal.aborted && signal.reason === "why");
  done();
  assert.ok(anySignal(other.signal).signal.aborted);
});

test("a place in the feed is told up to its number", () => {
  assert.ok(
    isTold("g0-17", "g0-17") && isTold("g0-17", "g0-9") && isTold("g0-9007199254740993", "g0-9007199254740992"),
  );
  assert.ok(!isTold("g0-17", "g0-18") && !isTold("g0-17", "g1-3") && !isTold("now", "g0-1") && !isTold("g0-1", "x"));
});

test("shards have as many digits as their number", () => {
  assert.deepEqual(
    [shardName("a", 7, 16), shardName("a", 0, 4), shardName("a", 3, 1000)],
    ["a@07.16", "a@0.4", "a@0003.1000"],
  );
});

test("JSON loses nothing", () => {
  assert.equal(jsonText({ a: 1 }), '{"a":1}');
  for (const wrong of [NaN, { a: [Infinity] }, undefined, () => {}]) assert.throws(() => jsonText(wrong), Misuse);
});

test("a hook that fails does no harm", () => {
  tellSafely(
    () => {
      throw new Error("the hook's");
    },
    { type: "renewed", headroomMs: 1, latenessMs: 0 },
  );
});

test("a body says what it is", async () => {
  assert.deepEqual([new Body("ä").size, new Body(new Uint8Array(3)).size, new Body(new Blob(["abc"])).size], [2, 3, 3]);
  assert.ok(
    !new Body(new Blob(["x"]).stream()).isReplayable &&
      new Body({ stream: () => new Blob(["x"]).stream() }).isReplayable,
  );
  assert.match((await new Body("abc").digest()) ?? "", /^sha-256=:ungWv48Bz\+pBQUDeXa4iI7ADYaOWF3qctBD\/YfIAFa0=:$/);
  assert.match((await new Body(new Blob(["abc"])).digest()) ?? "", /ungWv48Bz/);
  for (const none of [null, undefined, 7, {}]) assert.throws(() => new Body(none as never), Misuse);
});

test("options of a client are checked, and its owner is a name", () => {
  const url = "http://localhost:1";
  assert.match(new Fencegate(url).owner, /^[^:]+:[0-9]+:[0-9a-f]{8}$/);
  for (const wrong of [
    { ttl: "999ms" },
    { callTimeout: 0 },
    { writeTimeout: "25h" },
    { owner: "x".repeat(257) },
    { auth: "two words" },
    { auth: "" },
    { headers: { "x-lock-id": "1" } },
  ]) {
    assert.throws(() => new Fencegate(url, wrong), Misuse, JSON.stringify(wrong));
  }
  assert.ok(new WouldDeadlock("x") instanceof Misuse);
});
