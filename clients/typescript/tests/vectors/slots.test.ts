// Slots and names of jobs, and what is said of a job.

import assert from "node:assert/strict";
import { durationMs } from "../../src/core/durations.js";
import { Misuse } from "../../src/core/errors.js";
import {
  caughtUp,
  isLate,
  isOverdue,
  isStuck,
  jobResource,
  slotAt,
  slotSecond,
  slotText,
  type ShardOf,
  type Took,
} from "../../src/core/slots.js";
import { replay, type Case } from "./load.js";

type SlotCase = Case & { readonly refused?: boolean } & (
    | { readonly kind: "slot"; readonly every: string; readonly now: string; readonly slot?: string }
    | { readonly kind: "name"; readonly name: string; readonly shard?: ShardOf; readonly resource?: string }
    | { readonly kind: "text"; readonly given: string; readonly slot?: string }
    | {
        readonly kind: "catch_up";
        readonly every: string;
        readonly slot: string;
        readonly last_slot: string | null;
        readonly last_is_done: boolean;
        readonly first: string;
        readonly last: string;
        readonly count: number;
      }
    | {
        readonly kind: "late";
        readonly every: string | null;
        readonly overdue_after: string | null;
        readonly slot: string;
        readonly now: string;
        readonly late: boolean;
      }
    | {
        readonly kind: "overdue";
        readonly every: string | null;
        readonly overdue_after: string | null;
        readonly last_success: string | null;
        readonly now: string;
        readonly overdue: boolean;
      }
    | {
        readonly kind: "stuck";
        readonly running_ms: number;
        readonly max_runtime_ms: number | null;
        readonly recent: readonly Took[];
        readonly stuck: boolean;
      }
  );

const ms = (given: string | null): number | undefined => (given === null ? undefined : durationMs(given, "a duration"));

/** What is decided, and what should be. */
function decided(one: SlotCase): readonly [unknown, unknown] {
  switch (one.kind) {
    case "slot":
      return [slotText(slotAt(durationMs(one.every, "every"), slotSecond(one.now))), one.slot];
    case "name":
      return [jobResource(one.name, one.shard), one.resource];
    case "text":
      return [slotText(slotSecond(one.given)), one.slot];
    case "catch_up": {
      const last = one.last_slot === null ? undefined : slotSecond(one.last_slot);
      const slots = caughtUp(durationMs(one.every, "every"), slotSecond(one.slot), last, one.last_is_done).map(
        slotText,
      );
      return [
        [slots[0], slots.at(-1), slots.length],
        [one.first, one.last, one.count],
      ];
    }
    case "late":
      return [isLate(slotSecond(one.slot), slotSecond(one.now), ms(one.every), ms(one.overdue_after)), one.late];
    case "overdue": {
      const success = one.last_success ?? undefined;
      return [isOverdue(success, slotSecond(one.now), ms(one.every), ms(one.overdue_after)), one.overdue];
    }
    case "stuck":
      return [isStuck(one.running_ms, one.max_runtime_ms ?? undefined, one.recent), one.stuck];
  }
}

replay<SlotCase>("slots", (one) => {
  if (one.refused) return assert.throws(() => decided(one), Misuse);
  const [got, expected] = decided(one);
  assert.notEqual(expected, undefined);
  assert.deepEqual(got, expected);
});
