// The types of answers, written by hand, beside those that are generated from openapi.yaml. That this file compiles is
// the test: they have the same members, the same ones may be absent, and what the gateway sends fits.

import type * as wire from "../../src/wire.js";
import type { components } from "../generated/openapi.js";

type Schemas = components["schemas"];

type OptionalKeys<T> = { [K in keyof T]-?: object extends Pick<T, K> ? K : never }[keyof T];
type Alike<One, Other> = [One, Other] extends [Other, One] ? true : false;

/** `true` if what the gateway sends fits our type and has the same members; else what is wrong. */
type Checked<Ours, Theirs> = Theirs extends Ours
  ? Alike<keyof Ours, keyof Theirs> extends true
    ? Alike<OptionalKeys<Ours>, OptionalKeys<Theirs>> extends true
      ? true
      : ["not the same members may be absent", OptionalKeys<Ours>, OptionalKeys<Theirs>]
    : ["not the same members", Exclude<keyof Ours, keyof Theirs>, Exclude<keyof Theirs, keyof Ours>]
  : "what the gateway sends does not fit";

/** The schemas that were checked. */
export const checked: string[] = [];

/** Checks our type against the schema of this name. */
function answer<Ours>() {
  return <Name extends keyof Schemas>(name: Name, _proof: Checked<Ours, Schemas[Name]>): void =>
    void checked.push(name);
}

answer<wire.LockRecord>()("Lock", true);
answer<wire.S3Answer>()("S3Access", true);
answer<wire.Resource>()("Resource", true);
answer<wire.ObjectEntry>()("ObjectEntry", true);
answer<wire.Version>()("Version", true);
answer<wire.Waiter>()("Waiter", true);
answer<wire.Operation>()("Operation", true);
answer<wire.ForwardRecord>()("ForwardRecord", true);
answer<wire.CommittedResource>()("CommittedResource", true);
answer<wire.CommitResult>()("CommitResult", true);
answer<wire.WriteEvent>()("WriteEvent", true);
answer<wire.LockEvent>()("LockEvent", true);
answer<wire.Status>()("Status", true);
answer<wire.Status["counts"]>()("StatusCounts", true);
answer<wire.Readiness>()("Readiness", true);
answer<wire.Readiness["parts"][number]>()("PartState", true);
answer<wire.AuditEntry>()("AuditEntry", true);
answer<wire.RejectionEntry>()("RejectionEntry", true);
answer<wire.IntentEntry>()("IntentEntry", true);
answer<wire.DoubtEntry>()("DoubtEntry", true);
answer<wire.WrittenAnswer>()("Written", true);
answer<wire.CommittedAnswer>()("Committed", true);
answer<wire.RenewManyAnswer>()("RenewManyAnswer", true);
answer<wire.RenewManyAnswer["items"][number]>()("RenewOutcome", true);
answer<wire.FenceAnswer>()("Fence", true);
answer<wire.Page<wire.ObjectEntry>>()("ObjectList", true);
answer<wire.Page<wire.Version>>()("VersionList", true);
answer<wire.Page<wire.Waiter>>()("WaiterList", true);
answer<wire.Page<wire.Resource>>()("ResourceList", true);
answer<wire.Page<wire.AuditEntry>>()("AuditList", true);
answer<wire.Page<wire.RejectionEntry>>()("RejectionList", true);
answer<{ readonly items: readonly wire.Operation[] }>()("OperationList", true);
answer<{ readonly items: readonly wire.WriteEvent[]; readonly next_cursor: string }>()("EventList", true);
answer<wire.Page<wire.IntentEntry> & { readonly doubts: readonly wire.DoubtEntry[] }>()("IntentList", true);
answer<{ readonly resolved: number }>()("DoubtsResolved", true);
