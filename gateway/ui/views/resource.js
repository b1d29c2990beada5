// One resource: who has it and had it, who waits, what is in it, who bounced, and what can be done.
import { useState } from "../vendor/hooks.js";
import { at, get, ifThere } from "../api.js";
import { jobOf } from "../jobs/record.js";
import { needsKey, useLive, useNow } from "../live.js";
import { clock, done, duration, plural, size } from "../words.js";
import { ActionButton, actionsOn, hasButtons } from "../parts/actions.js";
import { JobLink } from "../parts/jobs.js";
import { Lateness } from "../parts/lateness.js";
import { Preview } from "../parts/preview.js";
import { Lasting, Left, Loaded, State, Table, Time, html, link, useTitle } from "../parts/common.js";

/** @param {{ params: URLSearchParams }} props */
export function Resource({ params }) {
  const name = params.get("name") ?? "";
  useTitle(name);
  const live = useLive(
    async (signal) => {
      const [resource, waiters] = await Promise.all([
        get(at(["resources", name]), { signal }),
        ifThere(get(at(["resources", name, "waiters"], { limit: 100 }), { signal })),
      ]);
      return { resource, waiters };
    },
    1000,
    [name],
  );
  const rest = useLive(
    async (signal) => {
      const of = (/** @type {string} */ what, limit = 100) =>
        ifThere(get(at([what], { resource: name, limit }), { signal }));
      const within = (/** @type {string} */ what) =>
        ifThere(get(at(["resources", name, what], { limit: 100 }), { signal }));
      const [audit, rejections, versions, objects] = await Promise.all([
        of("audit"),
        of("rejections", 20),
        within("versions"),
        within("objects"),
      ]);
      return { audit, rejections, versions, objects };
    },
    5000,
    [name],
  );
  const rights = useLive((signal) => get(at(["access"], { resource: name }), { signal }), 30_000, [
    name,
    needsKey.value,
  ]);
  const reload = () => (live.reload(), rest.reload());
  const resource = live.data?.resource;
  const job = jobOf(name);
  return html`<main id="view" tabindex="-1">
    <h1 class="name">${name}</h1>
    ${job && html`<p>How its runs are doing: job <${JobLink} name=${job.text} />.</p>`}
    <${Loaded} live=${live}>${(/** @type {any} */ data, /** @type {number} */ at) => html`<${Now} ...${{ ...data, at, may: rights.data?.may ?? [], reload }} />`}</${Loaded}>
    ${
      resource &&
      html`<${Loaded} live=${rest}>${(/** @type {any} */ data) =>
        html` <${History} audit=${data.audit} versions=${data.versions} resource=${resource} />
          <${Objects} name=${name} objects=${data.objects} />
          <${Late} name=${name} rejections=${data.rejections} />
          <${Versions} name=${name} versions=${data.versions} />`}</${Loaded}>`
    }
  </main>`;
}

