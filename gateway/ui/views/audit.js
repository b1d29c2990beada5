// Who did what to locks and resources, and why; and whether the record is sealed.
import { at, fetchRaw, get, ifThere } from "../api.js";
import { useLive } from "../live.js";
import { done } from "../words.js";
import { Choice, Filter, Loaded, ResourceLink, Table, Time, go, html, link, save, useTitle } from "../parts/common.js";

const ACTIONS = [
  "grant",
  "transfer",
  "break",
  "broken",
  "freeze",
  "unfreeze",
  "protect",
  "unprotect",
  "fence",
  "resolve",
  "refence",
  "epoch",
  "adopt",
  "agree",
  "access",
  "denied",
  "auth-failed",
  "fork",
];

/** @param {{ params: URLSearchParams }} props */
export function Audit({ params }) {
  useTitle("Audit");
  const resource = params.get("resource") ?? "";
  const action = params.get("action") ?? "";
  const cursor = params.get("cursor") ?? "";
  const live = useLive((signal) => get(at(["audit"], { resource, action, cursor, limit: 100 }), { signal }), 3000, [
    resource,
    action,
    cursor,
  ]);
  const text = async (/** @type {Promise<Response>} */ asked) => (await asked).text();
  const seal = useLive((signal) => ifThere(text(fetchRaw(at(["audit", "checkpoint"]), { signal }))), 10_000, []);
  const filter = (/** @type {Record<string, string>} */ change) => go("audit", { resource, action, ...change });
  return html`<main id="view" tabindex="-1">
    <h1>Audit</h1>
    <form class="filters" onSubmit=${(/** @type {any} */ event) => event.preventDefault()}>
      <${Filter} label="Resource" value=${resource} onInput=${(/** @type {string} */ resource) => filter({ resource })} />
      <${Choice} label="What" value=${action} options=${[["", "everything"], ...ACTIONS.map((of) => [of, done(of)])]} onChange=${(/** @type {string} */ action) => filter({ action })} />
    </form>
    <${Sealed} text=${seal.data} />
    <${Loaded} live=${live}>${(/** @type {any} */ data) =>
      html` ${data.items.length === 0 && html`<p>Nothing is recorded${resource && html` of <code>${resource}</code>`}.</p>`}
        ${
          data.items.length > 0 &&
          html`<${Table}
            caption="What was done, newest first"
            heads=${["When", "What", "Resource", "Lock of", "By", "Why", "Request"]}
            rows=${data.items}
            cells=${(/** @type {any} */ one) => [
              html`<${Time} at=${one.at} />`,
              done(one.action),
              one.resource ? html`<${ResourceLink} name=${one.resource} />` : "–",
              html`<span class="name">${one.owner || "–"}</span>`,
              html`<span class="name">${one.principal ?? one.peer ?? "–"}</span>`,
              html`<span class="text">${one.reason ?? "–"}</span>`,
              html`<code class="small">${one.request_id ?? "–"}</code>`,
            ]}
          />`
        }
        <nav class="pages" aria-label="Pages">
          ${cursor && html`<a href=${link("audit", { resource, action })}>Newest</a>`}
          ${data.next_cursor && html`<a href=${link("audit", { resource, action, cursor: data.next_cursor })}>Older</a>`}
          <button
            type="button"
            class="quiet"
            onClick=${() => save("audit.jsonl", data.items.map((/** @type {any} */ one) => JSON.stringify(one) + "\n").join(""), "application/jsonl")}
          >
            Save this page as JSON lines
          </button>
        </nav>`}</${Loaded}>
  </main>`;
}

/** The newest checkpoint: so many entries, in this tree. @param {{ text: string | null | undefined }} props */
function Sealed({ text }) {
  if (!text) return null;
  const [origin, entries, digest] = text.split("\n");
  return html`<p class="small">
    Sealed: ${entries} entries of <code>${origin}</code>, root <code>${digest}</code>.${" "}
    <code>fencegate audit verify</code> shows whether anybody has changed them.
  </p>`;
}
