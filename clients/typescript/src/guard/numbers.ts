// The numbers of a guard's writes (CC23), and which of them overlapped.

/** Gives each write a rising number, and knows which writes are under way. */
export class Numbers {
  #last = 0;
  /** Numbers of writes of which a copy may still land, in rising order. */
  readonly #open = new Set<number>();
  /** Rises with each write that begins or ends. */
  #moment = 0;
  #underWay = 0;
  #lastEnd = 0;
  #waiting: (() => void)[] = [];

  /** The next number. */
  next(): number {
    this.#last += 1;
    this.#open.add(this.#last);
    return this.#last;
  }

  /** No copy of the write with this number will land any more, or it has landed. */
  settled(number: number): void {
    this.#open.delete(number);
  }

  /** Whether a write with a lower number is under way, or its outcome is unknown. */
  isEarlierOpen(number: number): boolean {
    for (const first of this.#open) return first < number;
    return false;
  }

  /** A write begins. */
  begin(): UnderWay {
    this.#moment += 1;
    this.#underWay += 1;
    const began = this.#moment;
    const hasOverlapped = this.#underWay > 1;
    let isOver = false;
    return {
      overlapped: () => hasOverlapped || this.#underWay > 1 || this.#lastEnd > began,
      end: () => {
        if (isOver) return;
        isOver = true;
        this.#moment += 1;
        this.#lastEnd = this.#moment;
        this.#underWay -= 1;
        if (this.#underWay === 0) this.#waiting.splice(0).forEach((wake) => wake());
      },
    };
  }

  /** Waits until no write is under way. */
  async allEnded(): Promise<void> {
    while (this.#underWay > 0) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }
}

/** One write, from its first attempt to its answer. */
export interface UnderWay {
  /** Whether another write of the guard was under way at some time since this one began. */
  readonly overlapped: () => boolean;
  /** It has ended; again is harmless. */
  readonly end: () => void;
}