/** @param {{ resource: any, waiters: any, at: number, may: string[], reload: () => void }} props */
function Now({ resource, waiters, at, may, reload }) {
  const now = useNow(1000);
  const actions = hasButtons ? actionsOn(resource, now - at).filter(({ right }) => may.includes(right)) : [];
  const isFree = resource.state === "released" || resource.state === "broken";
  return html`<section aria-labelledby="now">
    <h2 id="now" class="unseen">Now</h2>
    <dl class="facts">
      <div>
        <dt>State</dt>
        <dd><${State} resource=${resource} at=${at} /></dd>
      </div>
      <div>
        <dt>${isFree ? "Last owner" : "Owner"}</dt>
        <dd class="name">
          ${resource.owner || "–"}${resource.principal && html` <span class="small">as ${resource.principal}</span>`}
        </dd>
      </div>
      <div>
        <dt>${isFree ? "Taken" : "Held for"}</dt>
        <dd>
          ${isFree ? html`<${Time} at=${resource.acquired_at} />` : html`<${Lasting} since=${at} more=${resource.age_ms} />`}
        </dd>
      </div>
      ${
        !isFree &&
        html`<div>
            <dt>Left</dt>
            <dd><${Left} resource=${resource} at=${at} /></dd>
          </div>
          <div>
            <dt>Last renewed</dt>
            <dd><${Lasting} since=${at} more=${resource.renewed_ms_ago} /> ago</dd>
          </div>`
      }
      <div>
        <dt>Version</dt>
        <dd>${resource.version}</dd>
      </div>
      <div>
        <dt>Objects</dt>
        <dd>${resource.objects}</dd>
      </div>
      ${
        resource.frozen != null &&
        html`<div>
          <dt>Frozen, because</dt>
          <dd class="text">${resource.frozen}</dd>
        </div>`
      }
      ${
        resource.protected != null &&
        html`<div>
          <dt>Protected, because</dt>
          <dd class="text">${resource.protected}</dd>
        </div>`
      }
    </dl>
    ${actions.length > 0 && html`<div class="buttons" role="group" aria-label="Actions">${actions.map(({ action }) => html`<${ActionButton} key=${action.title} action=${action} onDone=${reload} />`)}</div>`}
    ${
      waiters &&
      waiters.items.length > 0 &&
      html`<h2>Waiting</h2>
        <${Table}
          caption="Who waits, in order"
          heads=${[{ text: "Place", number: true }, "Owner", "Since", "Connected"]}
          rows=${waiters.items}
          cells=${(/** @type {any} */ one) => [one.position, html`<span class="name">${one.owner || "–"}</span>`, html`<${Time} at=${one.since} />`, one.present ? "yes" : "no: it is passed over"]}
        />`
    }
  </section>`;
}

/** The grants, each with how it ended and what was written under it. @param {{ audit: any, versions: any, resource: any }} props */
function History({ audit, versions, resource }) {
  if (!audit) return html`<p class="small">You may not see who held it before.</p>`;
  const entries = audit.items;
  const written = versions?.items ?? [];
  const isGrant = (/** @type {any} */ entry) => ["grant", "transfer", "fence"].includes(entry.action);
  return html`<section aria-labelledby="history">
    <h2 id="history">Fence history</h2>
    ${entries.length === 0 && html`<p>Nothing is recorded.</p>`}
    <ol class="history">
      ${entries.map((/** @type {any} */ entry, /** @type {number} */ number) => {
        const later = entries.slice(0, number).reverse();
        const next = later.find(isGrant);
        const count = isGrant(entry)
          ? written.filter(
              (/** @type {any} */ one) => one.committed_at >= entry.at && (!next || one.committed_at < next.at),
            ).length
          : 0;
        return html`<li class=${isGrant(entry) ? "grant" : "act"} key=${entry.at + entry.action}>
          <${Time} at=${entry.at} /> <strong>${done(entry.action)}</strong>
          ${isGrant(entry) && html` to <span class="name">${entry.owner || "–"}</span>`}
          ${!isGrant(entry) && entry.principal && html` by <span class="name">${entry.principal}</span>`}
          ${entry.reason && html`: <span class="text">${entry.reason}</span>`}
          ${isGrant(entry) && html`<span class="small">${[ended(entry, next, resource), count > 0 && plural(count, "write")].filter(Boolean).map((text) => ` · ${text}`)}</span>`}
        </li>`;
      })}
    </ol>
    ${audit.next_cursor && html`<p><a href=${link("audit", { resource: resource.resource })}>All of it</a></p>`}
  </section>`;
}

/** The end of a grant: the next one says it, or the resource. @param {any} grant @param {any} next @param {any} resource */
function ended(grant, next, resource) {
  const isOver = resource.state === "released" || resource.state === "broken";
  if (!next && !isOver)
    return (
      {
        leased: "holds it",
        breaking: "is being broken",
        draining: "waits for the requests of the one before",
        expired: "has expired, and may come back",
      }[/** @type {string} */ (resource.state)] ?? resource.state
    );
  const end = next ? next.previous_end : resource.state;
  const at = next ? next.previous_ended_at : resource.ended_at;
  const after = at == null ? "" : ` after ${duration(Date.parse(at) - Date.parse(grant.at))}`;
  const taker = next?.owner || "somebody";
  if (end == null) return "";
  return (
    {
      lapsed: `lapsed, taken over by ${taker}${after}`,
      transferred: `handed over to ${taker}${after}`,
      fenced: `fenced off by ${taker}${after}`,
      void: "void since a re-fence",
    }[/** @type {string} */ (end)] ?? `${end}${after}`
  );
}

