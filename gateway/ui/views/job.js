// One job, or one part of a job: how it is doing, what is expected of it, its last runs, its parts, and what can be done.
import { useState } from "../vendor/hooks.js";
import { at, get } from "../api.js";
import { loadJob, loadRuns } from "../jobs/load.js";
import { jobOf } from "../jobs/record.js";
import { nextSlotAt, overdueAt, rowOf, rowsOf, statusOf, stuckAfterMs } from "../jobs/verdict.js";
import { needsKey, useLive, useNow } from "../live.js";
import { duration, isHeld, plural } from "../words.js";
import { ActionButton, hasButtons } from "../parts/actions.js";
import { breakingRun, runningNow } from "../parts/jobactions.js";
import { JobLink, RunLink, Strip, Took, Word, Words, exitOf, whereabouts } from "../parts/jobs.js";
import { Command, Loaded, ResourceLink, Table, Time, html, usePages, useTitle } from "../parts/common.js";

/** Runs on a page of the table. */
const EACH = 20;

/** @param {{ params: URLSearchParams }} props */
export function Job({ params }) {
  const name = params.get("name") ?? "";
  useTitle(`Job ${name}`);
  const job = jobOf(`job:${name}`);
  if (!job)
    return html`<main id="view" tabindex="-1"><h1 class="name">${name}</h1><p>This is no name of a job.</p></main>`;
  return html`<${Known} job=${job} />`;
}

/** @param {{ job: import("../jobs/record.js").JobName }} props */
function Known({ job }) {
  const live = useLive((signal, before) => loadJob(job, signal, before), 2000, [job.text]);
  const rights = useRights(job);
  return html`<main id="view" tabindex="-1">
    <h1>Job <span class="name">${job.text}</span></h1>
    <${Loaded} live=${live}>${(/** @type {any} */ data, /** @type {number} */ at) => html`<${Now} ...${{ job, data, at, rights, reload: live.reload }} />`}</${Loaded}>
  </main>`;
}

/** What one may do to the job, and whether one may ask for a run of it; and as whom. @param {import("../jobs/record.js").JobName} job */
export function useRights(job) {
  const load = async (/** @type {AbortSignal} */ signal) => {
    const on = (/** @type {string} */ resource) => get(at(["access"], { resource }), { signal });
    const [own, inbox] = await Promise.all([on(job.resource), on(`job-inbox:${job.name}`)]);
    const mayAsk = ["lock", "write", "list"].every((right) => inbox.may.includes(right));
    return { mayBreak: own.may.includes("break"), mayAsk, principal: own.principal };
  };
  return useLive(load, 30_000, [job.text, needsKey.value]).data ?? { mayBreak: false, mayAsk: false, principal: null };
}

/** @param {{ job: import("../jobs/record.js").JobName, data: any, at: number, rights: any, reload: () => void }} props */
function Now({ job, data, at, rights, reload }) {
  const { view, parts, agent, requests } = data;
  const inParts = parts?.views ?? [];
  return html`${!view && inParts.length === 0 && html`<${Nothing} ...${{ job, data }} />`}
    ${view && html`<${Facts} ...${{ job, view, at }} />`}
    <${Actions} ...${{ job, data, at, rights, reload }} />
    ${agent && html`<p class="small">An agent waits for orders: <span class="name">${agent.owner}</span>.</p>`}
    ${requests.length > 0 && html`<${Requests} requests=${requests} />`}
    ${inParts.length > 0 && html`<${Parts} views=${inParts} at=${at} />`}
    ${view && html`<${Runs} ...${{ job, view, at }} />`}
    ${view && html`<p>All that is recorded of it, and who had its lock: resource <${ResourceLink} name=${job.resource} />.</p>`}`;
}

/** @param {{ job: import("../jobs/record.js").JobName, data: any }} props */
const Nothing = ({ job, data }) =>
  data.isHidden
    ? html`<p>You may not read what is recorded of it.</p>`
    : html`<p>No run of it is recorded.${data.resource && html` Its resource is there: <${ResourceLink} name=${job.resource} />.`}</p>`;

