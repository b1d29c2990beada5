// The jobs: which run, which ran, and which should have.
import { useEffect, useRef } from "../vendor/hooks.js";
import { SEEN, loadJobs } from "../jobs/load.js";
import { isBad, rowsOf } from "../jobs/verdict.js";
import { announce, useLive } from "../live.js";
import { plural } from "../words.js";
import { JobLink, Took, Words } from "../parts/jobs.js";
import { Choice, Command, Filter, Loaded, Table, Time, go, html, usePages, useTitle } from "../parts/common.js";

/** Rows on a page. */
const EACH = 100;
const WHICH = /** @type {[string, string][]} */ ([
  ["", "all"],
  ["bad", "overdue, stuck, lost or failed"],
  ["running", "running"],
]);

/** @param {{ params: URLSearchParams }} props */
export function Jobs({ params }) {
  useTitle("Jobs");
  const prefix = params.get("prefix") ?? "";
  const which = params.get("which") ?? "";
  const live = useLive((signal, before) => loadJobs(prefix, signal, /** @type {any} */ (before)), 2000, [prefix]);
  const filter = (/** @type {Record<string, string>} */ change) => go("jobs", { prefix, which, ...change });
  return html`<main id="view" tabindex="-1">
    <h1>Jobs</h1>
    <form class="filters" onSubmit=${(/** @type {any} */ event) => event.preventDefault()}>
      <${Filter} label="Name begins with" value=${prefix} onInput=${(/** @type {string} */ prefix) => filter({ prefix })} placeholder="nightly" />
      <${Choice} label="Which" value=${which} options=${WHICH} onChange=${(/** @type {string} */ which) => filter({ which })} />
    </form>
    <${Loaded} live=${live}>${(/** @type {any} */ data, /** @type {number} */ at) => html`<${Found} ...${{ data, at, which, prefix }} />`}</${Loaded}>
  </main>`;
}

/** @param {{ data: any, at: number, which: string, prefix: string }} props */
function Found({ data, at, which, prefix }) {
  const rows = rowsOf(data.views);
  const bad = rows.filter(isBad);
  useTrouble(bad);
  const wanted = which === "bad" ? bad : which === "running" ? rows.filter(({ status }) => status === "running") : rows;
  const { shown, turn } = usePages(wanted, EACH, [prefix, which]);
  if (rows.length === 0 && data.hidden === 0 && !data.isMore)
    return prefix ? html`<p>There is no job whose name begins with <code>${prefix}</code>.</p>` : html`<${Nothing} />`;
  return html`<p class="sum">
      ${plural(rows.length, "job")} · ${`${bad.length} overdue, stuck, lost or failed`}${data.hidden > 0 && ` · ${data.hidden} more, which you may not read`}
    </p>
    ${data.isMore && html`<p>Only the first ${SEEN} resources of jobs by name are looked at, and parts of the last job may be missing. Name a beginning to see others.</p>`}
    ${Number.isNaN(data.now) && html`<p>The gateway does not tell the time: which jobs are overdue is not known.</p>`} ${turn}
    <${Table}
      caption="Jobs, by name"
      id=${(/** @type {any} */ row) => row.key}
      heads=${["Name", "Status", "Last slot", "Last success", { text: "Duration", number: true }, "Next due", { text: "Fails", number: true }, "Owner"]}
      rows=${shown}
      cells=${(/** @type {import("../jobs/verdict.js").Row} */ row) => [
        html`<${JobLink} name=${row.name} />`,
        html`<${Words} row=${row} />`,
        html`<span class="name">${row.lastSlot ?? "–"}</span>`,
        html`<${Time} at=${row.lastSuccessAt} />`,
        html`<${Took} ...${row} at=${at} />`,
        html`<${Time} at=${row.nextSlotAt === undefined ? null : new Date(row.nextSlotAt).toISOString()} />`,
        row.failures,
        html`<span class="name">${row.owner ?? "–"}</span>`,
      ]}
    />
    ${turn}`;
}

/** Tells who does not look that jobs have got into trouble since. @param {{ key: string }[]} bad */
function useTrouble(bad) {
  const before = useRef(/** @type {Set<string> | null} */ (null));
  const keys = bad.map(({ key }) => key);
  useEffect(() => {
    const fresh = before.current === null ? [] : keys.filter((key) => !before.current?.has(key));
    if (fresh.length > 0) announce(`${plural(fresh.length, "job")} overdue, stuck, lost or failed`);
    before.current = new Set(keys);
  }, [keys.join("\n")]);
}

const Nothing = () =>
  html`<section class="empty">
    <p>No job has run. Cron, systemd or Kubernetes may call it as often as they like; it runs once a day so:</p>
    <${Command} label="Run a job" text="fence job run nightly --every 1d -- ./close-books.sh" />
  </section>`;
