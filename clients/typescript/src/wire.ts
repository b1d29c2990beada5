// What gateways send, as they send it: members are named as in the API. Times are RFC 3339 text, and what ends in `_ms`
// is in milliseconds. A newer gateway may send more members, and other words.

/** A word of the API, or one of a newer gateway. */
export type Word<Known extends string> = Known | (string & {});

/** What S3 tools write with under a lock. Whoever has it writes under the lock's token: treat it as a secret. */
export interface S3Answer {
  readonly endpoint: string;
  readonly region: string;
  readonly access_key_id: string;
  readonly secret_access_key: string;
}

/** How a lock stands, as its holder sees it. */
export interface LockRecord {
  readonly id: string;
  readonly resources: readonly string[];
  readonly owner: string;
  readonly state: Word<"leased" | "breaking" | "draining" | "broken" | "expired" | "released">;
  /** Absent while effects of older tokens are under way. */
  readonly token?: string;
  /** `null`: infinite. */
  readonly ttl_ms: number | null;
  readonly expires_in_ms: number | null;
  readonly confirm_within_ms?: number | null;
  readonly acquired_at: string;
  /** The version of each resource, in the order of `resources`. */
  readonly versions: readonly number[];
  readonly metadata?: Readonly<Record<string, string>>;
  readonly principal?: string | null;
  readonly writers?: readonly string[];
  readonly hold_until?: string | null;
  readonly lapsed_ms?: number | null;
  readonly frozen?: string | null;
  readonly reason?: string | null;
  readonly ended?: Word<"superseded" | "released" | "broken" | "void"> | null;
  readonly ended_at?: string | null;
  /** Only in the answer that grants it, and only if one of its resources lies in a bucket. */
  readonly s3?: S3Answer | null;
}

/** A resource and its lock, as everybody may see them. */
export interface Resource {
  readonly resource: string;
  readonly state: LockRecord["state"];
  /** What the holder of the lock calls itself. */
  readonly owner: string;
  readonly principal?: string | null;
  readonly acquired_at: string;
  /** When it was released or broken, as `state` says. */
  readonly ended_at?: string | null;
  readonly age_ms: number;
  readonly renewed_ms_ago: number;
  readonly ttl_ms: number | null;
  readonly expires_in_ms: number | null;
  readonly breaks_in_ms?: number | null;
  /** The number of writes that took effect. */
  readonly version: number;
  readonly objects: number;
  readonly queue_length: number;
  /** The reason, if writers are stopped. */
  readonly frozen?: string | null;
  /** The reason, if not all of it can be deleted at once. */
  readonly protected?: string | null;
  readonly state_tag: string;
}

/** An object in a list. */
export interface ObjectEntry {
  readonly key: string;
  readonly version: number;
  readonly etag: string;
  readonly size: number;
  readonly sha256: string | null;
  readonly sha256_parts?: string | null;
  readonly content_type: string;
  readonly written_at: string;
}

/** What kind a write is. */
export type Kind = Word<"put" | "delete" | "delete_all" | "commit" | "forward">;

/** A write in the history of a resource. */
export interface Version {
  readonly version: number;
  readonly operation: string;
  readonly kind: Kind;
  readonly key?: string | null;
  readonly size?: number | null;
  readonly sha256?: string | null;
  readonly owner: string;
  readonly committed_at: string;
}

/** Who waits for a lock. */
export interface Waiter {
  readonly owner: string;
  readonly since: string;
  readonly position: number;
  /** Whether its call is under way. */
  readonly present: boolean;
}

/** What became of a write. */
export interface Operation {
  readonly operation: string;
  readonly outcome: Word<"applied" | "not_applied" | "unknown">;
  readonly kind?: Kind | null;
  readonly resource?: string | null;
  readonly resources?: readonly CommittedResource[] | null;
  readonly key?: string | null;
  readonly version?: number | null;
  readonly size?: number | null;
  readonly sha256?: string | null;
  readonly owner?: string | null;
  readonly committed_at?: string | null;
  /** Of a request to an upstream: what the gateways know of it. */
  readonly forward?: ForwardRecord | null;
}

/** What gateways know of a request to an upstream. */
export interface ForwardRecord {
  readonly upstream: string;
  readonly state: Word<"open" | "answered" | "unsent" | "resolved" | "elapsed">;
  readonly status?: number | null;
  readonly opened_at: string;
  readonly closed_at?: string | null;
  readonly reason?: string | null;
}

/** A resource of a commit, and the version that it became. */
export interface CommittedResource {
  readonly resource: string;
  readonly version?: number | null;
}

/** What one operation of a commit did. */
export interface CommitResult {
  readonly op: Word<"put" | "delete">;
  readonly resource: string;
  readonly key: string;
  readonly version?: number | null;
  readonly etag?: string | null;
  readonly size?: number | null;
  readonly sha256?: string | null;
  readonly created?: boolean | null;
}