/** @param {{ job: import("../jobs/record.js").JobName, view: import("../jobs/verdict.js").JobView, at: number }} props */
function Facts({ job, view, at }) {
  const { state } = view;
  const row = rowOf(view);
  const [next, overdue, stuck] = [nextSlotAt(state), overdueAt(state), stuckAfterMs(state)];
  const time = (/** @type {number | null | undefined} */ ms) => (ms == null ? null : new Date(ms).toISOString());
  const fact = (/** @type {string} */ head, /** @type {any} */ text) =>
    html`<div><dt>${head}</dt><dd>${text}</dd></div>`;
  return html`<dl class="facts">
      ${fact("Status", html`<${Words} row=${row} />`)}
      ${fact("Last slot", html`<span class="name">${row.lastSlot ?? "–"}</span>`)}
      ${fact("Last success", state.lastSuccess ? html`<${RunLink} name=${job.text} stem=${state.lastSuccess.stem} />, <${Time} at=${state.lastSuccess.finishedAt} />` : "never")}
      ${fact(row.runningMs === undefined ? "The last took" : "Runs for", html`<${Took} ...${row} at=${at} />`)}
      ${fact("Failed since the last success", plural(state.failures, "run"))}
      ${fact("Expected", state.everyMs === undefined ? "no schedule is known" : `each ${duration(state.everyMs)}`)}
      ${next !== undefined && fact("Next slot", html`<${Time} at=${time(next)} />`)}
      ${overdue !== null && fact(row.isOverdue ? "Overdue since" : "Overdue from", html`<${Time} at=${time(overdue)} />`)}
      ${stuck !== null && fact("Stuck after", `${duration(stuck)}${state.mostMs === undefined ? ", three times what it takes" : ""}`)}
      ${state.forgottenThrough !== undefined && fact("Forgotten through", html`<span class="name">${state.forgottenThrough}</span>`)}
    </dl>
    ${state.running && html`<${Underway} job=${job} run=${state.running} status=${row.status} />`}`;
}

/** Where to look for a run that has begun and not ended. @param {{ job: import("../jobs/record.js").JobName, run: import("../jobs/record.js").Run, status: string }} props */
export const Underway = ({ job, run, status }) =>
  html`<p class=${status === "lost" ? "failure" : ""}>
    ${status === "lost" ? "The lock of run " : "Run "}<${RunLink} name=${job.text} stem=${run.stem} /> of${" "}
    <span class="name">${run.owner ?? "–"}</span>${
      status === "lost"
        ? " has ended without a word: what became of it is not known. The next run calls it abandoned. It was "
        : " is under way. It is "
    }<span class="text">${whereabouts(run)}</span>.
  </p>`;

/** @param {{ job: import("../jobs/record.js").JobName, data: any, at: number, rights: any, reload: () => void }} props */
export function Actions({ job, data, at, rights, reload }) {
  const now = useNow(1000);
  const [told, setTold] = useState("");
  const { view, agent } = data;
  const resource = view?.resource;
  const canBreak = hasButtons && rights.mayBreak && resource && isHeld(resource);
  const canAsk = hasButtons && rights.mayAsk && agent;
  const run = view && statusOf(view) === "running" ? view.state.running : null;
  const gatewayNow = () => (Number.isFinite(data.now) ? data.now + performance.now() - at : Date.now());
  const asked = (/** @type {any} */ request) => (setTold(`Asked for, as request ${request.request}.`), reload());
  return html`${(canBreak || canAsk) && html`<div class="buttons" role="group" aria-label="Actions">${canBreak && html`<${ActionButton} key="break" action=${breakingRun(job, resource, run, now - at)} onDone=${reload} />`}${canAsk && html`<${ActionButton} key="run" action=${runningNow(job, agent, rights.principal, gatewayNow)} onDone=${asked} />`}</div>`}
    <p role="status" class=${told ? "" : "unseen"}>${told}</p>`;
}

