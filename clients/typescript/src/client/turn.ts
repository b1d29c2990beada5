// One at a time: whoever has the turn gives it back, and the next in line gets it.

/** A turn that one has at a time. */
export class Turn {
  #isTaken = false;
  readonly #waiting: (() => void)[] = [];

  /** Takes it, if nobody has it. */
  tryTake(): boolean {
    if (this.#isTaken) return false;
    this.#isTaken = true;
    return true;
  }

  /** Waits in line for it. Whoever has it must give it back. */
  async take(): Promise<void> {
    if (!this.tryTake()) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  /** Gives it back. */
  give(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#isTaken = false;
    else next();
  }

  /** Does something with it. */
  async with<T>(work: () => Promise<T>): Promise<T> {
    await this.take();
    try {
      return await work();
    } finally {
      this.give();
    }
  }
}
