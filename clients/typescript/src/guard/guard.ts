// The guard: a lock or a fence in hand. Writes exist here only, so that none can be made without a token.

import { CALL, type CallOptions } from "../client/inner.js";
import type { LossReason } from "../core/classes.js";
import { Misuse } from "../core/errors.js";
import type { GuardState } from "../core/lease.js";
import { objectKey } from "../core/names.js";
import { checked, mustBeFunction } from "../core/options.js";
import type { StoredObject } from "../reading/object.js";
import { Body, type BodyInput } from "../transport/body.js";
import { Commit } from "../write/commit.js";
import { ALL_NAMES, OBJECT_NAMES, PUT_NAMES, type ObjectOptions, type PutOptions } from "../write/options.js";
import { put, remove, type Deleted, type Written } from "../write/put.js";
import { once, update, UPDATE_NAMES, updateJson, type Change, type Once, type UpdateOptions } from "../write/update.js";
import { sendUpstream, type UpstreamAnswer, type UpstreamMethod, type UpstreamOptions } from "../write/upstream.js";
import type { Held } from "./held.js";

/** A guard that nobody has any more ends, and its lock is given back (CC38). */
const collected = new FinalizationRegistry<Held>((held) => held.drop());

/** What the library itself knows of a guard. Assigned by the class, which alone can look inside. */
export let heldOf: (guard: Guard) => Held;

/** A lock or a fence in hand. Its methods wait for what they begin, so that it is not collected before that has ended. */
export class Guard {
  readonly #held: Held;

  static {
    heldOf = (guard) => guard.#held;
  }

  /** @internal */
  constructor(held: Held) {
    this.#held = held;
    collected.register(this, held, held);
    held.onEnd(() => collected.unregister(held));
  }

  /** What it covers, in byte order. */
  get resources(): readonly string[] {
    return this.#held.resources;
  }

  /** The fence token, for systems that check it themselves: digits, never a number. */
  get token(): string {
    return this.#held.grant.token;
  }

  /** The id of the lock, or of the call that set the fence: the key to it. Keep it to yourself. */
  get id(): string {
    return this.#held.grant.id;
  }

  /** What the holder calls itself. */
  get owner(): string {
    return this.#held.grant.owner;
  }

  /** The headers that show the guard to a gateway, or to a service that checks tokens. */
  headers(): Record<string, string> {
    return { "X-Fence-Token": this.token, "X-Lock-Id": this.id };
  }

  /** The version of a resource when the guard was granted, if the gateway said it. */
  version(resource?: string): number | undefined {
    return this.#held.grant.versions?.get(target(this.#held, resource));
  }

  /** In what state it is, by the client's clock. */
  get state(): GuardState {
    return this.#held.state;
  }

  /** Why it is lost; `undefined`: it is not. */
  get lostReason(): LossReason | undefined {
    return this.#held.lostReason;
  }

  /** Aborted when the guard is lost, once; the reason is a `LockLost`. A release does not abort it. */
  get signal(): AbortSignal {
    this.#held.look();
    return this.#held.signal;
  }

  /**
   * That it is still held, by all that is known here. The gateway judges anew with each write.
   *
   * @throws LockLost
   */
  check(): void {
    this.#held.check();
  }

  /**
   * Stores an object. It takes effect once or not at all, and only while nobody has a newer token.
   *
   * @throws LockLost: stop. Changed: a condition failed. OutcomeUnknown: nobody knows; `resolve` it. Unavailable: it
   * certainly took no effect. Misuse: the gateway would refuse a name or an option.
   */
  async put(key: string, body: BodyInput, options: PutOptions = {}): Promise<Written> {
    checked("put()", options, PUT_NAMES);
    return await put(this.#held, target(this.#held, options.resource), objectKey(key), new Body(body), options);
  }

  /**
   * Removes an object, if it is there.
   *
   * @throws As a put.
   */
  async delete(key: string, options: ObjectOptions = {}): Promise<Deleted> {
    checked("delete()", options, OBJECT_NAMES);
    return await remove(this.#held, target(this.#held, options.resource), objectKey(key), options);
  }

  /**
   * Removes all objects of the resource, as one write.
   *
   * @throws As a put.
   */
  async deleteAll(options: Omit<ObjectOptions, "ifMatch"> = {}): Promise<Deleted> {
    checked("deleteAll()", options, ALL_NAMES);
    return await remove(this.#held, target(this.#held, options.resource), undefined, options);
  }

  /** Many puts and deletes at once: all or nothing. */
  commit(): Commit {
    return new Commit(this.#held, this);
  }

  /**
   * Reads the object, lets `change` make a new one of it (`undefined`: there is none), and stores that, if nobody
   * changed the object meanwhile; else again, at most 16 times. `change` may run several times. Gives what was written;
   * `undefined` if the object was kept or deleted.
   *
   * @throws As reads and writes; Changed after 16 rounds; or what `change` throws.
   */
  async update(
    key: string,
    change: (old: StoredObject | undefined) => Change | Promise<Change>,
    options: UpdateOptions = {},
  ): Promise<Written | undefined> {
    mustBeFunction("update()", "change", change);
    checked("update()", options, UPDATE_NAMES);
    return await update(this.#held, target(this.#held, options.resource), key, change, options);
  }

  /**
   * The same for a value as JSON; a `change` that gives `undefined` deletes the object. Gives the new value. Nothing
   * checks that what is stored is a `T`.
   *
   * @throws As `update`; Misuse: what is stored is no JSON, or the new value cannot be written as JSON.
   */
  async updateJson<T>(
    key: string,
    change: (old: T | undefined) => T | undefined | Promise<T | undefined>,
    options: UpdateOptions = {},
  ): Promise<T | undefined> {
    mustBeFunction("updateJson()", "change", change);
    checked("updateJson()", options, UPDATE_NAMES);
    return await updateJson(this.#held, target(this.#held, options.resource), key, change, options);
  }

  /**
   * Runs `work`, unless a write under this key took effect before. The last write of `work` must carry the key as its
   * `idempotencyKey`: it says that the work is done.
   *
   * @throws What `work` throws, or what a read does.
   */
  async once<T>(key: string, work: () => Promise<T>, options: CallOptions = {}): Promise<Once<T>> {
    mustBeFunction("once()", "work", work);
    return await once(this.#held, key, work, checked("once()", options, CALL));
  }

  /**
   * A request that changes something at an upstream, at this path and query of it, encoded. It is sent once, without a
   * key of the library's own.
   *
   * @throws OutcomeUnknown without a whole answer; LockLost; Misuse.
   */
  async upstream(
    name: string,
    method: UpstreamMethod,
    path: string,
    options: UpstreamOptions = {},
  ): Promise<UpstreamAnswer> {
    return await sendUpstream(this.#held, name, method, path, options);
  }
}

/** Where a write goes: the resource is named by the caller, or is the only one. */
function target(held: Held, resource: string | undefined): string {
  const { resources } = held;
  if (resource === undefined) {
    if (resources.length === 1) return resources[0]!;
    throw new Misuse("the guard covers several resources: say which, with the option `resource`");
  }
  if (!resources.includes(resource)) throw new Misuse(`the guard does not cover ${JSON.stringify(resource)}`);
  return resource;
}
