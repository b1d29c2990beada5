// Who holds what, since when, for how long still, and who waits.
import { useEffect, useRef } from "../vendor/hooks.js";
import { at, get } from "../api.js";
import { announce, useLive } from "../live.js";
import { counted, isHeld, plural, remaining } from "../words.js";
import {
  Choice,
  Command,
  Filter,
  Lasting,
  Left,
  Loaded,
  ResourceLink,
  State,
  Table,
  go,
  html,
  link,
  usePages,
  useTitle,
} from "../parts/common.js";

/** The most locks that one look takes. */
const SEEN = 1000;
/** Rows on a page. */
const EACH = 100;
const SORTS = /** @type {Record<string, (a: any, b: any) => number>} */ ({
  name: (a, b) => (a.resource < b.resource ? -1 : 1),
  oldest: (a, b) => b.age_ms - a.age_ms,
  left: (a, b) => (a.expires_in_ms ?? Infinity) - (b.expires_in_ms ?? Infinity),
  waiting: (a, b) => b.queue_length - a.queue_length,
});
const STATES = /** @type {[string, string][]} */ ([
  ["", "held, breaking or draining"],
  ["leased", "held"],
  ["breaking", "breaking"],
  ["draining", "draining"],
  ["frozen", "frozen"],
  ["expired", "expired, may come back"],
  ["broken", "broken"],
  ["all", "all that were not given back"],
]);
/** States that are listed only if asked for. */
const ENDED = ["expired", "broken", "all"];

/** @param {{ params: URLSearchParams }} props */
export function Locks({ params }) {
  useTitle("Locks");
  const prefix = params.get("prefix") ?? "";
  const state = params.get("state") ?? "";
  const sort = params.get("sort") ?? "name";
  const owner = params.get("owner") ?? "";
  const alsoEnded = ENDED.includes(state) ? "true" : undefined;
  const live = useLive(
    async (signal, before) => {
      // The first look takes a page alone: something is to be seen at once.
      const limit = before === undefined ? EACH : SEEN;
      const found = await get(at(["locks"], { prefix, limit, also_ended: alsoEnded }), { signal });
      return { items: found.items, isMore: Boolean(found.next_cursor) };
    },
    1000,
    [prefix, alsoEnded],
  );
  useLapses(live.data?.items, live.at);
  const filter = (/** @type {Record<string, string>} */ change) =>
    go("locks", { prefix, state, sort, owner, ...change });
  return html`<main id="view" tabindex="-1">
    <h1>Locks</h1>
    <form class="filters" onSubmit=${(/** @type {any} */ event) => event.preventDefault()}>
      <${Filter} label="Name begins with" value=${prefix} onInput=${(/** @type {string} */ prefix) => filter({ prefix })} placeholder="job:" />
      <${Filter} label="Owner contains" value=${owner} onInput=${(/** @type {string} */ owner) => filter({ owner })} />
      <${Choice} label="State" value=${state} options=${STATES} onChange=${(/** @type {string} */ state) => filter({ state })} />
      <${Choice} label="Sort by" value=${sort} options=${[
        ["name", "name"],
        ["oldest", "longest held"],
        ["left", "least time left"],
        ["waiting", "most waiting"],
      ]} onChange=${(/** @type {string} */ sort) => filter({ sort })} />
    </form>
    <${Loaded} live=${live}>${(/** @type {any} */ data, /** @type {number} */ at) => html`<${Held} ...${{ data, at, state, sort, owner, prefix }} />`}</${Loaded}>
  </main>`;
}

/** @param {{ data: any, at: number, state: string, sort: string, owner: string, prefix: string }} props */
function Held({ data, at, state, sort, owner, prefix }) {
  const isWanted = (/** @type {any} */ lock) =>
    lock.owner.includes(owner) &&
    (["", "all"].includes(state) || (state === "frozen" ? lock.frozen != null : lock.state === state));
  const wanted = data.items.filter(isWanted).sort(SORTS[sort] ?? SORTS.name);
  const { shown, turn } = usePages(wanted, EACH, [prefix, state, sort, owner]);
  if (data.items.length === 0 && !prefix && !ENDED.includes(state)) return html`<${Nothing} />`;
  const waiting = data.items.reduce((/** @type {number} */ sum, /** @type {any} */ lock) => sum + lock.queue_length, 0);
  const seen = `${data.isMore ? `The first ${data.items.length} by name: ` : ""}${counted(data.items)}`;
  return html`<p class="sum">
      ${seen} · ${`${waiting} waiting`}${data.isMore ? " · name a beginning to see others" : ""}
    </p>
    ${wanted.length === 0 && html`<p>There is no such lock${data.isMore && " among them"}.</p>`} ${turn}
    <${Table}
      caption=${wanted.every(isHeld) ? "Resources whose locks keep others out" : "Resources whose locks were not given back"}
      id=${(/** @type {any} */ lock) => lock.resource}
      heads=${["Resource", "Owner", { text: "Since", number: true }, "Left", { text: "Waiting", number: true }, "State"]}
      rows=${shown}
      cells=${(/** @type {any} */ lock) => [
        html`<${ResourceLink} name=${lock.resource} />`,
        html`<span class="name">${lock.owner || "–"}</span>`,
        html`<${Lasting} since=${at} more=${lock.age_ms} />`,
        html`<${Left} resource=${lock} at=${at} />`,
        lock.queue_length,
        html`<${State} resource=${lock} at=${at} />`,
      ]}
    />
    ${turn}`;
}

/** Tells who does not look that locks have lapsed since. @param {any[] | undefined} items @param {number} at */
function useLapses(items, at) {
  const alive = useRef(/** @type {Map<string, { lock: any, at: number }>} */ (new Map()));
  useEffect(() => {
    if (!items) return;
    const isAlive = (/** @type {any} */ lock) => lock.state === "leased" && (remaining(lock, 0) ?? 1) > 0;
    const now = new Map(items.filter(isAlive).map((lock) => [lock.resource, { lock, at }]));
    // One that was given back is listed no more, either: it had time left.
    const isOver = (/** @type {{ lock: any, at: number }} */ seen) => (remaining(seen.lock, at - seen.at) ?? 1) <= 0;
    const lapsed = [...alive.current].filter(([name, seen]) => !now.has(name) && isOver(seen));
    if (lapsed.length > 0) announce(`${plural(lapsed.length, "lock")} lapsed`);
    alive.current = now;
  }, [at]);
}

const Nothing = () =>
  html`<section class="empty">
    <p>No lock is held. Somebody takes one so:</p>
    <${Command}
      label="Take a lock"
      text=${`curl -X POST ${location.origin}/locks -H 'content-type: application/json' \\\n  -d '{"resource":"invoices:2026","owner":"me","ttl":"30s"}'`}
    />
    <p>What was held before is under <a href=${link("resources")}>Resources</a>.</p>
  </section>`;
