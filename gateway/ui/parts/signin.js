// Signing in: with a key, for this tab.
import { useState } from "../vendor/hooks.js";
import { at, get, signIn } from "../api.js";
import { needsKey } from "../live.js";
import { Failure, html, useTitle } from "./common.js";

/** @param {{ onDone: () => void }} props */
export function SignIn({ onDone }) {
  useTitle("Sign in");
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  /** @param {any} event */
  const submit = async (event) => {
    event.preventDefault();
    signIn(event.target.elements.key.value.trim());
    try {
      await get(at(["access"]));
      needsKey.set(false);
      onDone();
    } catch (problem) {
      signIn(null);
      setError(/** @type {Error} */ (problem));
    }
  };
  return html`<main id="view" tabindex="-1">
    <h1>Sign in</h1>
    <p>
      Rules of access are in force here. Paste a key that they know, as <code>fencegate keys new</code> prints it. It
      stays in this tab, and goes when the tab is closed. A proxy that signs in for you sends${" "}
      <code>Authorization</code> itself.
    </p>
    <form class="stack" onSubmit=${submit}>
      <label>Key <input name="key" type="password" required autocomplete="off" spellcheck="false" /></label>
      <button type="submit">Sign in</button>
    </form>
    <${Failure} error=${error} />
  </main>`;
}
