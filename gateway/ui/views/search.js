// One box for whatever somebody has in hand: a resource, an owner, the id of a request or of an operation.
import { at, get, ifThere } from "../api.js";
import { useLive } from "../live.js";
import { done } from "../words.js";
import { Loaded, ResourceLink, Table, Time, html, link, useTitle } from "../parts/common.js";

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
/** How far back rejections and audit are looked through. */
const LOOKED_AT = 1000;

/** @param {{ params: URLSearchParams }} props */
export function Search({ params }) {
  const text = (params.get("for") ?? "").trim();
  useTitle(`Search for ${text}`);
  const live = useLive(
    async (signal) => {
      const none = { items: [] };
      const list = (/** @type {string} */ what, /** @type {Record<string, any>} */ query) =>
        ifThere(get(at([what], query), { signal }), none);
      const [operation, resources, locks, rejections, audit] = await Promise.all([
        UUID.test(text) ? ifThere(get(at(["operations", text]), { signal }), null) : null,
        list("resources", { prefix: text, limit: 20 }),
        list("locks", { limit: LOOKED_AT }),
        list("rejections", { limit: LOOKED_AT }),
        list("audit", { limit: LOOKED_AT }),
      ]);
      const isOf = (/** @type {any} */ one) =>
        one.request_id === text || one.gateway_request_id === text || (one.owner ?? "").includes(text);
      return {
        operation,
        resources: resources.items,
        locks: locks.items.filter((/** @type {any} */ lock) => lock.owner.includes(text)),
        rejections: rejections.items.filter(isOf),
        audit: audit.items.filter(isOf),
      };
    },
    Infinity,
    [text],
  );
  return html`<main id="view" tabindex="-1">
    <h1>Search for <span class="name">${text}</span></h1>
    <${Loaded} live=${live}>${(/** @type {any} */ found) =>
      html` ${!found.operation && [found.resources, found.locks, found.rejections, found.audit].every((list) => list.length === 0) && html`<p>Nothing was found: no resource that begins so, and no owner, request or operation among what is held, and the newest ${LOOKED_AT} rejections and entries of the audit.</p>`}
      ${found.operation && html`<${Operation} of=${found.operation} />`}
      ${
        found.resources.length > 0 &&
        html`<h2>Resources</h2>
          <ul>
            ${found.resources.map((/** @type {any} */ one) => html`<li><${ResourceLink} name=${one.resource} /></li>`)}
          </ul>
          ${found.resources.length === 20 && html`<p><a href=${link("resources", { prefix: text })}>All that begin so</a></p>`}`
      }
      ${found.locks.length > 0 && html`<${Table} caption="Held by owners whose name has it" heads=${["Resource", "Owner"]} rows=${found.locks} cells=${(/** @type {any} */ one) => [html`<${ResourceLink} name=${one.resource} />`, html`<span class="name">${one.owner}</span>`]} />`}
      ${found.rejections.length > 0 && html`<${Table} caption="Refused writes" heads=${["When", "Resource", "Owner", "Why"]} rows=${found.rejections} cells=${(/** @type {any} */ one) => [html`<${Time} at=${one.at} />`, html`<${ResourceLink} name=${one.resource} />`, html`<span class="name">${one.owner ?? "–"}</span>`, html`<code>${one.reason}</code>`]} />`}
      ${found.audit.length > 0 && html`<${Table} caption="Audit" heads=${["When", "What", "Resource", "Owner"]} rows=${found.audit} cells=${(/** @type {any} */ one) => [html`<${Time} at=${one.at} />`, done(one.action), one.resource ? html`<${ResourceLink} name=${one.resource} />` : "–", html`<span class="name">${one.owner ?? "–"}</span>`]} />`}`}</${Loaded}>
  </main>`;
}

const OUTCOMES = /** @type {Record<string, string>} */ ({
  applied: "It took effect",
  not_applied: "It did not take effect, and will not",
  unknown: "Whether it took effect is not known",
});

/** @param {{ of: any }} props */
const Operation = ({ of }) =>
  html`<h2>Operation</h2>
    <p>
      <strong>${OUTCOMES[of.outcome] ?? of.outcome}</strong
      >${of.kind && html`: ${of.kind.replace("_", " ")} ${of.key && html`<span class="name">${of.key}</span>`}`}${of.resource && html` in <${ResourceLink} name=${of.resource} />`}${of.version != null && `, version ${of.version}`}${of.owner && html`, by <span class="name">${of.owner}</span>`}${of.committed_at && html`, <${Time} at=${of.committed_at} />`}.
    </p>`;
