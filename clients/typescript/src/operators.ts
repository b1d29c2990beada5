// What operators do (CC57): break a lock, stop all writers, look at what was done and refused, and take it upon
// themselves that something is over.

import { CALL, type CallOptions, type Inner } from "./client/inner.js";
import { durationMs, sent, type Duration } from "./core/durations.js";
import { query, reasonText, resourceName, resourcePath, segment } from "./core/names.js";
import { checked, type Names } from "./core/options.js";
import { LIST_NAMES, Listing, type ListOptions } from "./reading/pages.js";
import { jsonRequest } from "./transport/request.js";
import type { AuditEntry, DoubtEntry, IntentEntry, Page, RejectionEntry, Resource } from "./wire.js";

const DAY_MS = 86_400_000;

/** Options of a break. */
export interface BreakOptions extends CallOptions {
  /** Gives the holder up to so long to end by itself: at most 24 h. Done again, a break can only come sooner. */
  readonly after?: Duration | undefined;
}

/** Which entries of the audit to read. */
export interface AuditOptions extends ListOptions {
  readonly resource?: string | undefined;
  readonly action?: AuditEntry["action"] | undefined;
}

/** Which refused writes to read. */
export interface RejectionOptions extends ListOptions {
  readonly resource?: string | undefined;
  /** The code of the refusal. */
  readonly code?: string | undefined;
}

/** Which forwarded requests to read. */
export interface IntentOptions extends ListOptions {
  readonly resource?: string | undefined;
  readonly upstream?: string | undefined;
}

const BREAK_NAMES: Names<BreakOptions> = { ...CALL, after: "value" };
const AUDIT_NAMES: Names<AuditOptions> = { ...LIST_NAMES, resource: "text", action: "text" };
const REJECTION_NAMES: Names<RejectionOptions> = { ...LIST_NAMES, resource: "text", code: "text" };
const INTENT_NAMES: Names<IntentOptions> = { ...LIST_NAMES, resource: "text", upstream: "text" };

/**
 * The calls of operators. Each act wants a reason, 1 to 1,024 bytes, which the audit keeps for ever, and which those whom
 * it is about are told.
 */
export class Admin {
  readonly #inner: Inner;

  /** @internal */
  constructor(inner: Inner) {
    this.#inner = inner;
  }

  /**
   * Breaks the lock on a resource: fences its holder off, at once, or with `after` at the latest after some time.
   *
   * @throws NotFound: it was never locked; Misuse: a name or reason is none; Unavailable.
   */
  async break(resource: string, reason: string, options: BreakOptions = {}): Promise<Resource> {
    checked("break()", options, BREAK_NAMES);
    const after = options.after === undefined ? undefined : sent(durationMs(options.after, "after", 0, DAY_MS));
    return this.#act(resource, "break", reason, { after }, options.signal);
  }

  /** Stops all writers of a resource, and all grants of its lock, until it is unfrozen. Its holder keeps the lock. */
  async freeze(resource: string, reason: string, options: CallOptions = {}): Promise<Resource> {
    return this.#act(resource, "freeze", reason, {}, checked("freeze()", options, CALL).signal);
  }

  /** Lets writers and grants go on. On what is not frozen it changes nothing. */
  async unfreeze(resource: string, reason: string, options: CallOptions = {}): Promise<Resource> {
    return this.#act(resource, "unfreeze", reason, {}, checked("unfreeze()", options, CALL).signal);
  }

  /** Forbids deleting all of a resource at once; its objects may still be written and deleted one by one. */
  async protect(resource: string, reason: string, options: CallOptions = {}): Promise<Resource> {
    return this.#act(resource, "protect", reason, {}, checked("protect()", options, CALL).signal);
  }

  /** Allows it again. On what is not protected it changes nothing. */
  async unprotect(resource: string, reason: string, options: CallOptions = {}): Promise<Resource> {
    return this.#act(resource, "unprotect", reason, {}, checked("unprotect()", options, CALL).signal);
  }

  /** What was done to locks and resources, by whom and why, newest first: every grant, and all acts of operators. */
  audit(options: AuditOptions = {}): Listing<AuditEntry> {
    const { resource, action } = checked("audit()", options, AUDIT_NAMES);
    return new Listing(this.#inner, "audit", "/audit", options, { resource: named(resource), action });
  }

  /** Writes that were refused, newest first: where, why, and how late they were. */
  rejections(options: RejectionOptions = {}): Listing<RejectionEntry> {
    const { resource, code } = checked("rejections()", options, REJECTION_NAMES);
    return new Listing(this.#inner, "rejections", "/rejections", options, { resource: named(resource), reason: code });
  }

  /** What was forwarded to upstreams and has no known end, oldest first. It delays the next lock on its resource. */
  intents(options: IntentOptions = {}): Listing<IntentEntry> {
    const { resource, upstream } = checked("intents()", options, INTENT_NAMES);
    return new Listing(this.#inner, "intents", "/admin/intents", options, { upstream, resource: named(resource) });
  }

  /** Upstreams of which intents may have been lost when the ledger was re-fenced: see `resolveDoubts`. */
  async doubts(options: CallOptions = {}): Promise<readonly DoubtEntry[]> {
    const request = { method: "GET", path: `/admin/intents${query({ limit: 1 })}` } as const;
    checked("doubts()", options, CALL);
    const list = await this.#inner.json<Page<IntentEntry> & { doubts: DoubtEntry[] }>("doubts", request, options);
    return list.doubts;
  }

  /** Takes it upon you that what was forwarded has no effect any more, whatever came of it. Again is harmless. */
  async resolve(operation: string, reason: string, options: CallOptions = {}): Promise<void> {
    checked("resolve()", options, CALL);
    const request = jsonRequest(`/admin/intents/${segment(operation)}/resolve`, { reason: reasonText(reason) });
    const answer = await this.#inner.call("resolve", request, options);
    answer.discard();
  }

  /**
   * Takes it upon you that nothing that was forwarded to this upstream before a re-fence has an effect any more. Gives
   * the number of doubts that there were. Again is harmless.
   */
  async resolveDoubts(upstream: string, reason: string, options: CallOptions = {}): Promise<number> {
    checked("resolveDoubts()", options, CALL);
    const request = jsonRequest("/admin/intents/resolve", { upstream, reason: reasonText(reason) });
    return (await this.#inner.json<{ resolved: number }>("resolve", request, options)).resolved;
  }

  async #act(
    resource: string,
    act: string,
    reason: string,
    more: Record<string, unknown>,
    signal: AbortSignal | undefined,
  ): Promise<Resource> {
    const path = `${resourcePath(resourceName(resource))}/${act}`;
    const request = jsonRequest(path, { ...more, reason: reasonText(reason) });
    return this.#inner.json<Resource>(act, request, { signal });
  }
}

function named(resource: string | undefined): string | undefined {
  return resource === undefined ? undefined : resourceName(resource);
}