/** @param {{ requests: any[] }} props */
const Requests = ({ requests }) =>
  html`<h2>Requests</h2>
    <${Table}
      caption="Runs that were asked for and have not begun, oldest first"
      id=${(/** @type {any} */ one) => one.id}
      heads=${["By", "Why", "Slot", "When", "Request"]}
      rows=${requests}
      cells=${(/** @type {any} */ one) => [
        html`<span class="name">${one.by || "–"}</span>`,
        html`<span class="text">${one.reason || "–"}</span>`,
        html`<span class="name">${one.slot || "one of its own"}</span>`,
        Number.isNaN(Date.parse(one.at)) ? "–" : html`<${Time} at=${one.at} />`,
        html`<code class="small">${one.id}</code>`,
      ]}
    />`;

/** @param {{ views: import("../jobs/verdict.js").JobView[], at: number }} props */
function Parts({ views, at }) {
  const [sum] = rowsOf(views);
  const { shown, turn } = usePages(views, 100, []);
  return html`<h2>Parts</h2>
    <p><${Words} row=${sum} /></p>
    ${turn}
    <${Table}
      caption="Parts of the job"
      id=${(/** @type {any} */ view) => view.job.resource}
      heads=${["Part", "Status", "Last slot", "Last success", { text: "Duration", number: true }, { text: "Fails", number: true }, "Owner"]}
      rows=${shown}
      cells=${(/** @type {any} */ view) => {
        const row = rowOf(view);
        return [
          html`<${JobLink} name=${row.name} />`,
          html`<${Words} row=${row} />`,
          html`<span class="name">${row.lastSlot ?? "–"}</span>`,
          html`<${Time} at=${row.lastSuccessAt} />`,
          html`<${Took} ...${row} at=${at} />`,
          row.failures,
          html`<span class="name">${row.owner ?? "–"}</span>`,
        ];
      }}
    />`;
}

/** @param {{ job: import("../jobs/record.js").JobName, view: import("../jobs/verdict.js").JobView, at: number }} props */
function Runs({ job, view, at }) {
  const { running, recent } = view.state;
  const runs = running ? [{ ...running, status: statusOf(view) }, ...recent].slice(0, 50) : recent;
  const { shown, turn } = usePages(runs, EACH, []);
  // A run that has ended is not written again: its record is read once.
  const wanted = shown.filter((run) => run.id !== running?.id).map((run) => run.stem);
  const records = useLive((signal) => loadRuns(job, wanted, signal), Infinity, [job.text, wanted]);
  const byId = new Map((records.data ?? []).map((run) => [run?.id, run]));
  return html`<h2>Runs</h2>
    <${Strip} name=${job.text} runs=${runs} />
    ${turn}
    <${Table}
      caption="The last runs, newest first"
      id=${(/** @type {any} */ run) => run.id}
      heads=${["Run", "Status", "Began", { text: "Duration", number: true }, "Exit", "Why", "Owner", "Reason"]}
      rows=${shown}
      cells=${(/** @type {import("../jobs/record.js").Run} */ run) => {
        const record = byId.get(run.id) ?? run;
        const isRunning = run.status === "running";
        return [
          html`<${RunLink} name=${job.text} stem=${run.stem} />`,
          html`<${Word} status=${run.status} />`,
          html`<${Time} at=${run.startedAt} />`,
          html`<${Took} tookMs=${run.tookMs} runningMs=${isRunning ? view.resource.age_ms : undefined} at=${at} />`,
          exitOf(record),
          record.trigger?.replaceAll("_", " ") ?? "–",
          html`<span class="name">${record.owner ?? "–"}</span>`,
          html`<span class="text">${run.reason ?? "–"}</span>`,
        ];
      }}
    />
    <${Command} label="All that are kept" text=${`fence job runs ${job.text}`} />`;
}
