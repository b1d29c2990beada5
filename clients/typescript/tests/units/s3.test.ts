// What S3 tools write with under a lock: for whom it is there, and where it does not show.

import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";
import { GatewayFault, LockLost, Misuse } from "../../src/core/errors.js";
import { Fencegate } from "../../src/node/main.js";

const ID = "0190a1b2-0000-7000-8000-000000000000";
const ACCESS = {
  endpoint: "http://127.0.0.1:9000",
  region: "eu-1",
  access_key_id: "FG1A",
  secret_access_key: "the secret",
};

/** A client whose gateway answers so: with the lock that is asked for, and with the key of any lock. */
function clientOf(s3: unknown, key: unknown = ACCESS, status = 200): { fg: Fencegate; asked: string[] } {
  const asked: string[] = [];
  const send = async (url: unknown, init?: RequestInit): Promise<Response> => {
    const { pathname } = new URL(String(url));
    asked.push(`${init?.method ?? "GET"} ${pathname}`);
    const headers = { "X-Request-Id": new Headers(init?.headers).get("X-Request-Id") ?? "" };
    const type = { "Content-Type": status === 200 ? "application/json" : "application/problem+json" };
    if (pathname.endsWith("/s3")) return Response.json(key, { status, headers: { ...headers, ...type } });
    if (init?.method === "DELETE") return new Response(null, { status: 204, headers });
    if (pathname !== "/locks") return Response.json({}, { status: 500, headers });
    const { id, resource } = (await new Response(init?.body).json()) as Record<string, string>;
    const times = { ttl_ms: 30_000, expires_in_ms: 30_000, acquired_at: "2026-11-26T12:00:00Z" };
    const lock = { id, resources: [resource], owner: "o", state: "leased", token: "7", versions: [0], ...times };
    return Response.json(s3 === undefined ? lock : { ...lock, s3 }, { status: 201, headers });
  };
  return { fg: new Fencegate("http://localhost:1", { fetch: send as typeof fetch, retries: false }), asked };
}

test("a lock in a bucket tells the options of an S3 client, and shows no secret", async () => {
  const { fg } = clientOf(ACCESS);
  const lock = await fg.acquire("lake:orders");
  const s3 = lock.s3;
  assert.ok(s3 !== undefined && s3 === lock.s3, "always the same");
  const { endpoint, region, forcePathStyle, credentials } = s3;
  assert.deepEqual([endpoint, region, forcePathStyle], ["http://127.0.0.1:9000", "eu-1", true]);
  // As the AWS SDK takes it: spread, and by member.
  assert.equal({ ...s3, maxAttempts: 1 }.credentials.secretAccessKey, "the secret");
  assert.deepEqual({ ...credentials }, { accessKeyId: "FG1A", secretAccessKey: "the secret" });
  for (const shown of [
    inspect(s3),
    inspect(lock, { depth: 9 }),
    inspect({ s3 }, { depth: 9 }),
    JSON.stringify({ s3 }),
  ]) {
    assert.ok(!shown.includes("the secret"), shown);
  }
  assert.match(inspect(s3) + JSON.stringify(s3), /FG1A.*FG1A/s);
  await lock.release();
  await fg.close("1s");
});

test("a lock outside of buckets has no key, and a key that is none is no grant", async () => {
  for (const none of [undefined, null]) {
    const { fg } = clientOf(none);
    const lock = await fg.acquire("r");
    assert.equal(lock.s3, undefined);
    await lock.release();
  }
  const { fg } = clientOf({ ...ACCESS, secret_access_key: undefined });
  const error = await fg.acquire("lake:orders").catch((error: unknown) => error);
  assert.match(String(error), /502|no lock in the answer/);
});

test("a key is asked for by the id of a lock", async () => {
  const { fg, asked } = clientOf(undefined);
  assert.equal((await fg.s3Access(ID)).credentials.accessKeyId, "FG1A");
  assert.deepEqual(asked, [`GET /locks/${ID}/s3`]);
  await assert.rejects(fg.s3Access("lake:orders"), Misuse);
  await assert.rejects(clientOf(undefined, { ...ACCESS, region: 7 }).fg.s3Access(ID), (error: unknown) => {
    return error instanceof GatewayFault && !inspect(error, { depth: 9 }).includes("the secret");
  });
  const ended = { code: "lock-superseded", status: 409, title: "It ended", detail: "it ended" };
  await assert.rejects(clientOf(undefined, ended, 409).fg.s3Access(ID), LockLost);
});
