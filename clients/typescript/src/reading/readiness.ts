// Whether a gateway should get requests: not ready is an answer, too.

import type { CallOptions, Inner } from "../client/inner.js";
import { RequestIds } from "../core/ids.js";
import { errorOf } from "../transport/answer.js";
import type { Readiness } from "../wire.js";

/** Asks once: whoever asks wants to know how it is now. */
export async function readiness(inner: Inner, options: CallOptions): Promise<Readiness> {
  const isJson = (headers: Headers): boolean => headers.get("content-type") === "application/json";
  const request = { method: "GET", path: "/readyz" } as const;
  const reply = await inner.transport.attempt(request, new RequestIds().next(), options.signal, isJson);
  const read = reply.is === "done" ? await reply.json<Readiness>() : reply;
  if (read.is !== "read") throw errorOf(read, 1);
  return read.value;
}
