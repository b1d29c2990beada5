// Who may do what. It is changed with `fencegate access apply`, not here.
import { useState } from "../vendor/hooks.js";
import { at, get, post } from "../api.js";
import { needsKey, useLive } from "../live.js";
import { Command, Failure, Loaded, Table, html, useTitle } from "../parts/common.js";

const ACTIONS = [
  "lock",
  "fence",
  "fence-force",
  "write",
  "clear",
  "read",
  "list",
  "forward-read",
  "observe",
  "break",
  "freeze",
  "protect",
  "resolve",
  "delegate",
  "admin",
];

/** @param {{ params: URLSearchParams }} _ */
export function Access(_) {
  useTitle("Access");
  const own = useLive((signal) => get(at(["access"]), { signal }), 10_000, [needsKey.value]);
  return html`<main id="view" tabindex="-1">
    <h1>Access</h1>
    <${Loaded} live=${own}>${(/** @type {any} */ data) =>
      html` <p>
          ${data.principal ? html`You are <strong class="name">${data.principal}</strong>, and may ${data.may.length > 0 ? data.may.join(", ") : "do nothing"}.` : "No rules of access are in force: whoever reaches this gateway may do everything."}
        </p>
        ${data.may.includes("admin") && html`<${Rules} isRuled=${data.principal !== null} />`}`}</${Loaded}>
  </main>`;
}

/** @param {{ isRuled: boolean }} props */
function Rules({ isRuled }) {
  const rules = useLive((signal) => get(at(["admin", "access"]), { signal }), 10_000, []);
  const usage = useLive((signal) => get(at(["admin", "usage"], { limit: 100 }), { signal }), 5_000, []);
  return html`<${Loaded} live=${rules}>${(/** @type {any} */ data) =>
    data.rules === null
      ? html`<${Command} label="Put the first rules in force" text="fencegate access init" />`
      : html`<${Ask} />
          <h2>Rules</h2>
          <p class="small">Generation ${data.generation}. They are changed with <code>fencegate access apply</code>.</p>
          <pre tabindex="0" aria-label="Rules of access" class="text">${data.rules}</pre>`}</${Loaded}>
    ${
      isRuled &&
      html`<h2>Use</h2><${Loaded} live=${usage}>${(/** @type {any} */ data) =>
        data.items.length === 0
          ? html`<p>Nobody has called this gateway since it started.</p>`
          : html`<${Table}
              caption="What principals have and had at this gateway"
              heads=${["Principal", { text: "Requests", number: true }, { text: "Refused", number: true }, "Has"]}
              rows=${data.items}
              cells=${(/** @type {any} */ one) => [
                html`<span class="name">${one.principal}</span>`,
                one.requests,
                one.refused,
                Object.entries(one.held)
                  .filter(([, count]) => Number(count) > 0)
                  .map(([what, count]) => `${count} ${what.replaceAll("_", " ")}`)
                  .join(", ") || "nothing",
              ]}
            />`}</${Loaded}>`
    }`;
}

/** May somebody do something? */
function Ask() {
  const [answer, setAnswer] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  /** @param {any} event */
  const ask = async (event) => {
    event.preventDefault();
    const { principal, action, resource } = event.target.elements;
    setError(null);
    setAnswer(null);
    try {
      setAnswer(
        await post(at(["admin", "access", "explain"]), {
          principal: principal.value,
          action: action.value,
          resource: resource.value,
        }),
      );
    } catch (problem) {
      setError(/** @type {Error} */ (problem));
    }
  };
  return html`<h2>May somebody do something?</h2>
    <form class="filters" onSubmit=${ask}>
      <label>Principal <input name="principal" type="text" required autocomplete="off" spellcheck="false" /></label>
      <label
        >Action
        <select name="action">
          ${ACTIONS.map((action) => html`<option>${action}</option>`)}
        </select></label
      >
      <label
        >Resource <input name="resource" type="text" required autocomplete="off" spellcheck="false" placeholder="crm:7"
      /></label>
      <button type="submit">Ask</button>
    </form>
    <${Failure} error=${error} />
    <p role="status">${answer && html`<strong>${answer.allowed ? "Yes" : "No"}</strong>: ${answer.why}`}</p>`;
}
