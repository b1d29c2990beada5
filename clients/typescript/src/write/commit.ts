// Many puts and deletes at once, over all resources of a guard: all or nothing (CC29).

import { GatewayFault, Misuse } from "../core/errors.js";
import { randomHex } from "../core/ids.js";
import { operationList, partHead, partsTail, type CommitOperation } from "../core/multipart.js";
import { contentTypeText, entityTags, objectKey, resourceName } from "../core/names.js";
import { checked, type Names } from "../core/options.js";
import type { Condition } from "../core/settling.js";
import { concat } from "../core/sse.js";
import type { Held } from "../guard/held.js";
import { Body, type BodyInput } from "../transport/body.js";
import { isServer } from "../transport/runtime.js";
import type { CommitResult, CommittedAnswer, CommittedResource, Operation } from "../wire.js";
import { prepare, versionText, WRITE_NAMES, type WriteOptions } from "./options.js";
import { Writing, type Effect, type Receipt } from "./sending.js";

/** The most operations of one commit. */
const OPERATIONS_MAX = 1_000;
/** The most resources of one commit. */
const RESOURCES_MAX = 32;

/** Options of one put of a commit. */
export interface CommitPutOptions {
  readonly contentType?: string | undefined;
  /** Only if the object carries this tag; `*`: if it is there. */
  readonly ifMatch?: string | undefined;
  /** Only if the object is not there. */
  readonly ifAbsent?: boolean | undefined;
}

/** Options of one delete of a commit. */
export type CommitDeleteOptions = Pick<CommitPutOptions, "ifMatch">;

const DELETE_NAMES: Names<CommitDeleteOptions> = { ifMatch: "text" };
const PUT_NAMES: Names<CommitPutOptions> = { ...DELETE_NAMES, contentType: "text", ifAbsent: "flag" };

/** What a commit became. */
export interface Committed {
  /** The operation, the same on all resources. */
  readonly operation: string;
  /** Its resources, and the versions that they became; empty if a newer gateway says it in another way. */
  readonly resources: readonly CommittedResource[];
  /** What each operation did, in order; empty if the commit was looked up afterwards. */
  readonly results: readonly CommitResult[];
  /** Whether it took effect by an earlier attempt. */
  readonly replayed: boolean;
  /** How it went. */
  readonly receipt: Receipt;
}

/** A commit that is put together. `send` sends it. */
export class Commit {
  readonly #held: Held;
  readonly #operations: CommitOperation[] = [];
  readonly #bodies: Body[] = [];
  readonly #versions = new Map<string, string>();

  /** @internal Whoever has a commit has its guard: it is not collected before. */
  readonly guard: object;

  /** @internal */
  constructor(held: Held, guard: object) {
    this.#held = held;
    this.guard = guard;
  }

