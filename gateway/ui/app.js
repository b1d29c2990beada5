// The frame: which view is shown, what is found in all of them, and what the keys do.
import { render } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/hooks.js";
import { at, get, key, signIn } from "./api.js";
import { needsKey, paused, said, silentSince, useLive, useNow, useWatched } from "./live.js";
import { duration } from "./words.js";
import { go, html, link } from "./parts/common.js";
import { SignIn } from "./parts/signin.js";
import { Access } from "./views/access.js";
import { Audit } from "./views/audit.js";
import { Events } from "./views/events.js";
import { Intents } from "./views/intents.js";
import { Job } from "./views/job.js";
import { Jobs } from "./views/jobs.js";
import { Locks } from "./views/locks.js";
import { Rejections } from "./views/rejections.js";
import { Resource } from "./views/resource.js";
import { Resources } from "./views/resources.js";
import { Run } from "./views/run.js";
import { Search } from "./views/search.js";
import { Status } from "./views/status.js";

/** The views that have a place in the navigation, with the key that leads there behind `g`. */
const VIEWS = /** @type {[string, string, any, string][]} */ ([
  ["locks", "Locks", Locks, "l"],
  ["resources", "Resources", Resources, "r"],
  ["rejections", "Rejections", Rejections, "j"],
  ["jobs", "Jobs", Jobs, "b"],
  ["events", "Events", Events, "e"],
  ["audit", "Audit", Audit, "a"],
  ["intents", "Intents", Intents, "i"],
  ["access", "Access", Access, "c"],
  ["status", "Status", Status, "s"],
]);
const OTHERS = /** @type {Record<string, any>} */ ({ resource: Resource, job: Job, run: Run, search: Search });
const NO_KEYS = "fencegate-no-shortcuts";