/** @param {{ name: string, objects: any }} props */
function Objects({ name, objects }) {
  const [shown, setShown] = useState(/** @type {string | null} */ (null));
  if (!objects) return html`<p class="small">You may not see what is in it.</p>`;
  if (objects.items.length === 0) return null;
  return html`<section aria-labelledby="objects">
    <h2 id="objects">Objects</h2>
    <${Table}
      caption="What is stored"
      id=${(/** @type {any} */ one) => one.key}
      heads=${["Key", { text: "Size", number: true }, "Type", { text: "Version", number: true }, "Written", "Contents"]}
      rows=${objects.items}
      cells=${(/** @type {any} */ one) => [
        html`<span class="name">${one.key}</span>`,
        size(one.size),
        html`<span class="name">${one.content_type}</span>`,
        one.version,
        html`<${Time} at=${one.written_at} />`,
        html`<button
            type="button"
            class="quiet"
            aria-expanded=${shown === one.key}
            onClick=${() => setShown(shown === one.key ? null : one.key)}
          >
            ${shown === one.key ? "Hide" : "Show"}<span class="unseen"> ${one.key}</span>
          </button>
          ${shown === one.key && html`<${Preview} name=${name} object=${one} />`}`,
      ]}
    />
    ${objects.next_cursor && html`<p class="small">The first ${objects.items.length} of them.</p>`}
  </section>`;
}

/** @param {{ name: string, rejections: any }} props */
function Late({ name, rejections }) {
  if (!rejections || rejections.items.length === 0) return null;
  return html`<section aria-labelledby="late">
    <h2 id="late">Refused writes</h2>
    <ul class="plain">
      ${rejections.items.map((/** @type {any} */ one) => html`<li key=${one.request_id + one.at}><${Time} at=${one.at} /> <code>${one.reason}</code> <span class="name">${one.key ?? ""}</span> <${Lateness} rejection=${one} /></li>`)}
    </ul>
    <p><a href=${link("rejections", { resource: name })}>All of them</a></p>
  </section>`;
}

/** @param {{ name: string, versions: any }} props */
function Versions({ name, versions }) {
  const [shown, setShown] = useState(/** @type {string | null} */ (null));
  if (!versions || versions.items.length === 0) return null;
  return html`<section aria-labelledby="versions">
    <h2 id="versions">Versions</h2>
    <${Table}
      caption="What was written, newest first"
      id=${(/** @type {any} */ one) => one.operation + (one.key ?? "")}
      heads=${[{ text: "Version", number: true }, "Kind", "Key", { text: "Size", number: true }, "By", "When", "Contents"]}
      rows=${versions.items}
      cells=${(/** @type {any} */ one) => [
        one.version,
        one.kind.replace("_", " "),
        html`<span class="name">${one.key ?? "–"}</span>`,
        one.size == null ? "–" : size(one.size),
        html`<span class="name">${one.owner || "–"}</span>`,
        html`<time datetime=${one.committed_at}>${clock(one.committed_at)}</time>`,
        one.kind === "put" &&
          html`<button
              type="button"
              class="quiet"
              aria-expanded=${shown === one.operation}
              onClick=${() => setShown(shown === one.operation ? null : one.operation)}
            >
              ${shown === one.operation ? "Hide" : "Show"}<span class="unseen"> version ${one.version}</span>
            </button>
            ${shown === one.operation && html`<${Preview} name=${name} object=${one} version=${one.version} />`}`,
      ]}
    />
  </section>`;
}