/** A committed write, in the feed. */
export interface WriteEvent {
  /** The place of the event in the feed. */
  readonly event: string;
  readonly resource: string;
  readonly version: number;
  readonly operation: string;
  readonly kind: Kind;
  readonly key?: string | null;
  readonly size?: number | null;
  readonly owner: string;
  readonly committed_at: string;
}

/** What happens to a lock. */
export interface LockEvent {
  readonly state: Word<"leased" | "breaking" | "expired" | "draining" | "superseded" | "released" | "broken" | "void">;
  readonly due?: string | null;
  readonly expires_in_ms?: number | null;
  readonly reason?: string | null;
  readonly superseded_by?: Word<"grant" | "transfer" | "fence"> | null;
}

/** What a gateway says of itself. */
export interface Status {
  readonly version: string;
  readonly api: number;
  readonly gateway: string;
  readonly started_at: string;
  readonly ledger: Word<"postgres" | "sqlite" | "memory">;
  readonly mint: Word<"etcd" | "embedded" | "memory">;
  readonly blobs: Word<"folder" | "s3" | "azure" | "none" | "memory">;
  readonly requires_lock_id: boolean;
  readonly draining: boolean;
  readonly epoch?: number | null;
  readonly generation?: number | null;
  readonly events?: number | null;
  readonly answer_within_ms: number;
  readonly keys_kept_ms: number;
  readonly own_time_behind_ms?: number | null;
  readonly counts: {
    readonly waiters: number;
    readonly watchers: number;
    readonly event_readers: number;
    readonly forwards: number;
  };
  readonly s3?: string | null;
  readonly settings?: string | null;
}

/** Whether requests should be sent to a gateway, and the state of its parts. */
export interface Readiness {
  readonly ready: boolean;
  readonly parts: readonly {
    readonly part: Word<"gateway" | "ledger" | "mint" | "blobs" | "settings" | "writes" | "grants">;
    readonly ready: boolean;
    readonly detail?: string | null;
  }[];
}

/** What was done to locks and resources, by whom and why. */
export interface AuditEntry {
  readonly at: string;
  readonly action: Word<
    | "grant"
    | "transfer"
    | "break"
    | "broken"
    | "freeze"
    | "unfreeze"
    | "protect"
    | "unprotect"
    | "fence"
    | "resolve"
    | "refence"
    | "epoch"
    | "adopt"
    | "agree"
    | "access"
    | "denied"
    | "auth-failed"
    | "fork"
  >;
  readonly resource?: string | null;
  readonly owner?: string | null;
  readonly previous_owner?: string | null;
  /** How the grant before it on the resource ended. */
  readonly previous_end?: Word<"released" | "broken" | "transferred" | "fenced" | "lapsed" | "void"> | null;
  readonly previous_ended_at?: string | null;
  readonly principal?: string | null;
  readonly credential?: string | null;
  readonly peer?: string | null;
  readonly reason?: string | null;
  readonly request_id?: string | null;
  readonly gateway_request_id?: string | null;
}

/** A write that was refused. */
export interface RejectionEntry {
  readonly at: string;
  readonly resource: string;
  readonly key?: string | null;
  /** The code of the refusal. */
  readonly reason: string;
  readonly owner?: string | null;
  readonly presented_token?: string | null;
  readonly grants_behind?: number | null;
  readonly superseded_ms?: number | null;
  readonly request_id: string;
  readonly times: number;
}

/** What was forwarded to an upstream and has no known end. */
export interface IntentEntry {
  readonly operation: string;
  readonly resource: string;
  readonly owner: string;
  readonly upstream: string;
  readonly method: string;
  readonly path: string;
  readonly opened_at: string;
  readonly age_ms: number;
  readonly closes_at?: string | null;
  readonly gateway: string;
  readonly in_flight?: boolean | null;
}

/** An upstream of which intents may have been lost when the ledger was re-fenced. */
export interface DoubtEntry {
  readonly upstream: string;
  readonly resource_prefix: string;
  readonly since: string;
  readonly ends_at?: string | null;
}

/** A page of a list. */
export interface Page<T> {
  /** There may be none although more pages follow. */
  readonly items: readonly T[];
  /** For the next page; absent on the last. */
  readonly next_cursor?: string | null;
}

/** The answer to a put. */
export interface WrittenAnswer {
  readonly resource: string;
  readonly key: string;
  readonly version: number;
  readonly size: number;
  readonly sha256: string | null;
  readonly operation: string;
}

/** The answer to a commit. */
export interface CommittedAnswer {
  readonly operation: string;
  readonly resources: readonly CommittedResource[];
  readonly results: readonly CommitResult[];
}

/** The answer to a renewal of many locks. */
export interface RenewManyAnswer {
  readonly items: readonly {
    readonly id: string;
    readonly lock?: LockRecord | null;
    readonly code?: string | null;
    /** Why, if an operator broke it or is about to. */
    readonly reason?: string | null;
  }[];
}

/** The answer to a fence. */
export interface FenceAnswer {
  readonly resource: string;
  readonly token: string;
  readonly version: number;
  readonly s3?: S3Answer | null;
}