/** The view that the address names, with what it shows. */
function route() {
  const [view, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { view: view || "locks", params: new URLSearchParams(query ?? "") };
}

function App() {
  const [{ view, params }, setRoute] = useState(route());
  const wantsKey = useWatched(needsKey);
  useEffect(() => {
    const follow = () => setRoute(route());
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  // Another view begins at its top, also for whoever hears it.
  const about = view + (params.get("name") ?? "") + (params.get("run") ?? "");
  const before = useRef(about);
  useEffect(() => {
    if (before.current === about) return;
    before.current = about;
    scrollTo(0, 0);
    document.getElementById("view")?.focus();
  }, [about]);
  const found = VIEWS.find(([name]) => name === view)?.[2] ?? OTHERS[view] ?? Locks;
  return html`<a
      class="skip"
      href="#view"
      onClick=${(/** @type {any} */ event) => (event.preventDefault(), document.getElementById("view")?.focus())}
      >To the contents</a
    >
    <${Head} view=${view} hasNav=${!wantsKey} />
    <${Silence} />
    ${wantsKey ? html`<${SignIn} onDone=${() => setRoute(route())} />` : html`<${found} key=${about} params=${params} />`}
    <${Keys} />
    <${Said} />`;
}

/** @param {{ view: string, hasNav: boolean }} props */
function Head({ view, hasNav }) {
  const isPaused = useWatched(paused);
  const ready = useLive((signal) => get(at(["readyz"], { grants: 1 }), { signal }), 2000, []);
  const box = useRef(/** @type {HTMLInputElement | null} */ (null));
  /** @param {any} event */
  const search = (event) => {
    event.preventDefault();
    const text = box.current?.value.trim();
    if (text) go("search", { for: text });
  };
  return html`<header>
    <div class="bar">
      <a class="brand" href="#/locks">fencegate</a>
      ${
        hasNav &&
        html`<form role="search" onSubmit=${search}>
            <input
              id="search"
              ref=${box}
              type="search"
              aria-label="Search for a resource, an owner, a request or an operation"
              placeholder="Search ( / )"
              autocomplete="off"
              spellcheck="false"
            />
          </form>
          <a class="parts" href="#/status"
            >${ready.data?.parts.map((/** @type {any} */ part) => html`<span class="part ${part.ready ? "good" : "bad"}">${part.part} <span aria-hidden="true">${part.ready ? "●" : "✕"}</span><span class="unseen">${part.ready ? "ready" : "not ready"}</span></span> `)}</a
          >`
      }
      <span class="grow"></span>
      ${hasNav && html`<button type="button" class="quiet" aria-pressed=${isPaused} onClick=${() => paused.set(!isPaused)}>${isPaused ? "Go on" : "Pause"}</button>`}
      ${key() && html`<button type="button" class="quiet" onClick=${() => (signIn(null), needsKey.set(true))}>Sign out</button>`}
    </div>
    ${
      hasNav &&
      html`<nav aria-label="Views">
        <ul>
          ${VIEWS.map(([name, text]) => html`<li><a href=${link(name)} aria-current=${view === name ? "page" : undefined}>${text}</a></li>`)}
        </ul>
      </nav>`
    }
  </header>`;
}

/** Says that the gateway does not answer, and for how long: what is shown is as old. */
function Silence() {
  const since = useWatched(silentSince);
  const isPaused = useWatched(paused);
  const now = useNow(1000);
  useEffect(() => void document.body.classList.toggle("silent", since !== null), [since]);
  return html`<div role="status" class="banners">
    ${since !== null && html`<p class="banner bad">The gateway has not answered for ${duration(now - since)}. What is shown is at least as old. It is asked again every few seconds.</p>`}
    ${since === null && isPaused && html`<p class="banner">Paused: nothing is asked for.</p>`}
  </div>`;
}

const Said = () => html`<p class="unseen" role="status" aria-live="polite">${useWatched(said)}</p>`;

/** The keys, and a dialog that tells them. */
function Keys() {
  const [isShown, setShown] = useState(false);
  const [isOff, setOff] = useState(localStorage.getItem(NO_KEYS) !== null);
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    let awaitsView = false;
    /** @param {KeyboardEvent} event */
    const press = (event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      const types = target.closest("input, select, textarea, dialog");
      if (types || event.ctrlKey || event.metaKey || event.altKey || isOff) return;
      const to = awaitsView ? VIEWS.find(([, , , key]) => key === event.key) : undefined;
      awaitsView = event.key === "g";
      if (to) go(to[0]);
      else if (event.key === "/") document.getElementById("search")?.focus();
      else if (event.key === "?") setShown(true);
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, [isOff]);
  useEffect(() => {
    if (isShown) dialog.current?.showModal();
  }, [isShown]);
  /** @param {any} event */
  const turn = (event) => {
    if (event.target.checked) localStorage.removeItem(NO_KEYS);
    else localStorage.setItem(NO_KEYS, "");
    setOff(!event.target.checked);
  };
  return html`<footer><button type="button" class="quiet" onClick=${() => setShown(true)}>Keys</button></footer>
    ${
      isShown &&
      html`<dialog ref=${dialog} onClose=${() => setShown(false)} aria-labelledby="keys">
        <h2 id="keys">Keys</h2>
        <dl class="facts">
          <div>
            <dt><kbd>/</kbd></dt>
            <dd>Search</dd>
          </div>
          ${VIEWS.map(
            ([, text, , key]) =>
              html`<div>
                <dt><kbd>g</kbd> <kbd>${key}</kbd></dt>
                <dd>${text}</dd>
              </div>`,
          )}
          <div>
            <dt><kbd>?</kbd></dt>
            <dd>This list</dd>
          </div>
        </dl>
        <label class="choice"><input type="checkbox" checked=${!isOff} onChange=${turn} /> Keys do this</label>
        <form method="dialog"><button>Close</button></form>
      </dialog>`
    }`;
}

render(html`<${App} />`, /** @type {HTMLElement} */ (document.getElementById("page")));
