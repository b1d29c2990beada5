// How the gateway is, and what it stands on.
import { at, fetchRaw, get, ifThere } from "../api.js";
import { useLive } from "../live.js";
import { Command, Loaded, Table, Time, html, useTitle } from "../parts/common.js";

/** Where the runbook says what to do about a part that is not ready. */
const HELP = /** @type {Record<string, string>} */ ({
  gateway: "It is shutting down: others take its requests.",
  ledger:
    "Nothing is written or granted while the ledger does not answer. Runbook: “Postgres crashed and came back”, “The embedded ledger's disk fails”.",
  mint: "Nobody gets a new lock; holders go on. Runbook: “etcd is down”.",
  blobs: "Large objects cannot be written or read; all else goes on.",
  settings:
    "This gateway's settings are not those that all have agreed on. Runbook: “Change what all gateways have alike”.",
});
/** Sums of the metrics that are worth a look, by their names. */
const SUMS = /** @type {[string, string][]} */ ([
  ["fencegate_locks_held", "Locks held, breaking or draining, in the whole ledger"],
  ["fencegate_frozen_resources", "Frozen resources, in the whole ledger"],
  ["fencegate_writes_total", "Writes"],
  ["fencegate_rejections_total", "Refused writes"],
  ["fencegate_acquisitions_total", "Acquisitions"],
  ["fencegate_renewals_total", "Renewals"],
  ["fencegate_breaks_total", "Breaks"],
  ["fencegate_refences_total", "Re-fences"],
  ["fencegate_epoch_switches_total", "Epoch switches"],
  ["fencegate_upstream_intents_open", "Open intents"],
  ["fencegate_blobs_missing_total", "Missing blobs"],
  ["fencegate_rejections_dropped_total", "Rejections counted, not kept"],
]);

/** @param {{ params: URLSearchParams }} _ */
export function Status(_) {
  useTitle("Status");
  const ready = useLive((signal) => get(at(["readyz"], { grants: 1 }), { signal }), 2000, []);
  const status = useLive((signal) => get(at(["status"]), { signal }), 2000, []);
  const sum = async (/** @type {Promise<Response>} */ asked) => summed(await (await asked).text());
  const sums = useLive((signal) => ifThere(sum(fetchRaw(at(["metrics"]), { signal }))), 5000, []);
  return html`<main id="view" tabindex="-1">
    <h1>Status</h1>
    <${Loaded} live=${ready}>${(/** @type {any} */ data) =>
      html`<${Table}
        caption=${data.ready ? "It is ready, for new locks too" : "It is not ready for all"}
        heads=${["Part", "State", "What it says"]}
        rows=${data.parts}
        cells=${(/** @type {any} */ part) => [part.part, part.ready ? html`<span class="state good"><span aria-hidden="true">●</span> ready</span>` : html`<span class="state bad"><span aria-hidden="true">✕</span> not ready</span>`, part.ready ? "–" : html`<span class="text">${part.detail ?? ""}</span> ${HELP[part.part] ?? ""}`]}
      />`}</${Loaded}>
    <${Loaded} live=${status}>${(/** @type {any} */ data) =>
      html` <h2>This gateway</h2>
        <dl class="facts">
          <div>
            <dt>Gateway</dt>
            <dd><code>${data.gateway}</code></dd>
          </div>
          <div>
            <dt>Version</dt>
            <dd>${data.version}</dd>
          </div>
          <div>
            <dt>Started</dt>
            <dd><${Time} at=${data.started_at} /></dd>
          </div>
          <div>
            <dt>Ledger</dt>
            <dd>${data.ledger}, generation ${data.generation ?? "–"}, ${data.events ?? "–"} events</dd>
          </div>
          <div>
            <dt>Mint</dt>
            <dd>${data.mint}, epoch ${data.epoch ?? "–"}</dd>
          </div>
          <div>
            <dt>Blobs</dt>
            <dd>${data.blobs}</dd>
          </div>
          <div>
            <dt>S3</dt>
            <dd>${data.s3 ?? "off"}</dd>
          </div>
          <div>
            <dt>Writes name their lock</dt>
            <dd>${data.requires_lock_id ? "yes, they must" : "if they like"}</dd>
          </div>
          <div>
            <dt>Waiting for locks</dt>
            <dd>${data.counts.waiters}</dd>
          </div>
          <div>
            <dt>Watching locks</dt>
            <dd>${data.counts.watchers}</dd>
          </div>
          <div>
            <dt>Reading events</dt>
            <dd>${data.counts.event_readers}</dd>
          </div>
          <div>
            <dt>Forwarded requests</dt>
            <dd>${data.counts.forwards}</dd>
          </div>
        </dl>
        ${
          sums.data &&
          html`<h2>In numbers, since it started</h2>
            <dl class="facts">
              ${SUMS.filter(([name]) => sums.data?.has(name)).map(
                ([name, text]) =>
                  html`<div>
                    <dt>${text}</dt>
                    <dd>${sums.data?.get(name)}</dd>
                  </div>`,
              )}
            </dl>`
        }
        <h2>Does the fence hold?</h2>
        <${Command} label="Try it on a resource of its own" text=${`fencegate drill ${location.origin}`} />
        ${
          data.settings &&
          html`<h2>Settings</h2>
            <pre tabindex="0" aria-label="Settings" class="text">${data.settings}</pre>`
        }`}</${Loaded}>
  </main>`;
}

/** The sum of each metric over its labels. @param {string} page @returns {Map<string, number>} */
function summed(page) {
  const sums = new Map();
  for (const line of page.split("\n")) {
    const found = /^([a-z_]+)(?:\{.*\})? ([0-9.e+-]+)$/.exec(line);
    if (found) sums.set(found[1], (sums.get(found[1]) ?? 0) + Number(found[2]));
  }
  return sums;
}
