// What operators do to jobs: end a run by force, and ask for one where somebody waits for orders.
import { REASON_CHARS_MAX, ownerOf, requestOf, send, timedId } from "../jobs/inbox.js";
import { slotNamed } from "../jobs/record.js";
import { plural, quoted } from "../words.js";
import { breaking, dueFlag } from "./actions.js";

/** What is in the field of a slot. @param {string} typed */
const slotOf = (typed) => slotNamed(typed.trim());

/**
 * Takes the lock away from whoever runs the job.
 * @param {import("../jobs/record.js").JobName} job @param {any} resource Its lock, as it is held.
 * @param {import("../jobs/record.js").Run | null} run The run that has it, if that is known.
 * @param {number} passedMs How long ago that was heard.
 * @returns {import("./actions.js").Action}
 */
export function breakingRun(job, resource, run, passedMs) {
  const who = run
    ? `Run ${run.stem} of ${run.owner ?? "an owner that is not known"} on ${run.host ?? "a host that is not known"}`
    : `${resource.owner || "Whoever has the lock"}`;
  const waits = resource.queue_length > 0 ? ` ${plural(resource.queue_length, "call")} for the lock will be next.` : "";
  return {
    ...breaking(resource, passedMs),
    title: run ? "Break the run" : "Break the lock",
    what: `${who} will find its next write refused; “fence job run” ends its process.${waits}`,
    confirm: () => job.text,
    command: ({ reason, after }) =>
      `fence job break ${dueFlag(after)}--reason ${quoted(reason || "…")} ${quoted(job.text)}`,
  };
}

/**
 * Asks for a run. The gateway runs nothing: the agent does, and may be busy with a run before that.
 * @param {import("../jobs/record.js").JobName} job @param {any} agent The lock of the agent.
 * @param {string | null | undefined} principal @param {() => number} now The time at the gateway, in milliseconds.
 * @returns {import("./actions.js").Action}
 */
export function runningNow(job, agent, principal, now) {
  // Whatever becomes of the answer, it is one request.
  let id = /** @type {string | null} */ (null);
  return {
    title: "Run it now",
    what: `Asks ${agent.owner || "the agent"} for a run of ${job.name}. It begins as soon as the agent is free and the lock of the job is.`,
    verb: "Run now",
    asksForRun: true,
    wrong: ({ slot }) =>
      slot.trim() === "" || slotOf(slot) !== null ? null : "A slot is 20261122T020000Z or 2026-11-22T02:00:00Z.",
    reason: { label: "Reason, which is kept with the request", most: REASON_CHARS_MAX },
    act: ({ slot, resume, reason }) => {
      const at = now();
      id ??= timedId(at);
      const by = ownerOf(principal);
      return send(requestOf({ id, job: job.name, slot: slotOf(slot), resume, reason, by, now: at }));
    },
    command: ({ slot, resume, reason }) =>
      `fence job start ${slotOf(slot) === null ? "" : `--slot ${slotOf(slot)} `}${resume ? "--resume " : ""}--reason ${quoted(reason || "…")} ${quoted(job.name)}`,
  };
}
