// The AWS SDK for JavaScript, version 3.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

// The packages lie where the tools of the tests do.
const require = createRequire(process.env.FENCE_TEST_NODE_MODULES);
const sdk = require("@aws-sdk/client-s3");
const { Upload } = require("@aws-sdk/lib-storage");

const Bucket = "lake";
const PART_BYTES = 5 * 1024 * 1024;
const s3 = new sdk.S3Client({});
let upload;
const parts = [];

const calls = {
  put: async ({ key, text, ...conditions }) =>
    (await s3.send(new sdk.PutObjectCommand({ Bucket, Key: key, Body: text, ...conditions }))).ETag,
  large: async ({ key }) => {
    await new Upload({ client: s3, params: { Bucket, Key: key, Body: Buffer.alloc(12 << 20) } }).done();
  },
  begin: async ({ key }) => {
    const { UploadId } = await s3.send(new sdk.CreateMultipartUploadCommand({ Bucket, Key: key }));
    upload = { Bucket, Key: key, UploadId };
    await calls.part();
  },
  part: async () => {
    const PartNumber = parts.length + 1;
    const sent = new sdk.UploadPartCommand({ ...upload, PartNumber, Body: Buffer.alloc(PART_BYTES) });
    parts.push({ PartNumber, ETag: (await s3.send(sent)).ETag });
  },
  complete: async () => {
    const command = new sdk.CompleteMultipartUploadCommand({ ...upload, MultipartUpload: { Parts: parts } });
    return (await s3.send(command)).ETag;
  },
  delete: async ({ key, ...conditions }) => {
    await s3.send(new sdk.DeleteObjectCommand({ Bucket, Key: key, ...conditions }));
  },
  delete_many: async ({ keys }) => {
    const Delete = { Objects: keys.map((Key) => ({ Key })) };
    const { Errors } = await s3.send(new sdk.DeleteObjectsCommand({ Bucket, Delete }));
    if (Errors?.length) throw new Error(JSON.stringify(Errors));
  },
  copy: async ({ source, key }) => {
    await s3.send(new sdk.CopyObjectCommand({ Bucket, Key: key, CopySource: `${Bucket}/${source}` }));
  },
  get: async ({ key }) => {
    const { Body } = await s3.send(new sdk.GetObjectCommand({ Bucket, Key: key }));
    return Body.transformToString();
  },
};

// As in driver.py.
let failures = 0;
for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, ...given } = JSON.parse(line);
  let told;
  try {
    told = { told: (await calls[name](given)) ?? null };
  } catch (error) {
    failures += 1;
    told = { failed: `${error.name}: ${error.message}` };
  }
  console.log(JSON.stringify(told));
}
process.exit(failures ? 1 : 0);
