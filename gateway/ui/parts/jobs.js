// What the views of jobs are made of: how a run ended, as a word, a letter and a colour; its slot; its length.
import { useNow } from "../live.js";
import { duration } from "../words.js";
import { html, link } from "./common.js";

/** What is shown of a word of the records: how bad it is, its letter, and the word for people. */
const WORDS = /** @type {Record<string, [kind: string, letter: string, word: string]>} */ ({
  running: ["busy", "R", "running"],
  started: ["busy", "R", "begun"],
  succeeded: ["good", "S", "succeeded"],
  failed: ["bad", "F", "failed"],
  timed_out: ["bad", "T", "timed out"],
  abandoned: ["bad", "A", "abandoned"],
  lost: ["bad", "L", "lost"],
  cancelled: ["warn", "C", "cancelled"],
  skipped: ["idle", "P", "skipped"],
  never: ["idle", "N", "never run"],
  overdue: ["bad", "O", "overdue"],
  stuck: ["bad", "K", "stuck"],
});
/** What a newer version may have written is shown as it is. @param {string} status @returns {[string, string, string]} */
const shownAs = (status) => (Object.hasOwn(WORDS, status) ? WORDS[status] : ["warn", "?", status]);

/** @param {{ status: string }} props */
export function Word({ status }) {
  const [kind, letter, word] = shownAs(status);
  return html`<span class="state ${kind}"><span class="letter" aria-hidden="true">${letter}</span>${" "}${word}</span>`;
}

/** All that is to be said of how a job is doing. @param {{ row: import("../jobs/verdict.js").Row }} props */
export const Words = ({ row }) =>
  html`<span class="words"
    ><${Word} status=${row.status} />${row.isOverdue && html`<${Word} status="overdue" />`}${row.isStuck && html`<${Word} status="stuck" />`}${row.parts !== undefined && html`<span class="small">${row.done} of ${row.parts}</span>`}</span
  >`;

/** @param {{ name: string }} props */
export const JobLink = ({ name }) => html`<a class="name" href=${link("job", { name })}>${name}</a>`;

/** @param {{ name: string, stem: string }} props */
export const RunLink = ({ name, stem }) => html`<a class="name" href=${link("run", { name, run: stem })}>${stem}</a>`;

/** How long a run took, or has been taking. @param {{ tookMs?: number, runningMs?: number, at: number }} props */
export function Took({ tookMs, runningMs, at }) {
  const now = useNow(1000);
  const ms = runningMs === undefined ? tookMs : runningMs + Math.max(0, now - at);
  return html`<span class="number">${ms === undefined ? "–" : duration(ms)}</span>`;
}

/** With what a run ended. @param {{ exit?: number, signal?: number }} run */
export const exitOf = ({ exit, signal }) =>
  exit !== undefined ? `${exit}` : signal !== undefined ? `signal ${signal}` : "–";

/** Where to look for a run. @param {import("../jobs/record.js").Run} run */
export const whereabouts = ({ pid, host }) => `process ${pid ?? "–"} on ${host ?? "a host that is not known"}`;

/**
 * The runs as a strip, the newest first: a letter in its colour for each, with all of it in words for who points at it or hears it.
 * @param {{ name: string, runs: import("../jobs/record.js").Run[] }} props
 */
export function Strip({ name, runs }) {
  const used = [...new Set(runs.map(({ status }) => status))];
  return html`<ol class="strip" aria-label="Runs, newest first">
      ${runs.map((run) => {
        const [kind, letter, word] = shownAs(run.status);
        const took = run.tookMs === undefined ? "" : `, took ${duration(run.tookMs)}`;
        const words = `${run.stem}: ${word}${took}${run.reason ? `: ${run.reason}` : ""}`;
        return html`<li key=${run.id}>
          <a class="state ${kind}" href=${link("run", { name, run: run.stem })} title=${words} aria-label=${`${letter}: ${words}`}>${letter}</a>
        </li>`;
      })}
    </ol>
    <p class="small legend">
      ${used.map((status) => html`<${Word} status=${status} /> `)}
    </p>`;
}
