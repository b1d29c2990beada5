// The client: whom to ask, as whom, and for how long. It reads, watches and administers; writes exist on guards only.

import { acquire } from "../acquire/acquire.js";
import { KEEP_NAMES, LOCK_NAMES, wishOf, type KeepOptions, type LockOptions } from "../acquire/wish.js";
import { durationMs, type Duration } from "../core/durations.js";
import { Unavailable } from "../core/errors.js";
import { resourceName, resourcePath } from "../core/names.js";
import { checked, mustBeFunction, withBody, type Names } from "../core/options.js";
import { events, EVENTS_NAMES, type EventsOptions, type FeedEvent } from "../feed/events.js";
import { observe, type Leader } from "../feed/observing.js";
import type { Lock } from "../guard/lock.js";
import { elect, type ElectOptions } from "../holding/election.js";
import { lentGuard, setFence, type Fence, type FenceOptions, type Lent } from "../holding/fence.js";
import { adopt, Handoff, type AdoptOptions } from "../holding/handoff.js";
import { askForS3, type S3Access } from "../holding/s3.js";
import { checkShards, shards, tryAcquire, type Shard } from "../holding/shards.js";
import { Admin } from "../operators.js";
import {
  GET_NAMES,
  getObject,
  headObject,
  VERSION_NAMES,
  type GetOptions,
  type ObjectHead,
  type StoredObject,
  type VersionOptions,
} from "../reading/object.js";
import { OPEN_NAMES, openResponse, type OpenOptions } from "../reading/open.js";
import { operationOfId, operationOfKey } from "../reading/operations.js";
import {
  LIST_NAMES,
  LOCKS_NAMES,
  Listing,
  PREFIX_NAMES,
  type ListOptions,
  type LocksOptions,
  type PrefixOptions,
} from "../reading/pages.js";
import { readiness } from "../reading/readiness.js";
import { runScope } from "../scope.js";
import type { ObjectEntry, Operation, Readiness, Resource, Status, Version, Waiter } from "../wire.js";
import type { Written } from "../write/put.js";
import { present, UPDATE_NAMES, type Change, type UpdateOptions } from "../write/update.js";
import { CALL, type CallOptions, type Inner } from "./inner.js";
import { innerOf, type ClientOptions } from "./options.js";
import { webPlatform, type Platform } from "./platform.js";

/** Options of a scope. */
export interface ScopeOptions extends LockOptions {
  /** What the scope gives if the lock was lost, but its body ended well; by default, `raise`, a `LockLost`. */
  readonly onLost?: "raise" | "ignore" | undefined;
}

const SCOPE_NAMES: Names<ScopeOptions> = { ...LOCK_NAMES, onLost: { raise: true, ignore: true } };

/** Options of an update under a lock of its own. */
export type LockedUpdateOptions = LockOptions & Omit<UpdateOptions, "resource">;

const { resource: _, ...OF_UPDATES } = UPDATE_NAMES;
const LOCKED_UPDATE_NAMES: Names<LockedUpdateOptions> = { ...LOCK_NAMES, ...OF_UPDATES };

/** A body under a lock. */
export type ScopeBody<T> = (lock: Lock) => T | Promise<T>;

/** @internal What the other modules of the package need of a client. Assigned by the class, which alone can look inside. */
export let innerOfClient: (client: Fencegate) => Inner;

/** A client of one or more gateways in front of the same ledger. */
export class Fencegate {
  /** @internal */
  static readonly platform: Platform = webPlatform;
  readonly #inner: Inner;

  static {
    innerOfClient = (client) => client.#inner;
  }

  /** The calls of operators. */
  readonly admin: Admin;

