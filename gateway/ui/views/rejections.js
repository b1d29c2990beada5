// Which writes were refused, why, and how late they were.
import { at, get } from "../api.js";
import { useLive } from "../live.js";
import { plural } from "../words.js";
import { Lateness, isFenced } from "../parts/lateness.js";
import {
  Choice,
  Filter,
  Loaded,
  ResourceLink,
  Table,
  Time,
  go,
  html,
  link,
  usePages,
  useTitle,
} from "../parts/common.js";

/** What `fencegate drill` calls itself: its writes are refused on purpose. */
const DRILL = "fencegate drill";

/** @param {{ params: URLSearchParams }} props */
export function Rejections({ params }) {
  useTitle("Rejections");
  const resource = params.get("resource") ?? "";
  const reason = params.get("reason") ?? "";
  const group = params.get("group") ?? "";
  const live = useLive((signal) => get(at(["rejections"], { resource, reason, limit: 500 }), { signal }), 2000, [
    resource,
    reason,
  ]);
  const filter = (/** @type {Record<string, string>} */ change) =>
    go("rejections", { resource, reason, group, ...change });
  return html`<main id="view" tabindex="-1">
    <h1>Rejections</h1>
    <p>Writes that were refused, and why. What is <em>fenced off</em> could have damaged something: it came late, or from somebody who did not have the lock. The others are told to their writers, who still have it.</p>
    <form class="filters" onSubmit=${(/** @type {any} */ event) => event.preventDefault()}>
      <${Filter} label="Resource" value=${resource} onInput=${(/** @type {string} */ resource) => filter({ resource })} />
      <${Choice} label="Group by" value=${group} options=${[
        ["", "nothing"],
        ["owner", "owner"],
        ["resource", "resource"],
      ]} onChange=${(/** @type {string} */ group) => filter({ group })} />
      ${reason && html`<span>Only <code>${reason}</code> <a href=${link("rejections", { resource, group })}>show all</a></span>`}
    </form>
    <${Loaded} live=${live}>${(/** @type {any} */ data) => html`<${Refused} ...${{ data, resource, group }} />`}</${Loaded}>
  </main>`;
}

/** @param {any[]} items @param {(item: any) => string} by @returns {[string, number][]} */
function counted(items, by) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const item of items) counts.set(by(item), (counts.get(by(item)) ?? 0) + item.times);
  return [...counts].sort(([, one], [, other]) => other - one);
}

/** @param {{ data: any, resource: string, group: string }} props */
function Refused({ data, resource, group }) {
  const { shown, turn } = usePages(data.items, 50, [resource, group]);
  if (data.items.length === 0)
    return html`<section class="empty">
      <p>Nothing was refused. <code>fencegate drill</code> shows on a resource of its own that the fence works.</p>
    </section>`;
  return html`<ul class="counts" aria-label="By reason">
      ${counted(data.items, (item) => item.reason).map(
        ([code, count]) =>
          html`<li>
            <a href=${link("rejections", { resource, group, reason: code })}
              ><strong>${count}</strong> <code>${code}</code></a
            >
          </li>`,
      )}
    </ul>
    <p class="sum">${counted(data.items.filter(isFenced), () => "")[0]?.[1] ?? 0} fenced off</p>
    ${data.next_cursor && html`<p class="small">Of the newest ${data.items.length}.</p>`}
    ${
      group
        ? html`<${Table}
            caption=${`Refused writes by ${group}`}
            heads=${[group === "owner" ? "Owner" : "Resource", { text: "Refused", number: true }, "Worst"]}
            rows=${counted(data.items, (item) => item[group] ?? "")}
            cells=${(/** @type {[string, number]} */ [name, count]) => [group === "resource" ? html`<${ResourceLink} name=${name} />` : html`<span class="name">${name || "–"}</span>`, plural(count, "write"), html`<${Lateness} rejection=${worst(data.items.filter((/** @type {any} */ item) => (item[group] ?? "") === name))} />`]}
          />`
        : html`${turn}<${Table}
              caption="Refused writes, newest first"
              id=${(/** @type {any} */ one) => one.request_id + one.at}
              heads=${["When", "Resource", "Key", "Owner", "Code", "What happened", "Request"]}
              rows=${shown}
              cells=${(/** @type {any} */ one) => [
                html`<${Time} at=${one.at} />`,
                html`<${ResourceLink} name=${one.resource} />`,
                html`<span class="name">${one.key ?? "–"}</span>`,
                html`<span class="name">${one.owner || "–"}</span
                  >${(one.owner ?? "").startsWith(DRILL) && html` <span class="state idle">drill</span>`}`,
                html`<a href=${`../docs/errors/${one.reason}`}><code>${one.reason}</code></a
                  >${one.times > 1 && ` × ${one.times}`}${isFenced(one) && html` <span class="state bad">fenced off</span>`}`,
                html`<${Lateness} rejection=${one} />`,
                html`<code class="small">${one.request_id}</code>`,
              ]}
            />${turn}`
    }`;
}

/** @param {any[]} items */
const worst = (items) =>
  items.reduce((one, other) => ((other.superseded_ms ?? -1) > (one.superseded_ms ?? -1) ? other : one));
