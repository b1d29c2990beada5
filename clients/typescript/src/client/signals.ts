// Signals of abortion: several as one, and what waits until one of them comes.

/** A signal that follows several, and a function that lets go of them. For platforms without `AbortSignal.any`. */
export function anySignal(...signals: (AbortSignal | undefined)[]): { signal: AbortSignal; done: () => void } {
  const controller = new AbortController();
  const followed = signals.filter((signal) => signal !== undefined);
  const abort = (event: Event): void => controller.abort((event.target as AbortSignal).reason);
  for (const signal of followed) {
    if (signal.aborted) controller.abort(signal.reason);
    else signal.addEventListener("abort", abort, { once: true });
  }
  const done = (): void => followed.forEach((signal) => signal.removeEventListener("abort", abort));
  return { signal: controller.signal, done };
}

/** What a promise gives; or, if the signal comes first, its reason as an error. */
export function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise;
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason as Error);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}
