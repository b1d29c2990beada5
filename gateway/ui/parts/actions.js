// What operators do: one dialog for all of it. Nothing on the page changes before the gateway says so.
import { render } from "../vendor/preact.js";
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { at, NoAnswer, post, Problem } from "../api.js";
import { duration, isHeld, plural, quoted, remaining } from "../words.js";
import { Command, Failure, html } from "./common.js";

/** Whether this gateway serves the page with buttons. */
export const hasButtons = document.body.dataset.mode === "full";

/** What is filled in. @typedef {{ reason: string, after: string, slot: string, resume: boolean }} Form */
/**
 * One post is a `call`. What takes more than that is an `act`, which may be done again if nobody knows whether it was done: then
 * all that was filled in stays as it is.
 * @typedef {{
 *   title: string, what: string, verb: string,
 *   call?: (form: Form) => [string[], any], act?: (form: Form) => Promise<any>,
 *   command: (form: Form) => string,
 *   chooses?: [string, string][], confirm?: (form: Form) => string | null, isGrave?: boolean,
 *   asksForRun?: boolean, wrong?: (form: Form) => string | null, reason?: { label: string, most: number },
 * }} Action
 */

/** What can be done to a resource, by the word of the right that it needs. @param {any} resource @param {number} passedMs */
export function actionsOn(resource, passedMs) {
  const name = resource.resource;
  /** @param {string} verb @param {string} title @param {string} what @returns {Action} */
  const mark = (verb, title, what) => ({
    title,
    what,
    verb: title,
    call: ({ reason }) => [["resources", name, verb], { reason }],
    command: ({ reason }) => `fence ${verb} --reason ${quoted(reason || "…")} ${quoted(name)}`,
  });
  /** @type {{ right: string, action: Action }[]} */
  const all = [];
  if (isHeld(resource)) all.push({ right: "break", action: breaking(resource, passedMs) });
  all.push(
    resource.frozen != null
      ? {
          right: "freeze",
          action: mark("unfreeze", "Unfreeze", `Writers of ${name} go on, and it can be locked again.`),
        }
      : {
          right: "freeze",
          action: mark(
            "freeze",
            "Freeze",
            `Stops all writers of ${name}, whoever they are, and nobody gets its lock, until it is unfrozen. Its holder may renew and release.`,
          ),
        },
    resource.protected != null
      ? { right: "protect", action: mark("unprotect", "Lift protection", `${name} can be deleted as a whole again.`) }
      : {
          right: "protect",
          action: mark(
            "protect",
            "Protect",
            `Forbids to delete ${name} as a whole. Single objects may still be written and deleted.`,
          ),
        },
  );
  return all;
}

/** The longest that a break is put off: no lock that expires lasts longer, and a lock that expires sooner ends then. */
const WHEN_IT_EXPIRES = "24h";

/** When a break is due, for `fence`, which takes the lock's own end if nothing is said. @param {string} after */
export const dueFlag = (after) =>
  after === "0s" ? "--now " : after === WHEN_IT_EXPIRES ? "" : `--after ${after || "…"} `;

/** @param {any} resource @param {number} passedMs @returns {Action} */
export function breaking(resource, passedMs) {
  const name = resource.resource;
  const left = remaining(resource, passedMs);
  const waits =
    resource.queue_length > 0
      ? ` ${plural(resource.queue_length, "caller")} ${resource.queue_length === 1 ? "waits" : "wait"} for it.`
      : "";
  const expires = /** @type {[string, string][]} */ (
    left === null ? [] : [[WHEN_IT_EXPIRES, `when it expires anyway${left > 0 ? ` (${duration(left)})` : ""}`]]
  );
  return {
    title: "Break the lock",
    what: `Takes ${name} away from ${resource.owner || "its holder"}, who cannot renew until then, and can write nothing to it from then on.${left === null ? " It does not expire: say when it ends." : ""}${waits}`,
    verb: "Break",
    isGrave: true,
    chooses: [...expires, ["0s", "now"], ["30s", "in 30 s"], ["5m", "in 5 min"]],
    confirm: ({ after }) => (after === "0s" || resource.queue_length > 0 ? name : null),
    call: ({ reason, after }) => [["resources", name, "break"], { reason, after }],
    command: ({ reason, after }) => `fence break ${dueFlag(after)}--reason ${quoted(reason || "…")} ${quoted(name)}`,
  };
}

/** A button that opens the dialog of an action. @param {{ action: Action, onDone: (answer: any) => void }} props */
export function ActionButton({ action, onDone }) {
  return html`<button
    type="button"
    class=${action.isGrave ? "grave" : ""}
    onClick=${(/** @type {any} */ event) => openDialog(action, onDone, event.currentTarget)}
  >
    ${action.verb}
  </button>`;
}

/**
 * Opens a dialog outside the view: once the view shows that the action was done, its button is gone, but the dialog may still
 * have to tell that the answer was lost.
 * @param {Action} action @param {(answer: any) => void} onDone @param {HTMLElement} button
 */
