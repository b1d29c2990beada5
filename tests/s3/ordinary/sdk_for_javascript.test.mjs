// What programs do with the AWS SDK for JavaScript, under a lock of `lake:orders` and others, as in sdk_for_python.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { createRequire } from "node:module";
import { Readable } from "node:stream";
import { test } from "node:test";

const require = createRequire(process.env.FENCE_TEST_NODE_MODULES);
const sdk = require("@aws-sdk/client-s3");
const { Upload } = require("@aws-sdk/lib-storage");
const { getSignedUrl } = require("@aws-sdk/s3-request-presigner");

const MIB = 1024 * 1024;
const Bucket = "lake";
const s3 = new sdk.S3Client({});

const send = (name, given) => s3.send(new sdk[`${name}Command`]({ Bucket, ...given }));
const put = (Key, Body = "x", more = {}) => send("PutObject", { Key, Body, ...more });
const get = async (Key, more = {}) => {
  const { Body } = await send("GetObject", { Key, ...more });
  return Buffer.from(await Body.transformToByteArray());
};
const refuses = (name, call) => assert.rejects(call, { name });

test("what is put is there, and what is deleted is gone", async () => {
  for (const key of ["a b", "a+b", "100%", "%41", "a//b", "a/../b", "tail/", "ключ/ö/🦀", "!'()*;:@&=$,~-_."]) {
    const Key = `orders/${key}`;
    const { ETag } = await put(Key, key);
    const head = await send("HeadObject", { Key });
    assert.deepEqual([head.ETag, head.ContentLength], [ETag, Buffer.byteLength(key)]);
    assert.equal((await get(Key)).toString(), key);
    await send("DeleteObject", { Key });
    await refuses("NotFound", send("HeadObject", { Key }));
    await refuses("NoSuchKey", send("GetObject", { Key }));
  }
});

test("what is said of an object comes back", async () => {
  const said = { ContentType: "text/csv", CacheControl: "no-cache", Metadata: { "made-by": "a test" } };
  await put("orders/said", "x", said);
  const { ContentType, CacheControl, Metadata } = await send("HeadObject", { Key: "orders/said" });
  assert.deepEqual({ ContentType, CacheControl, Metadata }, said);
});

test("ranges", async () => {
  const body = randomBytes(400 * 1024);
  await put("orders/range", body);
  assert.deepEqual(await get("orders/range", { Range: "bytes=5-9" }), body.subarray(5, 10));
  assert.deepEqual(await get("orders/range", { Range: "bytes=-7" }), body.subarray(-7));
  await refuses("InvalidRange", send("GetObject", { Key: "orders/range", Range: `bytes=${body.length}-` }));
});

test("conditions", async () => {
  const Key = "orders/once";
  await send("DeleteObject", { Key });
  const { ETag } = await put(Key, "1", { IfNoneMatch: "*" });
  await refuses("PreconditionFailed", put(Key, "2", { IfNoneMatch: "*" }));
  await put(Key, "2", { IfMatch: ETag });
  await refuses("PreconditionFailed", put(Key, "3", { IfMatch: ETag }));
  await refuses("PreconditionFailed", send("DeleteObject", { Key, IfMatch: ETag }));
  assert.equal((await get(Key)).toString(), "2");
});

test("lists", async () => {
  const keys = ["a-b/y", "a/x", "a/y/1", "a/y/2", "c"].map((key) => `list/${key}`);
  for (const key of keys) await put(key);
  const found = [];
  const asked = { client: s3, pageSize: 2 };
  for await (const page of sdk.paginateListObjectsV2(asked, { Bucket, Prefix: "list/" })) {
    found.push(...page.Contents.map((one) => one.Key));
  }
  assert.deepEqual(found, keys);
  const below = await send("ListObjectsV2", { Prefix: "list/", Delimiter: "/" });
  assert.deepEqual(below.CommonPrefixes, [{ Prefix: "list/a-b/" }, { Prefix: "list/a/" }]);
  const first = await send("ListObjects", { Prefix: "list/", MaxKeys: 1 });
  assert.deepEqual([first.Contents.length, first.IsTruncated], [1, true]);
  const { Deleted, Errors } = await send("DeleteObjects", { Delete: { Objects: keys.map((Key) => ({ Key })) } });
  assert.deepEqual([Deleted.length, Errors], [keys.length, undefined]);
});

test("large objects, and streams", async () => {
  const body = randomBytes(20 * MIB);
  const upload = new Upload({ client: s3, params: { Bucket, Key: "orders/large", Body: body } });
  const { ETag } = await upload.done();
  assert.equal((await send("HeadObject", { Key: "orders/large" })).ETag, ETag);
  assert.ok((await get("orders/large")).equals(body));
  const pieces = Readable.from(Array.from({ length: 20 }, (_, at) => body.subarray(at * MIB, (at + 1) * MIB)));
  await new Upload({ client: s3, params: { Bucket, Key: "orders/stream", Body: pieces } }).done();
  assert.ok((await get("orders/stream")).equals(body));
  const small = Readable.from([Buffer.from("of known "), Buffer.from("length")]);
  await put("orders/small", small, { ContentLength: 15 });
  assert.equal((await get("orders/small")).toString(), "of known length");
});

test("copies", async () => {
  await put("orders/from ö", "body", { Metadata: { a: "1" } });
  for (const Key of ["orders/to", "a/to"]) {
    await send("CopyObject", { Key, CopySource: "lake/orders/from%20%C3%B6" });
    assert.deepEqual((await send("HeadObject", { Key })).Metadata, { a: "1" });
  }
  await send("DeleteObject", { Key: "a/to" });
});

test("checksums", async () => {
  for (const ChecksumAlgorithm of ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"]) {
    const name = `Checksum${ChecksumAlgorithm}`;
    const sent = await put("orders/sum", "body", { ChecksumAlgorithm });
    const head = await send("HeadObject", { Key: "orders/sum", ChecksumMode: "ENABLED" });
    assert.ok(sent[name] && sent[name] === head[name], ChecksumAlgorithm);
    assert.equal((await get("orders/sum", { ChecksumMode: "ENABLED" })).toString(), "body");
  }
  await refuses("BadDigest", put("orders/sum", "bad", { ChecksumSHA1: "2jmj7l5rSw0yVb/vlWAYkK/YBwk=" }));
});

test("whoever has the URL does what it says", async () => {
  const Key = "orders/signed ö+";
  const put = await getSignedUrl(s3, new sdk.PutObjectCommand({ Bucket, Key }), { expiresIn: 60 });
  assert.equal((await fetch(put, { method: "PUT", body: "by url" })).status, 200);
  const get = await getSignedUrl(s3, new sdk.GetObjectCommand({ Bucket, Key }), { expiresIn: 60 });
  assert.equal(await (await fetch(get)).text(), "by url");
  assert.equal((await fetch(get, { method: "DELETE" })).status, 403);
});
