// What `import "fencegate"` is in Node: the same library on Node's own platform.

import { Fencegate as Client } from "../client/fencegate.js";
import { nodePlatform } from "./platform.js";

export * from "../index.js";

/** A client of one or more gateways in front of the same ledger. */
export class Fencegate extends Client {
  /** @internal */
  static override readonly platform = nodePlatform;
}
