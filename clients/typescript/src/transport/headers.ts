// The caller's own headers.

import { Misuse } from "../core/errors.js";

/** Names that the library sets itself, or that would break the connection. */
const OURS = new Set(
  (
    "accept-encoding authorization connection content-digest content-length content-type expect host idempotency-key " +
    "if-match if-none-match if-range last-event-id range repr-digest te traceparent transfer-encoding upgrade " +
    "user-agent x-fence-key-kept x-fence-seq x-fence-token x-if-resource-version x-lock-id x-request-id"
  ).split(" "),
);

/** The caller's own headers, with names in lower case. */
export function ownHeaders(
  given: Readonly<Record<string, string>>,
  allowed: ReadonlySet<string> = new Set(),
): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const [name, value] of Object.entries(given)) {
    const lower = name.toLowerCase();
    const shown = JSON.stringify(name);
    if (!/^[!#$%&'*+.^_`|~0-9a-z-]+$/.test(lower)) throw new Misuse(`${shown} is no name of a header`);
    if (OURS.has(lower) && !allowed.has(lower)) throw new Misuse(`the header ${shown} is set by the client itself`);
    if (!/^[\t -~\x80-\xff]*$/.test(String(value))) throw new Misuse(`the header ${shown} has a value that is none`);
    headers[lower] = String(value);
  }
  return headers;
}
