// Options as callers give them, also callers without a type checker: a name that is none, or a value of another kind, is
// refused before it does harm.

import { Misuse } from "./errors.js";

/** What is checked of an option here. The values of the others, such as durations, are checked by whoever takes them. */
type Kind<V> = [V] extends [boolean]
  ? "flag"
  : [V] extends [AbortSignal]
    ? "signal"
    : [V] extends [(...args: never[]) => unknown]
      ? "function"
      : [V] extends [string]
        ? string extends V
          ? "text"
          : Readonly<Record<V, true>>
        : "value";

/** The names of the options of a call, each with its kind, as the type of the options has them. */
export type Names<T> = { readonly [Name in keyof T]-?: Kind<NonNullable<T[Name]>> };

/**
 * The options of a call, if all of them are some. One that is `undefined` counts as not given.
 *
 * @throws Misuse: it names the option, and the right one if that is near.
 */
export function checked<T extends object>(call: string, given: T, known: Names<T>): T {
  if (typeof given !== "object" || given === null) throw new Misuse(`${call} takes its options as an object`);
  for (const [name, value] of Object.entries(given)) {
    if (!Object.hasOwn(known, name)) throw new Misuse(`${call} has no option ${name}${hint(name, Object.keys(known))}`);
    if (value !== undefined) checkKind(`${call}: the option ${name}`, value, known[name as keyof T]);
  }
  return given;
}

function checkKind(what: string, value: unknown, kind: string | object): void {
  const wants = (wanted: string): Misuse => new Misuse(`${what} is ${wanted}, not ${shown(value)}`);
  if (typeof kind === "object") {
    const words = Object.keys(kind);
    if (!words.includes(value as string)) throw wants(words.join(" or "));
  } else if (kind === "flag") {
    if (typeof value !== "boolean") throw wants("true or false");
  } else if (kind === "text") {
    if (typeof value !== "string") throw wants("text");
  } else if (kind === "function") {
    if (typeof value !== "function") throw wants("a function");
  } else if (kind === "signal") {
    // Not by `instanceof`: the signal may be of another realm.
    const { aborted, addEventListener } = Object(value) as Partial<AbortSignal>;
    if (typeof aborted !== "boolean" || typeof addEventListener !== "function") throw wants("an AbortSignal");
  }
}

/**
 * A whole number that an option says, or what stands for it.
 *
 * @throws Misuse
 */
export function whole(
  name: string,
  given: number | undefined,
  usual: number,
  least: number,
  most = Number.MAX_SAFE_INTEGER,
): number {
  const found = given ?? usual;
  if (Number.isSafeInteger(found) && found >= least && found <= most) return found;
  const bounds = most < Number.MAX_SAFE_INTEGER ? `${least} to ${most}` : `${least}`;
  throw new Misuse(`${name} is a whole number from ${bounds}, not ${shown(found)}`);
}

/**
 * That something is a function.
 *
 * @throws Misuse
 */
export function mustBeFunction(call: string, name: string, given: unknown): void {
  if (typeof given !== "function") throw new Misuse(`${call}: ${name} is a function, not ${shown(given)}`);
}

/**
 * The options of a call, which may be left out, and the body behind them.
 *
 * @throws Misuse
 */
export function withBody<T extends object, Body extends (...args: never[]) => unknown>(
  call: string,
  options: T | Body,
  body: Body | undefined,
): [options: T, body: Body] {
  const isLeftOut = typeof options === "function" && body === undefined;
  const [given, run] = isLeftOut ? [{} as T, options] : [options as T, body];
  if (typeof run !== "function" || typeof given === "function") {
    throw new Misuse(`${call} takes a name, then options, and as its last argument the function to run`);
  }
  return [given, run];
}

/** A value as a message shows it. */
export function shown(value: unknown): string {
  return typeof value === "string" ? JSON.stringify(value.slice(0, 100)) : String(value).slice(0, 100);
}

function hint(name: string, known: readonly string[]): string {
  const plain = (text: string): string => text.replace(/[-_]/g, "").toLowerCase();
  const near = known
    .map((other) => ({ other, steps: distance(plain(name), plain(other)) }))
    .filter(({ other, steps }) => steps <= Math.ceil(other.length / 3))
    .sort((one, two) => one.steps - two.steps)[0];
  return near === undefined ? `; there are ${known.join(", ")}` : `: is it ${near.other}?`;
}

/** How many letters are to be put in, left out or replaced, to make one word of the other. */
function distance(one: string, other: string): number {
  let above = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (const [row, letter] of [...one].entries()) {
    const line = [row + 1];
    for (let at = 0; at < other.length; at += 1) {
      const replaced = above[at]! + (letter === other[at] ? 0 : 1);
      line.push(Math.min(replaced, above[at + 1]! + 1, line[at]! + 1));
    }
    above = line;
  }
  return above[other.length]!;
}
