// Jobs each slot of which is done once, on however many hosts they are called for. What is kept of their runs is the same
// for all clients.

import { innerOfClient, type Fencegate } from "../client/fencegate.js";
import { Job } from "./job.js";
import { termsOf, type JobOptions } from "./records.js";

export type { Checkpoint, Job, JobEnd, JobState, Run } from "./job.js";
export type { Expected, JobDocument, JobOptions, RunRecord, RunStatus, RunSummary } from "./records.js";
export type { ShardOf } from "../core/slots.js";

/**
 * A job. To run it is to run its slot, unless that is done, or somebody else is at it.
 *
 * @throws Misuse: the name or an option is none.
 */
export function job(client: Fencegate, name: string, options: JobOptions = {}): Job {
  return new Job(innerOfClient(client), termsOf(name, options));
}
