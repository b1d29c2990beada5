// Commands about writes, and about what became of those of unknown outcome.

import { DELETE, KEEP, type BodyInput, type StoredObject, type UpstreamMethod } from "../../index.js";
import type { Fields } from "./fields.js";
import type { State } from "./state.js";
import { committedTold, deletedTold, Mistake, settledTold, writtenTold, type Told } from "./told.js";

/** Puts. */
export async function put(state: State, fields: Fields, signal: AbortSignal): Promise<Told> {
  const guard = state.guard(fields.text("lock"));
  const object = fields.text("object");
  const body = bodyIn(fields);
  const options = {
    signal,
    resource: fields.optional("resource"),
    contentType: fields.optional("content_type"),
    ifMatch: fields.optional("if_match"),
    ifAbsent: fields.flag("if_absent"),
    expectVersion: fields.number("expect_version"),
    idempotencyKey: fields.optional("key"),
    rideOut: fields.flag("ride_out"),
    retries: fields.number("attempts") === 1 ? false : undefined,
  };
  fields.end();
  return writtenTold(await guard.put(object, body, options));
}

function bodyIn(fields: Fields): BodyInput {
  const [text, size, stream] = [fields.optional("text"), fields.number("size"), fields.optional("stream")];
  if (size !== undefined) return Buffer.alloc(size, "x");
  if (stream === undefined) return text ?? "";
  return (async function* () {
    yield Buffer.from(stream);
  })();
}

/** Deletes one object, or all. */
export async function remove(state: State, fields: Fields, signal: AbortSignal, all: boolean): Promise<Told> {
  const guard = state.guard(fields.text("lock"));
  const object = fields.optional("object") ?? "";
  const [resource, ifMatch] = [fields.optional("resource"), fields.optional("if_match")];
  const [expectVersion, idempotencyKey] = [fields.number("expect_version"), fields.optional("key")];
  fields.end();
  const options = { signal, resource, expectVersion, idempotencyKey };
  const deleted = all ? guard.deleteAll(options) : guard.delete(object, { ...options, ifMatch });
  return deletedTold(await deleted);
}

/** Commits. */
export async function commit(state: State, fields: Fields, signal: AbortSignal): Promise<Told> {
  const builder = state.guard(fields.text("lock")).commit();
  for (const operation of fields.objects("operations")) {
    const [op, resource, object] = [operation.text("op"), operation.text("resource"), operation.text("object")];
    const [text, contentType] = [operation.optional("text") ?? "", operation.optional("content_type")];
    const [ifMatch, ifAbsent] = [operation.optional("if_match"), operation.flag("if_absent")];
    operation.end();
    if (op === "put") builder.put(resource, object, text, { contentType, ifMatch, ifAbsent });
    else if (op === "delete") builder.delete(resource, object, { ifMatch });
    else throw new Mistake(`there is no operation ${op}`);
  }
  for (const [resource, version] of Object.entries(fields.words("versions") ?? {})) {
    builder.expectVersion(resource, Number(version));
  }
  const idempotencyKey = fields.optional("key");
  fields.end();
  return committedTold(await builder.send({ signal, idempotencyKey }));
}

/** Reads, changes, writes. */
export async function update(state: State, fields: Fields, signal: AbortSignal): Promise<Told> {
  const lock = state.lock(fields.text("lock"));
  const [object, resource] = [fields.text("object"), fields.optional("resource")];
  const [append, say] = [fields.optional("append"), fields.optional("say")];
  fields.end();
  let rounds = 0;
  const change = (old: StoredObject | undefined) => {
    rounds += 1;
    if (say === "delete") return DELETE;
    return append === undefined ? KEEP : (old?.text() ?? "") + append;
  };
  const written = await lock.update(object, change, { resource, signal });
  return { ...(written === undefined ? { kept: true } : writtenTold(written)), rounds };
}

/** Sends a request to an upstream. */
export async function upstream(state: State, fields: Fields, signal: AbortSignal): Promise<Told> {
  const lock = state.lock(fields.text("lock"));
  const [name, method, path] = [fields.text("upstream"), fields.text("method"), fields.text("path")];
  const [text, key] = [fields.optional("text"), fields.optional("key")];
  fields.optional("resource");
  fields.end();
  const headers = key === undefined ? undefined : { "idempotency-key": key };
  const options = { headers, body: text, signal };
  const answer = await lock.upstream(name, method as UpstreamMethod, path, options);
  const { status, body, operation, verdict } = answer;
  return { status, text: new TextDecoder().decode(body), operation, verdict };
}

/** Finds out what became of a write. */
export async function resolve(state: State, fields: Fields, signal: AbortSignal): Promise<Told> {
  const [unknown, within] = [state.unknown(fields.text("handle")), fields.optional("within")];
  fields.end();
  return settledTold(await unknown.resolve({ within, signal }));
}

/** The same, at the price of the lock. */
export async function abandon(state: State, fields: Fields, signal: AbortSignal): Promise<Told> {
  state.guard(fields.text("lock"));
  const unknown = state.unknown(fields.text("handle"));
  fields.end();
  return settledTold(await unknown.abandon({ signal }));
}
