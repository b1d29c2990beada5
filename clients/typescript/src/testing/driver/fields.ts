// The fields of a command. What is not known is a mistake of the scenario, and no finding about the client.

import { Mistake } from "./told.js";

/** The fields of a command, of which each is taken once. */
export class Fields {
  readonly #left: Map<string, unknown>;

  constructor(fields: unknown) {
    this.#left = new Map(Object.entries((fields ?? {}) as object));
  }

  #take(name: string): unknown {
    const value = this.#left.get(name);
    this.#left.delete(name);
    return value ?? undefined;
  }

  #typed<T>(name: string, type: string): T | undefined {
    const value = this.#take(name);
    if (value !== undefined && typeof value !== type) throw new Mistake(`${name} is no ${type}`);
    return value as T | undefined;
  }

  text(name: string): string {
    const text = this.optional(name);
    if (text === undefined) throw new Mistake(`there is no ${name}`);
    return text;
  }

  optional(name: string): string | undefined {
    return this.#typed<string>(name, "string");
  }

  number(name: string): number | undefined {
    return this.#typed<number>(name, "number");
  }

  flag(name: string): boolean | undefined {
    return this.#typed<boolean>(name, "boolean");
  }

  texts(name: string): string[] {
    return this.#typed<string[]>(name, "object") ?? [];
  }

  words(name: string): Record<string, string> | undefined {
    return this.#typed<Record<string, string>>(name, "object");
  }

  object(name: string): Fields {
    return new Fields(this.#take(name));
  }

  objects(name: string): Fields[] {
    return (this.#typed<unknown[]>(name, "object") ?? []).map((one) => new Fields(one));
  }

  /** There are no others. */
  end(): void {
    const [unknown] = this.#left.keys();
    if (unknown !== undefined) throw new Mistake(`the field ${unknown} is not known`);
  }
}
