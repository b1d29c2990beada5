// What the driver remembers between commands, and where it speaks.

import type { Fencegate, LockLost, OutcomeUnknown } from "../../index.js";
import { Fence } from "../../holding/fence.js";
import { Lock } from "../../guard/lock.js";
import type { Guard } from "../../guard/guard.js";
import { BodyFailure, lockTold, Mistake, type Told } from "./told.js";
import type { DriverTime } from "./time.js";

/** A body that goes on until it is told to end. What it is to do meanwhile, it does in its own scope. */
export class Body {
  readonly #deeds: (() => Promise<boolean>)[] = [];
  #wake = (): void => {};

  /** Tells it to do something; `true` ends it. */
  tell(deed: () => Promise<boolean>): void {
    this.#deeds.push(deed);
    this.#wake();
  }

  /** Does what it is told; ends early, with the signal's reason, if there is one that is aborted. */
  async live(signal?: AbortSignal): Promise<void> {
    signal?.addEventListener("abort", () => this.#wake(), { once: true });
    for (;;) {
      signal?.throwIfAborted();
      const deed = this.#deeds.shift();
      if (deed === undefined) await new Promise<void>((resolve) => (this.#wake = resolve));
      else if (await deed()) return;
    }
  }
}

/** Everything. */
export class State {
  readonly time: DriverTime;
  #client: Fencegate | undefined;
  readonly #guards = new Map<string, Guard>();
  /** Guards whose names others got: nobody drops them. */
  readonly #former: Guard[] = [];
  readonly #unknown = new Map<string, OutcomeUnknown>();
  readonly #bodies = new Map<string, Body>();
  readonly #running = new Map<number, AbortController>();

  constructor(time: DriverTime) {
    this.time = time;
  }

  say(line: Told): void {
    process.stdout.write(`${JSON.stringify(line)}\n`);
  }

  /** Says what happened without being asked for. */
  event(event: string, fields: Told): void {
    this.say({ event, at: this.time.now(), ...fields });
  }

  get client(): Fencegate {
    if (this.#client === undefined) throw new Mistake("there is no client yet");
    return this.#client;
  }

  set client(client: Fencegate) {
    if (this.#client !== undefined) throw new Mistake("there is a client already");
    this.#client = client;
  }

  /** A guard by the scenario's name for it. */
  guard(name: string): Guard {
    const guard = this.#guards.get(name);
    if (guard === undefined) throw new Mistake(`there is no guard ${name}`);
    return guard;
  }

  /** The same, of a lock. */
  lock(name: string): Lock {
    const guard = this.guard(name);
    if (!(guard instanceof Lock)) throw new Mistake(`${name} is a fence`);
    return guard;
  }

  /** The scenario's name for the lock on these resources. */
  named(resources: readonly string[]): string | undefined {
    const names = [...this.#guards].filter(([, guard]) => String(guard.resources) === String(resources));
    return names[0]?.[0];
  }

  /** Remembers a lock, tells when it is lost, and describes it. */
  keep(name: string, lock: Lock): Told {
    this.#remember(name, lock);
    // Who waits for the signal must not keep the guard from being collected.
    const { signal } = lock;
    const lost = (): void => this.event("lost", { lock: name, reason: (signal.reason as LockLost).reason });
    if (signal.aborted) lost();
    else signal.addEventListener("abort", lost);
    return lockTold(name, lock);
  }

  #remember(name: string, guard: Guard): void {
    const former = this.#guards.get(name);
    if (former !== undefined) this.#former.push(former);
    this.#guards.set(name, guard);
  }

  /** Forgets a guard. */
  forget(name: string): void {
    if (!this.#guards.delete(name)) throw new Mistake(`there is no guard ${name}`);
  }

  keepFence(name: string, fence: Fence): Told {
    this.#remember(name, fence);
    return { lock: name, id: fence.id, token: fence.token, resources: fence.resources };
  }

  /** Remembers an unknown outcome, and gives a handle to it. */
  keepUnknown(outcome: OutcomeUnknown): string {
    const handle = `U${this.#unknown.size + 1}`;
    this.#unknown.set(handle, outcome);
    return handle;
  }

  unknown(handle: string): OutcomeUnknown {
    const outcome = this.#unknown.get(handle);
    if (outcome === undefined) throw new Mistake(`there is no handle ${handle}`);
    return outcome;
  }

  /** A new body by the scenario's name for it. */
  newBody(name: string): Body {
    const body = new Body();
    this.#bodies.set(name, body);
    return body;
  }

  body(name: string): Body {
    const body = this.#bodies.get(name);
    if (body === undefined) throw new Mistake(`there is no body ${name}`);
    return body;
  }

  /** Ends a body. */
  leave(name: string, how: string): void {
    this.body(name).tell(async () => {
      if (how === "raise") throw new BodyFailure();
      return true;
    });
  }

  /** A command is under way; it is cancelled by this signal. */
  runs(id: number): AbortSignal {
    const controller = new AbortController();
    this.#running.set(id, controller);
    return controller.signal;
  }

  ran(id: number): void {
    this.#running.delete(id);
  }

  cancel(id: number): void {
    const controller = this.#running.get(id);
    if (controller === undefined) throw new Mistake("it is not under way");
    controller.abort();
  }
}
