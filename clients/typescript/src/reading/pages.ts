// Lists: page by page, or item by item as the pages come (CC47).

import { CALL, type CallOptions, type Inner } from "../client/inner.js";
import { GatewayFault } from "../core/errors.js";
import { prefixText, query } from "../core/names.js";
import { whole, type Names } from "../core/options.js";
import type { Page } from "../wire.js";

/** The most items of a page, and what is asked for by default: a gateway gives no more. */
const PAGE_SIZE_MAX = 1_000;

/** Options of a list. */
export interface ListOptions extends CallOptions {
  /** How many items to ask for at a time: 1 to 1,000. */
  readonly pageSize?: number | undefined;
}

/** Options of a list of names. */
export interface PrefixOptions extends ListOptions {
  /** Only names that begin with this, at most 1,024 bytes. */
  readonly prefix?: string | undefined;
}

/** Options of a list of locks. */
export interface LocksOptions extends PrefixOptions {
  /**
   * Also resources that are held no longer and that nobody took over: those of locks that have expired, whose holders may
   * come back and write, and of broken ones.
   */
  readonly alsoEnded?: boolean | undefined;
}

/** The names of options of lists. */
export const LIST_NAMES: Names<ListOptions> = { ...CALL, pageSize: "value" };
/** The names of options of lists of names. */
export const PREFIX_NAMES: Names<PrefixOptions> = { ...LIST_NAMES, prefix: "text" };
/** The names of options of lists of locks. */
export const LOCKS_NAMES: Names<LocksOptions> = { ...PREFIX_NAMES, alsoEnded: "flag" };

/** A list that is read as it is needed. Nothing is asked before the first item. */
export class Listing<T> implements AsyncIterable<T> {
  readonly #inner: Inner;
  readonly #call: string;
  readonly #path: string;
  readonly #parameters: Readonly<Record<string, string | undefined>>;
  readonly #options: PrefixOptions;
  readonly #limit: number;

  /** @internal */
  constructor(
    inner: Inner,
    call: string,
    path: string,
    options: PrefixOptions,
    parameters: Readonly<Record<string, string | undefined>> = {},
  ) {
    const { prefix, pageSize } = options;
    this.#inner = inner;
    this.#call = call;
    this.#path = path;
    this.#options = options;
    this.#parameters = { prefix: prefix === undefined ? undefined : prefixText(prefix), ...parameters };
    this.#limit = whole("pageSize", pageSize, PAGE_SIZE_MAX, 1, PAGE_SIZE_MAX);
  }

  /** One page: the first, or with the `next_cursor` of a page the one behind it. */
  page(cursor?: string): Promise<Page<T>> {
    const path = this.#path + query({ ...this.#parameters, limit: this.#limit, cursor });
    return this.#inner.json<Page<T>>(this.#call, { method: "GET", path }, { signal: this.#options.signal });
  }

  /** The items one after another; the next page is asked for when the one before is used up. */
  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    let cursor: string | undefined;
    do {
      const page: Page<T> = await this.page(cursor);
      yield* page.items;
      const next = page.next_cursor ?? undefined;
      if (next !== undefined && next === cursor) throw new GatewayFault("the list goes in circles");
      cursor = next;
    } while (cursor !== undefined);
  }

  /** All items at once. */
  async all(): Promise<T[]> {
    const items: T[] = [];
    for await (const item of this) items.push(item);
    return items;
  }
}
