// Commands that read: objects, lists, the feed, who leads.

import { createHash } from "node:crypto";
import { download as downloadTo } from "../../node/index.js";
import type { Fields } from "./fields.js";
import type { State } from "./state.js";
import type { Told } from "./told.js";

/** Reads an object whole. */
export async function get(state: State, fields: Fields, signal: AbortSignal): Promise<Told> {
  const [resource, object] = [fields.text("resource"), fields.text("object")];
  fields.end();
  const found = await state.client.get(resource, object, { signal });
  return { text: new TextDecoder().decode(found.bytes), etag: found.etag, version: found.version };
}

/** Reads an object as a stream. */
export async function open(state: State, fields: Fields, signal: AbortSignal): Promise<Told> {
  const [resource, object] = [fields.text("resource"), fields.text("object")];
  fields.end();
  const response = await state.client.open(resource, object, { signal });
  const hash = createHash("sha256");
  let size = 0;
  for await (const piece of response.body!) {
    size += piece.length;
    hash.update(piece);
  }
  return { size, sha256: hash.digest("hex") };
}

/** Reads an object into a file. */
export async function download(state: State, fields: Fields, signal: AbortSignal): Promise<Told> {
  const [resource, object, to] = [fields.text("resource"), fields.text("object"), fields.text("to")];
  fields.end();
  const { size } = await downloadTo(state.client, resource, object, to, { signal });
  return { size };
}

/** Lists objects, all pages. */
export async function list(state: State, fields: Fields, signal: AbortSignal): Promise<Told> {
  const [resource, prefix] = [fields.text("resource"), fields.optional("prefix")];
  fields.end();
  const entries = await state.client.list(resource, { prefix, signal }).all();
  return { objects: entries.map((entry) => entry.key) };
}

/** Looks an operation up by its key. */
export async function find(state: State, fields: Fields, signal: AbortSignal): Promise<unknown> {
  const [resource, key] = [fields.text("resource"), fields.text("key")];
  fields.end();
  return (await state.client.operationByKey(resource, key, { signal })) ?? null;
}

/** Follows the feed. */
export async function events(state: State, fields: Fields, signal: AbortSignal): Promise<Told> {
  const [stream, after] = [fields.text("stream"), fields.optional("after")];
  const onVoid = fields.optional("on_void") === "continue" ? "continue" : "raise";
  fields.end();
  for await (const event of state.client.events({ after, onVoid, signal })) {
    const { type, cursor } = event;
    const written = type === "write" ? { resource: event.write.resource, version: event.write.version } : {};
    state.event(type, { stream, cursor, ...written });
  }
  return {};
}

/** Tells who leads. */
export async function observe(state: State, fields: Fields, signal: AbortSignal): Promise<Told> {
  const [stream, name] = [fields.text("stream"), fields.text("name")];
  fields.end();
  for await (const leader of state.client.observe(name, { signal })) {
    state.event("leader", { stream, owner: leader?.owner ?? null });
  }
  return {};
}
