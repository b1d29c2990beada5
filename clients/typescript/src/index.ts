// Client of Fencegate: fenced locks, and writes that bounce once the lock is lost.

export { Fencegate, type LockedUpdateOptions, type ScopeBody, type ScopeOptions } from "./client/fencegate.js";
export type { ClientOptions } from "./client/options.js";
export type { CallOptions } from "./client/inner.js";
export type { KeepOptions, LockOptions } from "./acquire/wish.js";
export type { ErrorClass, LossReason } from "./core/classes.js";
export type { Duration } from "./core/durations.js";
export {
  Busy,
  Changed,
  CursorVoid,
  Denied,
  FenceError,
  GatewayFault,
  LockLost,
  Misuse,
  NotFound,
  Unavailable,
  WouldDeadlock,
  type BusyKind,
  type ErrorDetails,
} from "./core/errors.js";
export type { GuardState } from "./core/lease.js";
export type { EventsOptions, FeedEvent } from "./feed/events.js";
export type { Leader } from "./feed/observing.js";
export type { Guard } from "./guard/guard.js";
export type { Lock, RenewOptions } from "./guard/lock.js";
export type { ElectOptions } from "./holding/election.js";
export type { Fence, FenceOptions, Lent } from "./holding/fence.js";
export { Handoff, type AdoptOptions, type Successor } from "./holding/handoff.js";
export type { S3Access, S3Credentials } from "./holding/s3.js";
export type { Shard } from "./holding/shards.js";
export type { ClientEvent, Hook } from "./hooks.js";
export type { Admin, AuditOptions, BreakOptions, IntentOptions, RejectionOptions } from "./operators.js";
export type { GetOptions, ObjectHead, StoredObject, VersionOptions } from "./reading/object.js";
export type { OpenOptions } from "./reading/open.js";
export type { Listing, ListOptions, LocksOptions, PrefixOptions } from "./reading/pages.js";
export type { Range } from "./reading/reader.js";
export type { BodyInput, ByteStream, Replayable } from "./transport/body.js";
export type { Surroundings } from "./transport/time.js";
export type { Credential } from "./transport/credential.js";
export { VERSION } from "./version.js";
export type * from "./wire.js";
export type { Commit, CommitDeleteOptions, CommitPutOptions, Committed } from "./write/commit.js";
export type { ObjectOptions, PutOptions, WriteOptions } from "./write/options.js";
export type { Deleted, Written } from "./write/put.js";
export type { Receipt } from "./write/sending.js";
export { OutcomeUnknown, type ResolveOptions, type Settled } from "./write/unknown.js";
export { DELETE, KEEP, type Change, type Once, type UpdateOptions } from "./write/update.js";
export type { UpstreamAnswer, UpstreamMethod, UpstreamOptions } from "./write/upstream.js";
