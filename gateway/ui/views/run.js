// One run of a job: its record, its output, where it went on, and where to look for it while it is under way.
import { loadRun } from "../jobs/load.js";
import { jobOf, slotTime } from "../jobs/record.js";
import { useLive } from "../live.js";
import { size } from "../words.js";
import { JobLink, RunLink, Took, Word, exitOf, whereabouts } from "../parts/jobs.js";
import { Preview } from "../parts/preview.js";
import { Loaded, ResourceLink, Time, html, useTitle } from "../parts/common.js";
import { Actions, Underway, useRights } from "./job.js";

/** @param {{ params: URLSearchParams }} props */
export function Run({ params }) {
  const [name, stem] = [params.get("name") ?? "", params.get("run") ?? ""];
  useTitle(`Run ${stem} of ${name}`);
  const job = jobOf(`job:${name}`);
  const isRun = job && /^[^.]+\.\d+$/.test(stem) && slotTime(stem.split(".")[0]) !== null;
  if (!isRun)
    return html`<main id="view" tabindex="-1"><h1>Run <span class="name">${stem}</span></h1><p>This is no run of a job.</p></main>`;
  return html`<${Known} ...${{ job, stem }} />`;
}

/** @param {{ job: import("../jobs/record.js").JobName, stem: string }} props */
function Known({ job, stem }) {
  const live = useLive((signal) => loadRun(job, stem, signal), 2000, [job.text, stem]);
  const rights = useRights(job);
  return html`<main id="view" tabindex="-1">
    <h1>Run <span class="name">${stem}</span></h1>
    <p>Of job <${JobLink} name=${job.text} />.</p>
    <${Loaded} live=${live}>${(/** @type {any} */ data, /** @type {number} */ at) =>
      data.run
        ? html`<${Found} ...${{ job, data, at, rights, reload: live.reload }} />`
        : html`<p>There is no record of it: it was forgotten, or never began, or you may not read it.</p>`}</${Loaded}>
  </main>`;
}

/** @param {{ job: import("../jobs/record.js").JobName, data: any, at: number, rights: any, reload: () => void }} props */
function Found({ job, data, at, rights, reload }) {
  const { status, view, log, checkpoint } = data;
  const run = /** @type {import("../jobs/record.js").Run} */ (data.run);
  const hasBegun = ["running", "lost", "started"].includes(status);
  const fact = (/** @type {string} */ head, /** @type {any} */ text) =>
    html`<div><dt>${head}</dt><dd>${text}</dd></div>`;
  const name = (/** @type {string | undefined} */ text) => html`<span class="name">${text ?? "–"}</span>`;
  return html`<dl class="facts">
      ${fact("Status", html`<${Word} status=${status} />`)}
      ${fact("Trigger", run.trigger?.replaceAll("_", " ") ?? "–")}
      ${fact("Slot", name(run.slot))}
      ${fact("Attempt", run.attempt)}
      ${fact("Began", html`<${Time} at=${run.startedAt} />`)}
      ${fact("Ended", html`<${Time} at=${run.finishedAt} />`)}
      ${fact("Took", html`<${Took} tookMs=${run.tookMs} runningMs=${status === "running" ? view.resource.age_ms : undefined} at=${at} />`)}
      ${fact("Exit", exitOf(run))}
      ${run.reason !== undefined && fact("Reason", html`<span class="text">${run.reason}</span>`)}
      ${fact("Owner", name(run.owner))}
      ${fact("Where", html`<span class="text">${whereabouts(run)}</span>`)}
      ${fact("Program", name(run.program))}
      ${run.resumedFrom !== undefined && fact("Went on from the checkpoint of", html`<${RunLink} name=${job.text} stem=${run.resumedFrom} />`)}
      ${fact("Checkpoint of the slot", checkpoint ? `kept, ${size(checkpoint.size)}` : "none")}
      ${run.request !== undefined && fact("Request", name(run.request))}
      ${run.fence !== undefined && fact("Token", name(run.fence))}
      ${fact("Id", name(run.id))}
    </dl>
    ${view && hasBegun && html`<${Underway} ...${{ job, run, status }} />`}
    ${view && html`<${Actions} ...${{ job, data: { view, agent: null }, at, rights, reload }} />`}
    <h2>Output</h2>
    <${Output} ...${{ job, run, log, status }} />
    <p>Its record is in the resource <${ResourceLink} name=${job.resource} />.</p>`;
}

/** @param {{ job: import("../jobs/record.js").JobName, run: import("../jobs/record.js").Run, log: any, status: string }} props */
function Output({ job, run, log, status }) {
  const { bytes, isCut, sha256 } = run.output ?? {};
  if (!log && status === "running")
    return html`<p>It is kept once the run has ended. Until then look for it where that runs: <span class="text">${whereabouts(run)}</span>.</p>`;
  if (!log) return html`<p>${bytes === 0 ? "It wrote nothing." : "Nothing is kept of it."}</p>`;
  return html`${bytes !== undefined && html`<p class="small">It wrote ${size(bytes)}${isCut && ", of which the last are kept"}${sha256 !== undefined && html`; SHA-256 of all of it <code>${sha256}</code>`}.</p>`}
    <${Preview} name=${job.resource} object=${log} isEnd=${true} label="Output of the run" />`;
}
