// What settles a write, and what follows from that for the caller.

import assert from "node:assert/strict";
import { lossReasonOf } from "../../src/core/classes.js";
import { Settling, type Condition, type Verdict, type WriteHeard } from "../../src/core/settling.js";
import { classOf, foreignStatus, replay, type Case } from "./load.js";

interface WriteCase extends Case {
  readonly numbered: boolean;
  readonly condition: Condition;
  readonly attempts: readonly {
    readonly number: number | null;
    readonly got: string;
    readonly overlapped: boolean;
    readonly earlier_is_open?: boolean;
    readonly verdict: Verdict;
    readonly open: boolean;
  }[];
  readonly asks: readonly { readonly by: string; readonly got: string }[];
  readonly abandoned?: boolean;
  readonly result: {
    readonly applied?: boolean;
    readonly replayed?: boolean;
    readonly not_applied?: boolean;
    readonly class?: string;
    readonly code?: string | null;
    readonly reason?: string | null;
  };
}

function heard(got: string): WriteHeard {
  if (got === "done") return { is: "done" };
  if (got === "nothing") return { is: "unanswered" };
  if (got === "not-connected") return { is: "unsent" };
  const status = foreignStatus(got);
  return status === undefined ? { is: "problem", ...classOf(got) } : { is: "foreign", status };
}

replay<WriteCase>("write", (one) => {
  const settling = new Settling(one.numbered, false, one.condition);
  let number = one.numbered ? 1 : null;
  let last: { verdict: Verdict; got: string } | undefined;
  one.attempts.forEach((sent, place) => {
    assert.equal(sent.number, number, `[${place}] number`);
    const beside = { overlapped: sent.overlapped, earlierIsOpen: sent.earlier_is_open ?? false };
    const verdict = settling.judge(heard(sent.got), beside);
    assert.equal(verdict, sent.verdict, `[${place}] verdict`);
    assert.equal(settling.isOpen, sent.open, `[${place}] open`);
    if (verdict === "renumber" && number !== null) number += 1;
    last = { verdict, got: sent.got };
  });
  follows(one, settling, last);
});

function follows(one: WriteCase, settling: Settling, last: { verdict: Verdict; got: string } | undefined): void {
  const { result } = one;
  if (last === undefined) {
    assert.equal(result.class, "LockLost");
  } else if (last.verdict === "done") {
    assert.ok(result.applied && !result.replayed);
  } else if (last.verdict === "refused") {
    const isForeign = foreignStatus(last.got) !== undefined;
    const known = isForeign ? ({ class: "Denied", code: undefined } as const) : classOf(last.got);
    assert.equal(result.class, known.class);
    assert.equal(result.code ?? undefined, known.code);
    if (known.class === "LockLost") assert.equal(result.reason, lossReasonOf(last.got));
  } else if (settling.isOpen && one.asks.length > 0) {
    // What the client asks decides.
    const found = one.asks.at(-1)?.got;
    if (found === "applied") assert.ok(result.applied && result.replayed);
    else if (one.abandoned) assert.ok(result.not_applied);
    else assert.equal(result.class, "OutcomeUnknown");
  } else {
    assert.equal(result.class, settling.isOpen ? "OutcomeUnknown" : "Unavailable");
  }
}
