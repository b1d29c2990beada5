// All resources that anybody ever held, page by page.
import { at, get } from "../api.js";
import { useLive } from "../live.js";
import { Filter, Lasting, Loaded, ResourceLink, State, Table, go, html, link, useTitle } from "../parts/common.js";

/** @param {{ params: URLSearchParams }} props */
export function Resources({ params }) {
  useTitle("Resources");
  const prefix = params.get("prefix") ?? "";
  const cursor = params.get("cursor") ?? "";
  const live = useLive((signal) => get(at(["resources"], { prefix, cursor, limit: 100 }), { signal }), 5000, [
    prefix,
    cursor,
  ]);
  return html`<main id="view" tabindex="-1">
    <h1>Resources</h1>
    <form class="filters" onSubmit=${(/** @type {any} */ event) => event.preventDefault()}>
      <${Filter} label="Name begins with" value=${prefix} onInput=${(/** @type {string} */ prefix) => go("resources", { prefix })} placeholder="invoices:" />
    </form>
    <${Loaded} live=${live}>${(/** @type {any} */ data, /** @type {number} */ at) =>
      data.items.length === 0
        ? html`<p>
            There is no resource ${prefix ? html`whose name begins with <code>${prefix}</code>` : "yet"}: one begins
            with its first lock.
          </p>`
        : html`<${Table}
              caption="Resources"
              id=${(/** @type {any} */ one) => one.resource}
              heads=${["Resource", "Last owner", { text: "Since", number: true }, { text: "Version", number: true }, { text: "Objects", number: true }, "State"]}
              rows=${data.items}
              cells=${(/** @type {any} */ one) => [
                html`<${ResourceLink} name=${one.resource} />`,
                html`<span class="name">${one.owner || "–"}</span>`,
                html`<${Lasting} since=${at} more=${one.age_ms} />`,
                one.version,
                one.objects,
                html`<${State} resource=${one} at=${at} />`,
              ]}
            />
            <nav class="pages" aria-label="Pages">
              ${cursor && html`<a href=${link("resources", { prefix })}>First page</a>`}
              ${data.next_cursor && html`<a href=${link("resources", { prefix, cursor: data.next_cursor })}>Next page</a>`}
            </nav>`}</${Loaded}>
  </main>`;
}