function openDialog(action, onDone, button) {
  // A place of its own: an answer that comes after this dialog was left closes no other.
  const place = document.body.appendChild(document.createElement("div"));
  const close = () => {
    if (!place.isConnected) return;
    removeEventListener("hashchange", close);
    render(null, place);
    place.remove();
    button.focus();
  };
  addEventListener("hashchange", close);
  const done = (/** @type {any} */ answer) => (close(), onDone(answer));
  render(html`<${ActionDialog} action=${action} onClose=${close} onDone=${done} />`, place);
}

/** The choice in a dialog that was just opened: none, where all choices are at once or soon. @param {Action} action */
export const preselected = ({ chooses = [] }) => chooses.find(([after]) => after === WHEN_IT_EXPIRES)?.[0] ?? "";

/** @param {{ action: Action, onClose: () => void, onDone: (answer: any) => void }} props */
function ActionDialog({ action, onClose, onDone }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const [form, setForm] = useState({ reason: "", after: preselected(action), typed: "", slot: "", resume: false });
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [isBusy, setBusy] = useState(false);
  useEffect(() => dialog.current?.showModal(), []);
  /** @param {string} name */
  const set = (name) => (/** @type {any} */ event) => setForm({ ...form, [name]: event.target.value });
  const asks = action.confirm?.(form) ?? null;
  const wrong = action.wrong?.(form) ?? null;
  const isChosen = !action.chooses || form.after !== "";
  const isReady = form.reason.trim() !== "" && isChosen && (asks === null || form.typed === asks) && !wrong && !isBusy;
  // Once nobody knows whether it was done, it may only be done again as it is.
  const [isUnknown, setUnknown] = useState(false);
  const isFixed = action.act !== undefined && (isBusy || isUnknown);
  // What has no code is not the gateway's: something between may have given up on it.
  const isOpen =
    error instanceof NoAnswer ||
    (error instanceof Problem && error.status >= 500 && ["", "outcome-unknown"].includes(error.code));
  /** @param {any} event */
  const submit = async (event) => {
    event.preventDefault();
    if (!isReady) return;
    setBusy(true);
    const call = async () => {
      const [path, body] = /** @type {NonNullable<Action["call"]>} */ (action.call)(form);
      return post(at(path), body);
    };
    try {
      onDone(await (action.act ? action.act(form) : call()));
    } catch (problem) {
      setError(/** @type {Error} */ (problem));
      if (problem instanceof NoAnswer || (problem instanceof Problem && problem.status >= 500)) setUnknown(true);
      setBusy(false);
    }
  };
  return html`<dialog ref=${dialog} onClose=${onClose} aria-labelledby="act">
    <form method="dialog" class="stack" onSubmit=${submit}>
      <h2 id="act">${action.title}</h2>
      <p>${action.what}</p>
      ${
        action.chooses &&
        html`<fieldset>
          <legend>When</legend>
          ${action.chooses.map(([value, text]) => html`<label class="choice"><input type="radio" name="after" value=${value} checked=${form.after === value} onChange=${set("after")} /> ${text}</label>`)}
        </fieldset>`
      }
      ${
        action.asksForRun &&
        html`<label
            >Slot, if not one of its own
            <input
              name="slot"
              type="text"
              placeholder="20261122T020000Z"
              value=${form.slot}
              onInput=${set("slot")}
              readOnly=${isFixed}
              autocomplete="off"
              spellcheck="false"
          /></label>
          <label class="choice"
            ><input
              type="checkbox"
              name="resume"
              checked=${form.resume}
              onChange=${(/** @type {any} */ event) => setForm({ ...form, resume: event.target.checked })}
              disabled=${isFixed}
            />${" "}Go on where the run before has saved a checkpoint</label
          >`
      }
      <label
        >${action.reason?.label ?? "Reason, which everybody sees and the audit keeps"}
        <input
          name="reason"
          type="text"
          required
          maxlength=${action.reason?.most ?? 1024}
          value=${form.reason}
          readOnly=${isFixed}
          onInput=${set("reason")}
          autocomplete="off"
      /></label>
      ${
        asks !== null &&
        html`<label
          ><span>To confirm, type <code>${asks}</code></span>
          <input
            name="typed"
            type="text"
            value=${form.typed}
            onInput=${set("typed")}
            autocomplete="off"
            spellcheck="false"
        /></label>`
      }
      <p role="status" class=${wrong ? "failure" : "unseen"}>${wrong}</p>
      <${Command} text=${action.command(form)} />
      <${Failure} error=${error} />
      ${
        isUnknown &&
        action.act &&
        html`<p class="failure" role="alert">Whether it was done is not known. Press “${action.verb}” once more: it is the same request, and is carried out once, however often it is sent.</p>`
      }
      ${
        isOpen &&
        !action.act &&
        html`<p class="failure" role="alert">No answer of the gateway came: whether it was done is not known. Close this and look at what is there before you do it again: somebody else may hold it by now.</p>`
      }
      <div class="buttons">
        <button type="submit" class=${action.isGrave ? "grave" : ""} disabled=${!isReady}>${action.verb}</button>
        <button type="button" class="quiet" onClick=${() => dialog.current?.close()}>Cancel</button>
      </div>
    </form>
  </dialog>`;
}
