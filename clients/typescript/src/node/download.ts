// Downloads: an object in a file, whole or not at all.

import { open, rename, rm, type FileHandle } from "node:fs/promises";
import { dirname } from "node:path";
import type { Fencegate } from "../client/fencegate.js";
import { Misuse } from "../core/errors.js";
import { checked, type Names } from "../core/options.js";
import { randomHex } from "../core/ids.js";
import { VERSION_NAMES, type VersionOptions } from "../reading/object.js";
import { pieces } from "../transport/body.js";

/** Options of a download. */
export interface DownloadOptions extends VersionOptions {
  /** Is told how many bytes have come so far, and how many there are. */
  readonly onProgress?: ((bytes: number, size: number) => void) | undefined;
}

const NAMES: Names<DownloadOptions> = { ...VERSION_NAMES, onProgress: "function" };

/** What a download gave. */
export interface Downloaded {
  readonly size: number;
  readonly etag: string | undefined;
}

/**
 * Reads an object into a file: into one beside it, which takes its place once it is whole and on disk. If it fails, the
 * file is as it was.
 *
 * @throws As `open` of a client; Misuse: the file cannot be written.
 */
export async function download(
  client: Fencegate,
  resource: string,
  key: string,
  path: string,
  options: DownloadOptions = {},
): Promise<Downloaded> {
  const { onProgress, ...reading } = checked("download()", options, NAMES);
  const response = await client.open(resource, key, reading);
  const part = `${path}.${randomHex(4)}.part`;
  try {
    const size = Number(response.headers.get("content-length"));
    const handle = await writing(path, () => open(part, "wx"));
    try {
      await store(response, handle, path, (bytes) => onProgress?.(bytes, size));
    } finally {
      await handle.close();
    }
    await writing(path, () => rename(part, path));
    await writing(path, () => syncFolder(dirname(path)));
    return { size, etag: response.headers.get("etag") ?? undefined };
  } catch (error) {
    await response.body?.cancel().catch(() => {});
    await rm(part, { force: true });
    throw error;
  }
}

async function store(
  response: Response,
  handle: FileHandle,
  path: string,
  progress: (bytes: number) => void,
): Promise<void> {
  let bytes = 0;
  for await (const piece of pieces(response.body!)) {
    await writing(path, () => handle.writeFile(piece));
    bytes += piece.length;
    progress(bytes);
  }
  await writing(path, () => handle.sync());
}

/** What the folder says of the file is on disk, too. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, "r");
  await handle.sync().finally(() => handle.close());
}

async function writing<T>(path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw new Misuse(`cannot write ${path}: ${(error as Error).message}`);
  }
}
