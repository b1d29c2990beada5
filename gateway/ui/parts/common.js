// What all views are made of.
import { h } from "../vendor/preact.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import htm from "../vendor/htm.js";
import { NoAnswer, Problem } from "../api.js";
import { useNow } from "../live.js";
import { clock, duration, remaining, state } from "../words.js";

export const html = htm.bind(h);

/** The address of a view, with all that it shows: it can be sent to somebody. @param {string} view @param {Record<string, any>} [params] */
export function link(view, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== "" && value !== false) query.set(name, String(value));
  }
  const text = query.toString();
  return `#/${view}${text ? `?${text}` : ""}`;
}

/** Goes to a view. What only changes the filters of the same view leaves no step behind in the history. @param {string} view @param {Record<string, any>} [params] */
export function go(view, params) {
  const to = link(view, params);
  if (location.hash.startsWith(`#/${view}`)) {
    history.replaceState(null, "", to);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else location.hash = to;
}

/** @param {{ name: string }} props */
export const ResourceLink = ({ name }) => html`<a class="name" href=${link("resource", { name })}>${name}</a>`;

/** A moment, with the exact one beside it. @param {{ at: string | null | undefined }} props */
export const Time = ({ at }) => (at ? html`<time datetime=${at} title=${at}>${clock(at)}</time>` : html`–`);

/** How long ago something was heard, and counting. @param {{ since: number, more?: number }} props */
export function Lasting({ since, more = 0 }) {
  const now = useNow(1000);
  return html`<span class="number">${duration(now - since + more)}</span>`;
}

/** How much of a lock is left: by this page's own clock, since it was heard. @param {{ resource: any, at: number }} props */
export function Left({ resource, at }) {
  const now = useNow(500);
  const left = remaining(resource, now - at);
  if (resource.state === "released" || resource.state === "broken") return html`–`;
  if (left === null) return html`<span>does not expire</span>`;
  const whole = resource.ttl_ms ?? Math.max(left, 1);
  const text = left > 0 ? `${duration(left)} of ${duration(whole)}` : `over since ${duration(left)}`;
  const shown = Math.max(0, Math.min(left, whole));
  return html`<span class="left">
    <meter min="0" max=${whole} value=${shown} low=${whole / 4} aria-label="Time left">${text}</meter>
    <span class="number">${text}</span>
  </span>`;
}

/** @param {{ resource: any, at: number }} props */
export function State({ resource, at }) {
  const now = useNow(1000);
  const { word, mark, kind } = state(resource, now - at);
  return html`<span class="state ${kind}"><span aria-hidden="true">${mark}</span> ${word}</span>${" "}${
    resource.frozen != null && html`<span class="state bad"><span aria-hidden="true">❄</span> frozen</span>`
  }${" "}${
    resource.protected != null && html`<span class="state idle"><span aria-hidden="true">▣</span> protected</span>`
  }`;
}

/**
 * A table. On a narrow screen each row becomes a card, with the heads beside the cells.
 * @param {{
 *   caption: string, heads: (string | { text: string, number?: boolean })[], rows: any[], cells: (row: any) => any[],
 *   id?: (row: any) => string, label?: string,
 * }} props
 */
export function Table({ caption, heads, rows, cells, id }) {
  const of = heads.map((head) => (typeof head === "string" ? { text: head, number: false } : head));
  return html`<table role="table">
    <caption>
      ${caption}
    </caption>
    <thead role="rowgroup">
      <tr role="row">
        ${of.map((head) => html`<th role="columnheader" scope="col" class=${head.number ? "number" : ""}>${head.text}</th>`)}
      </tr>
    </thead>
    <tbody role="rowgroup">
      ${rows.map(
        (row, number) =>
          html`<tr role="row" key=${id ? id(row) : number}>
            ${cells(row).map((cell, at) => html`<td role="cell" data-head=${of[at].text} class=${of[at].number ? "number" : ""}><div class="cell">${cell}</div></td>`)}
          </tr>`,
      )}
    </tbody>
  </table>`;
}

/** A command that can be copied. @param {{ text: string, label?: string }} props */
export function Command({ text, label = "The same on a command line" }) {
  const [told, setTold] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setTold("Copied");
    } catch {
      setTold("Select the text and copy it");
    }
  };
  return html`<div class="command">
    <span class="label">${label}</span>
    <pre tabindex="0" aria-label=${label}>${text}</pre>
    <button type="button" class="quiet" onClick=${copy}>Copy</button> <span role="status">${told}</span>
  </div>`;
}

