// Files as bodies of writes: read as they are sent, and the same in each attempt.

import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { Misuse } from "../core/errors.js";
import type { Replayable } from "../transport/body.js";

/** Files up to this size are read once before, for their digest. */
const DIGEST_BYTES_MAX = 64 << 20;

/**
 * A file, as the body of a write. It must not change until the write is answered.
 *
 * @throws Misuse: it cannot be read, or is no file.
 */
export async function file(path: string): Promise<Replayable> {
  const first = await statOf(path);
  return {
    size: first.size,
    async stream() {
      const now = await statOf(path);
      if (now.size !== first.size || now.mtimeMs !== first.mtimeMs) {
        throw new Misuse(`${path} changed since the first attempt to send it`);
      }
      return createReadStream(path, { highWaterMark: 64 << 10 });
    },
    async sha256() {
      if (first.size > DIGEST_BYTES_MAX) return undefined;
      const hash = createHash("sha256");
      for await (const piece of createReadStream(path)) hash.update(piece as Uint8Array);
      return hash.digest();
    },
  };
}

async function statOf(path: string): Promise<{ size: number; mtimeMs: number }> {
  const found = await stat(path).catch((error: Error) => {
    throw new Misuse(`cannot read ${path}: ${error.message}`);
  });
  if (!found.isFile()) throw new Misuse(`${path} is no file`);
  return found;
}