  /**
   * Stores an object.
   *
   * @throws Misuse: a name or an option is none, or the body can be read only once.
   */
  put(resource: string, key: string, body: BodyInput, options: CommitPutOptions = {}): this {
    const kept = new Body(body);
    if (!kept.isReplayable) throw new Misuse("a commit takes bodies that can be sent again");
    const { contentType, ifMatch, ifAbsent } = checked("put()", options, PUT_NAMES);
    this.#operations.push({
      op: "put",
      resource: resourceName(resource),
      key: objectKey(key),
      body: `b${this.#bodies.length}`,
      content_type: contentType === undefined ? undefined : contentTypeText(contentType),
      if_match: ifMatch === undefined ? undefined : entityTags(ifMatch),
      if_none_match: ifAbsent ? "*" : undefined,
    });
    this.#bodies.push(kept);
    return this;
  }

  /**
   * Removes an object, if it is there.
   *
   * @throws Misuse: a name or an option is none.
   */
  delete(resource: string, key: string, options: CommitDeleteOptions = {}): this {
    const { ifMatch } = checked("delete()", options, DELETE_NAMES);
    const tags = ifMatch === undefined ? undefined : entityTags(ifMatch);
    this.#operations.push({ op: "delete", resource: resourceName(resource), key: objectKey(key), if_match: tags });
    return this;
  }

  /**
   * The commit is done only if the resource is at this version.
   *
   * @throws Misuse: a name or version is none.
   */
  expectVersion(resource: string, version: number | bigint): this {
    this.#versions.set(resourceName(resource), versionText(version));
    return this;
  }

  /**
   * Sends it.
   *
   * @throws As any write; `Changed` says in `index` which operation could not be done. Misuse: there are no operations,
   * or more than 1,000, an object comes twice, or the guard does not cover a resource.
   */
  async send(options: WriteOptions = {}): Promise<Committed> {
    checked("send()", options, WRITE_NAMES);
    const resource = this.#check();
    const boundary = `fencegate-${randomHex(16)}`;
    const body = new Body(await this.#body(boundary));
    const headers = { "content-type": `multipart/form-data; boundary=${boundary}` };
    const condition = this.#condition();
    const target = { call: "commit", method: "POST", path: "/commit", resource, body, condition, headers } as const;
    const writing = new Writing(this.#held, prepare(this.#held, target, options));
    return committed(await writing.go(), writing.receipt);
  }

  /** The gateway's limits, and what the guard covers. Gives the first resource. */
  #check(): string {
    const operations = this.#operations;
    if (operations.length < 1 || operations.length > OPERATIONS_MAX) {
      throw new Misuse(`a commit has 1 to ${OPERATIONS_MAX} operations`);
    }
    const objects = new Set<string>();
    const resources = new Set(this.#versions.keys());
    for (const { resource, key } of operations) {
      const object = `${resource}/${key}`;
      if (objects.has(object)) throw new Misuse(`the object ${JSON.stringify(key)} of ${resource} comes twice`);
      objects.add(object);
      resources.add(resource);
    }
    if (resources.size > RESOURCES_MAX) throw new Misuse(`a commit is on at most ${RESOURCES_MAX} resources`);
    for (const resource of resources) {
      if (!this.#held.resources.includes(resource)) throw new Misuse(`the lock does not cover ${resource}`);
    }
    return operations.map((operation) => operation.resource).sort()[0]!;
  }

  #condition(): Condition {
    const isAbsence = (one: CommitOperation): boolean => one.if_none_match !== undefined || one.if_match === "*";
    if (this.#versions.size > 0 || this.#operations.some(isAbsence)) return "absence";
    return this.#operations.some((one) => one.if_match !== undefined) ? "tags" : "none";
  }

  /** All parts: whole, if they are in memory, else as a stream that can be begun anew. */
  async #body(boundary: string): Promise<BodyInput> {
    const list = operationList(this.#operations, this.#versions);
    const parts: { head: Uint8Array; body: Body }[] = [
      { head: partHead(boundary, true, "operations", "application/json", undefined), body: new Body(list) },
    ];
    for (const { body: name, content_type } of this.#operations) {
      const body = this.#bodies[parts.length - 1];
      if (name === undefined || body === undefined) continue;
      const type = content_type ?? "application/octet-stream";
      parts.push({ head: partHead(boundary, false, name, type, await body.digest()), body });
    }
    const tail = partsTail(boundary);
    if (parts.every(({ body }) => body.bytes !== undefined)) {
      return concat([...parts.flatMap(({ head, body }) => [head, body.bytes!]), tail]);
    }
    if (!isServer) throw new Misuse("browsers cannot stream a commit: give bytes or text");
    const sizes = parts.map(({ head, body }) => head.length + (body.size ?? NaN));
    const size = sizes.reduce((sum, one) => sum + one, tail.length);
    return {
      size: Number.isNaN(size) ? undefined : size,
      async *stream() {
        for (const { head, body } of parts) {
          yield head;
          yield* body.pieces();
        }
        yield tail;
      },
    };
  }
}

function committed(effect: Effect, receipt: Receipt): Committed {
  if (effect.is === "found") {
    const { operation } = effect;
    return { operation: operation.operation, resources: resourcesOf(operation), results: [], replayed: true, receipt };
  }
  const said = effect.body as Partial<CommittedAnswer> | null | undefined;
  const operation = typeof said?.operation === "string" ? said.operation : effect.operation;
  if (operation === undefined) {
    throw new GatewayFault("the commit took effect, but its answer does not say as which operation");
  }
  const isGood = Array.isArray(said?.resources) && Array.isArray(said.results);
  const { resources, results } = isGood ? (said as CommittedAnswer) : { resources: [], results: [] };
  return { operation, resources, results, replayed: effect.replayed, receipt };
}

function resourcesOf({ resources, resource, version }: Operation): readonly CommittedResource[] {
  return resources ?? [{ resource: resource ?? "", version: version ?? null }];
}
