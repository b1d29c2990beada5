// What is written, as it is written.
import { useState } from "../vendor/hooks.js";
import { at, get } from "../api.js";
import { useLive } from "../live.js";
import { size } from "../words.js";
import { Filter, Loaded, ResourceLink, Table, Time, go, html, useTitle } from "../parts/common.js";

/** How many are kept to be looked at. */
const KEPT = 500;

/** @param {{ params: URLSearchParams }} props */
export function Events({ params }) {
  useTitle("Events");
  const wanted = params.get("resource") ?? "";
  const [since] = useState(() => new Date().toISOString());
  const live = useLive(
    async (signal, before) => {
      if (!before) {
        const { next_cursor } = await get(at(["events"], { after: "now", limit: 1 }), { signal });
        return { items: /** @type {any[]} */ ([]), after: next_cursor };
      }
      const found = await get(at(["events"], { after: before.after, limit: 500, wait: "10s" }), {
        signal,
        within: 15_000,
      });
      return { items: [...found.items.reverse(), ...before.items].slice(0, KEPT), after: found.next_cursor };
    },
    250,
    [],
  );
  const isWanted = (/** @type {any} */ event) => event.resource.startsWith(wanted);
  return html`<main id="view" tabindex="-1">
    <h1>Events</h1>
    <p>Every write of every resource since <${Time} at=${since} />, newest first.</p>
    <form class="filters" onSubmit=${(/** @type {any} */ event) => event.preventDefault()}>
      <${Filter} label="Resource begins with" value=${wanted} onInput=${(/** @type {string} */ resource) => go("events", { resource })} />
    </form>
    <${Loaded} live=${live}>${(/** @type {any} */ data) => {
      const shown = data.items.filter(isWanted);
      return shown.length === 0
        ? html`<p>Nothing was written since. This view waits for it.</p>`
        : html`<${Table}
            caption="Writes, newest first"
            id=${(/** @type {any} */ one) => one.event + (one.key ?? "")}
            heads=${["When", "Resource", { text: "Version", number: true }, "Kind", "Key", { text: "Size", number: true }, "By", "Event"]}
            rows=${shown}
            cells=${(/** @type {any} */ one) => [
              html`<${Time} at=${one.committed_at} />`,
              html`<${ResourceLink} name=${one.resource} />`,
              one.version,
              one.kind.replace("_", " "),
              html`<span class="name">${one.key ?? "–"}</span>`,
              one.size == null ? "–" : size(one.size),
              html`<span class="name">${one.owner || "–"}</span>`,
              html`<code class="small">${one.event}</code>`,
            ]}
          />`;
    }}</${Loaded}>
  </main>`;
}