  /**
   * A client of the gateway at this base URL; of several, those behind the first are asked if it fails. Nothing is sent.
   *
   * @throws Misuse: an option makes no sense.
   */
  constructor(urls: string | URL | readonly (string | URL)[], options: ClientOptions = {}) {
    this.#inner = innerOf(urls, options, new.target.platform);
    this.admin = new Admin(this.#inner);
  }

  /** What this client calls itself, unless a lock says otherwise. */
  get owner(): string {
    return this.#inner.owner;
  }

  /**
   * Takes the lock on a resource, or on up to 32 of them, all or none; runs the body; gives the lock back. When the lock
   * is lost, its signal is aborted: the body should end then. The option `signal` ends the wait for the lock, not the body.
   *
   * @throws The body's own error; or, if the lock was lost meanwhile, LockLost; or what `acquire` throws.
   */
  lock<T>(names: string | readonly string[], body: ScopeBody<T>): Promise<T>;
  lock<T>(names: string | readonly string[], options: ScopeOptions, body: ScopeBody<T>): Promise<T>;
  async lock<T>(
    names: string | readonly string[],
    options: ScopeOptions | ScopeBody<T>,
    body?: ScopeBody<T>,
  ): Promise<T> {
    const [given, run] = withBody<ScopeOptions, ScopeBody<T>>("lock()", options, body);
    const { onLost = "raise", ...terms } = checked("lock()", given, SCOPE_NAMES);
    return runScope(await this.acquire(names, terms), { onLost, signal: terms.signal }, run);
  }

  /**
   * Takes the lock, for `await using`, or to be given back by `release()` in a `finally`. Whoever forgets it loses it:
   * a guard that is collected is released.
   *
   * @throws Busy: somebody else holds it, or the wait is over. Unavailable: nobody answered until the deadline; then
   * nothing is held. Misuse: a name or an option is none. WouldDeadlock: the scope that asks holds it already.
   */
  async acquire(names: string | readonly string[], options: LockOptions = {}): Promise<Lock> {
    return acquire(this.#inner, wishOf(this.#inner, names, checked("acquire()", options, LOCK_NAMES)));
  }

  /** Takes the lock, or gives `null` if somebody else holds it. Otherwise as `acquire`. */
  async tryLock(names: string | readonly string[], options: KeepOptions = {}): Promise<Lock | null> {
    return (await tryAcquire(this.#inner, names, checked("tryLock()", options, KEEP_NAMES))) ?? null;
  }

  /**
   * Raises a fence for the holder of a lock that is kept elsewhere: in Redis, Consul, Kubernetes, a database.
   *
   * @throws LockLost with `order_stale`: a later holder was here. Busy: a live lock of the gateway is in the way.
   */
  async fence(resource: string, options: FenceOptions = {}): Promise<Fence> {
    return setFence(this.#inner, resource, options);
  }

  /**
   * Takes up a lock that was handed over, as text or as `Handoff`: renews it at once, and keeps it renewed.
   *
   * @throws LockLost: it is over. NotFound: there is no such lock, or it is another principal's. Misuse: it is none.
   */
  async adopt(handoff: string | Handoff, options: AdoptOptions = {}): Promise<Lock> {
    return adopt(this.#inner, typeof handoff === "string" ? Handoff.fromText(handoff) : handoff, options);
  }

  /**
   * A guard for a token that another process holds and renews. Its writes have no numbers; the holder takes the lock
   * with `numbers: false`.
   *
   * @throws Misuse: a name, the token or the id is none.
   */
  lent(resources: string | readonly string[], lent: Lent): Fence {
    return lentGuard(this.#inner, resources, lent);
  }

  /**
   * Waits for the leadership, for ever, and runs `work`. When it is lost, the lock's signal tells the work to end, which
   * is waited for; then it stands in line again. To return, or to fail, is to resign.
   *
   * @throws What `work` throws; with `rejoin: false` also LockLost; or what an acquire throws.
   */
  elect<T>(name: string, work: ScopeBody<T>): Promise<T>;
  elect<T>(name: string, options: ElectOptions, work: ScopeBody<T>): Promise<T>;
  async elect<T>(name: string, options: ElectOptions | ScopeBody<T>, work?: ScopeBody<T>): Promise<T> {
    const [given, run] = withBody<ElectOptions, ScopeBody<T>>("elect()", options, work);
    return elect(this.#inner, name, given, run);
  }

  /** Who holds the lock on a resource: at once, and again whenever that changes. `undefined`: nobody ever did. */
  observe(resource: string, options: CallOptions = {}): AsyncGenerator<Leader | undefined, void, undefined> {
    return observe(this.#inner, resourcePath(resourceName(resource)), checked("observe()", options, CALL));
  }

  /**
   * The shards of a name that are free, in random order, each with its lock, which whoever gets it gives back. Shard 7
   * of 16 is the resource `name@07.16`.
   *
   * @throws Misuse: the name is none, or there are not 1 to 10,000 shards.
   */
  shards(name: string, count: number, options: KeepOptions = {}): AsyncGenerator<Shard, void, undefined> {
    checkShards(name, count);
    return shards(this.#inner, name, count, checked("shards()", options, KEEP_NAMES));
  }

  /** Takes the lock on the resource, updates one object as a guard's `update` does, and gives the lock back. */
  async update(
    resource: string,
    key: string,
    change: (old: StoredObject | undefined) => Change | Promise<Change>,
    options: LockedUpdateOptions = {},
  ): Promise<Written | undefined> {
    mustBeFunction("update()", "change", change);
    const { contentType, within, ...terms } = checked("update()", options, LOCKED_UPDATE_NAMES);
    const { signal } = terms;
    return this.lock(resource, terms, (lock) => lock.update(key, change, { contentType, within, signal }));
  }

  /**
   * Reads an object, whole: up to 16 MiB, or to the option `limit`.
   *
   * @throws NotFound; Misuse: a name is none, or the object is too large; GatewayFault: the bytes are not the gateway's.
   */
  async get(resource: string, key: string, options: GetOptions = {}): Promise<StoredObject> {
    return getObject(this.#inner, resource, key, checked("get()", options, GET_NAMES));
  }

  /** As `get`, but `undefined` for an object that is not there. */
  async getIfPresent(resource: string, key: string, options: GetOptions = {}): Promise<StoredObject | undefined> {
    return present(this.get(resource, key, options));
  }

  /**
   * Reads an object of any size as a `Response`. A connection that breaks is made again, up to five times, and the body
   * goes on where it was. Its length and SHA-256 are checked: bytes are good only once the body has ended well.
   *
   * @throws As `get`; the body fails as Changed if it broke off and the object is another by then.
   */
  async open(resource: string, key: string, options: OpenOptions = {}): Promise<Response> {
    return openResponse(this.#inner, resource, key, checked("open()", options, OPEN_NAMES));
  }

  /** Looks at an object without its bytes. */
  async head(resource: string, key: string, options: VersionOptions = {}): Promise<ObjectHead> {
    return headObject(this.#inner, resource, key, checked("head()", options, VERSION_NAMES));
  }

  /** The objects of a resource, in byte order of their keys. */
  list(resource: string, options: PrefixOptions = {}): Listing<ObjectEntry> {
    checked("list()", options, PREFIX_NAMES);
    return new Listing(this.#inner, "list", `${resourcePath(resourceName(resource))}/objects`, options);
  }

  /** The history of a resource, newest first: every write that took effect. */
  versions(resource: string, options: PrefixOptions = {}): Listing<Version> {
    checked("versions()", options, PREFIX_NAMES);
    return new Listing(this.#inner, "versions", `${resourcePath(resourceName(resource))}/versions`, options);
  }

  /** A resource and its lock. It is there once it was locked for the first time. */
  async resource(resource: string, options: CallOptions = {}): Promise<Resource> {
    const request = { method: "GET", path: resourcePath(resourceName(resource)) } as const;
    return this.#inner.json("resource", request, checked("resource()", options, CALL));
  }

  /** All resources that were ever locked, in byte order of their names. */
  resources(options: PrefixOptions = {}): Listing<Resource> {
    checked("resources()", options, PREFIX_NAMES);
    return new Listing(this.#inner, "resources", "/resources", options);
  }

  /** All resources whose locks keep others out: held, to be broken soon, or draining. */
  locks(options: LocksOptions = {}): Listing<Resource> {
    const { alsoEnded } = checked("locks()", options, LOCKS_NAMES);
    return new Listing(this.#inner, "locks", "/locks", options, { also_ended: alsoEnded ? "true" : undefined });
  }

  /** Who waits in line for the lock on a resource, first come first. */
  waiters(resource: string, options: ListOptions = {}): Listing<Waiter> {
    checked("waiters()", options, LIST_NAMES);
    return new Listing(this.#inner, "waiters", `${resourcePath(resourceName(resource))}/waiters`, options);
  }

  /**
   * Each committed write of all resources, once, and those of one resource in the order of their versions. It goes on
   * for ever, across broken connections.
   *
   * @throws CursorVoid: the place is void; Misuse: the cursor is none; Denied.
   */
  events(options: EventsOptions = {}): AsyncGenerator<FeedEvent, void, undefined> {
    return events(this.#inner, checked("events()", options, EVENTS_NAMES));
  }

  /**
   * What became of a write, by the id of its operation. `undefined` decides nothing: it may still be under way, or it
   * was refused.
   */
  async operation(id: string, options: CallOptions = {}): Promise<Operation | undefined> {
    return operationOfId(this.#inner, id, checked("operation()", options, CALL));
  }

  /**
   * The write on this resource that took effect under this idempotency key. `undefined` decides nothing as long as one
   * may be under way.
   */
  async operationByKey(resource: string, key: string, options: CallOptions = {}): Promise<Operation | undefined> {
    return operationOfKey(this.#inner, resourceName(resource), key, checked("operationByKey()", options, CALL));
  }

  /**
   * What S3 tools write with under a lock, by its id: always the same key, as long as the lock lasts. There is no key for
   * whoever has a resource *now*: it would give a late writer the token of its successor.
   *
   * @throws LockLost: it has ended. NotFound: there is no such lock, or none of its resources lies in a bucket.
   */
  async s3Access(lockId: string, options: CallOptions = {}): Promise<S3Access> {
    return askForS3(this.#inner, lockId, checked("s3Access()", options, CALL));
  }

  /** What a gateway says of itself: its version, what it stands on, and how long its answers may take. */
  async status(options: CallOptions = {}): Promise<Status> {
    return this.#inner.json("status", { method: "GET", path: "/status" }, checked("status()", options, CALL));
  }

  /** Whether requests should be sent to a gateway, and the state of its parts. One attempt. */
  async ready(options: CallOptions = {}): Promise<Readiness> {
    return readiness(this.#inner, checked("ready()", options, CALL));
  }

  /**
   * Ends all guards, with the reason `closed`, gives their locks back, and waits for that up to so long, by default 5 s.
   * What is not answered by then is left: those locks run out by themselves.
   */
  async close(within: Duration = "5s"): Promise<void> {
    const withinMs = durationMs(within, "within");
    this.#inner.closing.abort(new Unavailable("the client was closed"));
    this.#inner.guards.close();
    await this.#inner.time.within(withinMs, this.#inner.backgroundEnds());
    this.#inner.closed.abort(new Unavailable("the client was closed"));
    this.#inner.transport.closeIdle();
  }
}
