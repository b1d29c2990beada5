// What the machine does beside the loop: what the network brings, and work in other threads, such as digests of large
// bodies and files. It needs real time, so virtual time stands still meanwhile.

import { createHook } from "node:async_hooks";

/** What is no more than a turn of the loop. */
const TURNS = new Set(["Immediate", "Microtask", "PROMISE", "TickObject", "Timeout"]);
/** Work of other threads, which always ends by itself. */
const WORK = /^(FSREQ|FILEHANDLECLOSEREQ|HASHREQUEST|RANDOMBYTESREQUEST)/;

/** Counts what happens beside the loop of this process. */
export class Machine {
  readonly #others = new Set<number>();
  readonly #work = new Set<number>();
  #news = 0;

  constructor() {
    const over = (id: number): void => void this.#work.delete(id);
    createHook({
      init: (id, type) => {
        if (TURNS.has(type)) return;
        this.#others.add(id);
        if (!WORK.test(type)) return;
        this.#work.add(id);
        this.#news += 1;
      },
      before: (id) => {
        if (this.#others.has(id)) this.#news += 1;
      },
      after: over,
      destroy: (id) => {
        over(id);
        this.#others.delete(id);
      },
    }).enable();
  }

  /** How much has happened. */
  get news(): number {
    return this.#news;
  }

  /** Whether another thread works. */
  get isBusy(): boolean {
    return this.#work.size > 0;
  }
}
