// Requests to upstreams whose outcome is not known, and how one settles them.
import { at, get } from "../api.js";
import { needsKey, useLive } from "../live.js";
import { duration, quoted } from "../words.js";
import { ActionButton, hasButtons } from "../parts/actions.js";
import { Loaded, ResourceLink, Table, Time, html, useTitle } from "../parts/common.js";

/** @param {{ params: URLSearchParams }} _ */
export function Intents(_) {
  useTitle("Intents");
  const live = useLive((signal) => get(at(["admin", "intents"], { limit: 500 }), { signal }), 2000, []);
  const rights = useLive((signal) => get(at(["access"]), { signal }), 30_000, [needsKey.value]);
  const may = hasButtons && (rights.data?.may ?? []).includes("resolve");
  return html`<main id="view" tabindex="-1">
    <h1>Intents</h1>
    <p>Requests that were forwarded to an upstream that is drained, and have no known end. The next lock on their resource waits for them.</p>
    <${Loaded} live=${live}>${(/** @type {any} */ data) =>
      html` ${
        data.doubts.length > 0 &&
        html`<${Table}
          caption="Upstreams in doubt since a re-fence"
          heads=${["Upstream", "Resources", "Since", "Until", "Action"]}
          rows=${data.doubts}
          cells=${(/** @type {any} */ one) => [one.upstream, html`<span class="name">${one.resource_prefix}…</span>`, html`<${Time} at=${one.since} />`, one.ends_at ? html`<${Time} at=${one.ends_at} />` : "somebody resolves them", may && html`<${ActionButton} action=${resolveDoubts(one)} onDone=${live.reload} />`]}
        />`
      }
      ${data.items.length === 0 && data.doubts.length === 0 && html`<p>There are none.</p>`}
      ${
        data.items.length > 0 &&
        html`<${Table}
            caption="Open intents"
            id=${(/** @type {any} */ one) => one.operation}
            heads=${["Resource", "Owner", "Upstream", "Request", { text: "Age", number: true }, "Under way", "Operation", "Action"]}
            rows=${data.items}
            cells=${(/** @type {any} */ one) => [
              html`<${ResourceLink} name=${one.resource} />`,
              html`<span class="name">${one.owner || "–"}</span>`,
              one.upstream,
              html`<code>${one.method} ${one.path}</code>`,
              duration(one.age_ms),
              one.in_flight == null ? "another gateway knows" : one.in_flight ? "yes" : "no",
              html`<code class="small">${one.operation}</code>`,
              may && html`<${ActionButton} action=${resolve(one)} onDone=${live.reload} />`,
            ]}
          />
          <h2>Before you resolve one</h2>
          <ol>
            <li>
              Look at the upstream: did the request arrive, did the upstream act on it, is it still working on it?
            </li>
            <li>Make sure that it will not act on the request any more. If you cannot, restart the upstream.</li>
            <li>Resolve the intent. A lock that waits is in force at once; the outcome stays unknown to its caller.</li>
          </ol>`
      }`}</${Loaded}>
  </main>`;
}

/** @param {any} intent @returns {import("../parts/actions.js").Action} */
export const resolve = (intent) => ({
  title: "Resolve the intent",
  what: `You take it upon yourself that ${intent.upstream} will not act any more on ${intent.method} ${intent.path}, which ${intent.owner || "somebody"} sent for ${intent.resource}. ${intent.in_flight ? "It is still under way: what it does then is not fenced." : ""}`,
  verb: "Resolve",
  isGrave: true,
  confirm: () => (intent.in_flight ? intent.resource : null),
  call: ({ reason }) => [["admin", "intents", intent.operation, "resolve"], { reason }],
  command: ({ reason }) => `fence resolve --reason ${quoted(reason || "…")} ${intent.operation}`,
});

/** @param {any} doubt @returns {import("../parts/actions.js").Action} */
export const resolveDoubts = (doubt) => ({
  title: "Resolve the doubts",
  what: `You take it upon yourself that nothing that was forwarded to ${doubt.upstream} before has an effect any more. Its resources can be locked again.`,
  verb: "Resolve",
  isGrave: true,
  confirm: () => doubt.upstream,
  call: ({ reason }) => [["admin", "intents", "resolve"], { upstream: doubt.upstream, reason }],
  command: ({ reason }) =>
    `curl -X POST ${location.origin}/admin/intents/resolve -H 'content-type: application/json' -d '${JSON.stringify({ upstream: doubt.upstream, reason: reason || "…" }).replaceAll("'", "'\\''")}'`,
});