/** What went wrong, and what can be done about it. @param {{ error: Error | null }} props */
export function Failure({ error }) {
  if (!error) return null;
  if (error instanceof NoAnswer) return null;
  if (!(error instanceof Problem)) return html`<p class="failure" role="alert">${error.message}</p>`;
  return html`<div class="failure" role="alert">
    <p>
      <strong>${error.message}.</strong> ${error.detail && `${error.detail[0].toUpperCase()}${error.detail.slice(1)}.`}
    </p>
    <p class="small">
      ${error.code && html`<a href=${`../docs/errors/${error.code}`}>${error.code}</a>`}
      ${error.requestId && html`· request <code>${error.requestId}</code>`}
    </p>
  </div>`;
}

/**
 * What a view shows of something that it loads: that, or why it is not there. What is old says how old it is.
 * @param {{ live: import("../live.js").Live<any>, children: (data: any, at: number) => any }} props
 */
export function Loaded({ live, children }) {
  const { data, at, error } = live;
  if (data === undefined && !error) return html`<p class="quiet">Loading …</p>`;
  return html`<${Failure} error=${error} /> ${
    data !== undefined &&
    html`<div class=${error ? "old" : ""}>
        ${error && html`<p class="small">This is <${Lasting} since=${at} /> old.</p>`} ${children(data, at)}
      </div>`
  }`;
}

/** A field that filters. It tells what is in it once nobody has typed for a moment. @param {{ label: string, value: string, onInput: (text: string) => void, placeholder?: string }} props */
export function Filter({ label, value, onInput, placeholder }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  useEffect(() => setText(value), [value]);
  /** @param {any} event */
  const input = (event) => {
    const typed = event.target.value;
    setText(typed);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onInput(typed), 250);
  };
  return html`<label
    >${label}
    <input type="text" value=${text} onInput=${input} placeholder=${placeholder} spellcheck="false" autocomplete="off"
  /></label>`;
}

/** @param {{ label: string, value: string, options: [string, string][], onChange: (value: string) => void }} props */
export const Choice = ({ label, value, options, onChange }) =>
  html`<label
    >${label}
    <select value=${value} onChange=${(/** @type {any} */ event) => onChange(event.target.value)}>
      ${options.map(([of, text]) => html`<option value=${of} selected=${of === value}>${text}</option>`)}
    </select></label
  >`;

/** Names the tab after the view. @param {string} text */
export function useTitle(text) {
  useEffect(() => void (document.title = `${text} – Fencegate`), [text]);
}

/** Saves text as a file. @param {string} name @param {BlobPart} content @param {string} type */
export function save(name, content, type) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const to = Object.assign(document.createElement("a"), { href: url, download: name });
  to.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** Pages of something that was loaded at once. @template T @param {T[]} items @param {number} each @param {any[]} of */
export function usePages(items, each, of) {
  const [page, setPage] = useState(0);
  useEffect(() => setPage(0), of);
  const last = Math.max(0, Math.ceil(items.length / each) - 1);
  const shown = Math.min(page, last);
  const turn =
    last === 0
      ? null
      : html`<nav class="pages" aria-label="Pages">
          <button type="button" disabled=${shown === 0} onClick=${() => setPage(shown - 1)}>Before</button>
          <span>${shown * each + 1} to ${Math.min(items.length, (shown + 1) * each)} of ${items.length}</span>
          <button type="button" disabled=${shown === last} onClick=${() => setPage(shown + 1)}>After</button>
        </nav>`;
  return { shown: items.slice(shown * each, (shown + 1) * each), turn };
}
