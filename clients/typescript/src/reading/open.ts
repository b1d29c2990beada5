// An object as a `Response`, whose body goes on where it broke off.

import type { Inner } from "../client/inner.js";
import { objectTarget, VERSION_NAMES, type VersionOptions } from "./object.js";
import type { Names } from "../core/options.js";
import { openObject, type Range } from "./reader.js";

/** Options of an object that is streamed. */
export interface OpenOptions extends VersionOptions {
  /** Only these bytes. Their SHA-256 is not checked: the gateway has that of the whole. */
  readonly range?: Range | undefined;
}

/** The names of options of an object that is streamed. */
export const OPEN_NAMES: Names<OpenOptions> = { ...VERSION_NAMES, range: "value" };

/** Opens an object of any size. */
export async function openResponse(
  inner: Inner,
  resource: string,
  key: string,
  { signal, version, range }: OpenOptions,
): Promise<Response> {
  const target = objectTarget(inner, resource, key, version);
  const reader = await openObject(target, range, { signal });
  const headers = new Headers(reader.headers);
  // An answer with more than was asked for is cut to that.
  if (range !== undefined) headers.set("content-length", String(reader.length));
  const source = reader.pieces();
  const body = new ReadableStream<Uint8Array<ArrayBuffer>>(
    {
      async pull(controller) {
        const next = await source.next();
        if (next.done) controller.close();
        else controller.enqueue(next.value as Uint8Array<ArrayBuffer>);
      },
      async cancel() {
        await source.return(undefined);
        reader.discard();
      },
    },
    { highWaterMark: 0 },
  );
  return new Response(body, { status: range === undefined ? 200 : 206, headers });
}
