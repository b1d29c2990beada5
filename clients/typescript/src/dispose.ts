/// <reference lib="esnext.disposable" preserve="true" />
// The symbol by which `await using` finds what to call, without a polyfill.

/** The platform's own symbol; where it has none, that of the registry, which compilers fall back to. */
export const asyncDispose: typeof Symbol.asyncDispose =
  Symbol.asyncDispose ?? (Symbol.for("Symbol.asyncDispose") as typeof Symbol.asyncDispose);
