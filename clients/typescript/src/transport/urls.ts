// Which of the gateways is asked (CC3): the first that has not failed in the last half minute.

import { Misuse } from "../core/errors.js";

/** How long a gateway that failed is left alone, if there are others. */
const AVOIDED_MS = 30_000;

/** The base URLs of a client, and which of them failed lately. */
export class Urls {
  readonly #all: readonly string[];
  readonly #avoidedUntilMs: number[];

  constructor(urls: string | URL | readonly (string | URL)[]) {
    const texts = [urls].flat().flatMap((url) => String(url).split(","));
    if (texts.length > 64) throw new Misuse("a client has at most 64 base URLs");
    this.#all = texts.map((text) => baseUrl(text.trim()));
    this.#avoidedUntilMs = this.#all.map(() => -Infinity);
  }

  /** How many there are. */
  get count(): number {
    return this.#all.length;
  }

  /** The place of the gateway to ask now. If all have failed, it is the one that did so longest ago. */
  current(nowMs: number): number {
    const good = this.#avoidedUntilMs.findIndex((untilMs) => untilMs <= nowMs);
    return good >= 0 ? good : this.#avoidedUntilMs.indexOf(Math.min(...this.#avoidedUntilMs));
  }

  /** The base URL at a place, without a slash at its end. */
  at(place: number): string {
    return this.#all[place] ?? "";
  }

  /** It failed: the next one is asked. */
  avoid(place: number, nowMs: number): void {
    this.#avoidedUntilMs[place] = nowMs + AVOIDED_MS;
  }
}

function baseUrl(text: string): string {
  // What holds an @ may hold a password.
  const shown = text.includes("@") ? "it" : JSON.stringify(text);
  const wrong = (why: string): Misuse => new Misuse(`${shown} is no base URL: ${why}`);
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw wrong("it begins with http:// or https:// and a host");
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") throw wrong("it begins with http:// or https://");
  if (url.search !== "" || url.hash !== "") throw wrong("it has no query and no fragment");
  if (url.username !== "" || url.password !== "") throw wrong("credentials have an option of their own");
  return url.href.replace(/\/+$/, "");
}
