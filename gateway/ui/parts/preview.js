// What is in an object: some of it as text, and a way to save it.
import { useEffect, useRef, useState } from "../vendor/hooks.js";
import { atObject, fetchRaw } from "../api.js";
import { useLive } from "../live.js";
import { size } from "../words.js";
import { Failure, Loaded, html, save } from "./common.js";

/** What is shown of an object, at most, in bytes. */
const PREVIEW_BYTES = 64 * 1024;
/** What is fetched for a file, at most. */
const DOWNLOAD_BYTES = 256 * 1024 * 1024;

/** Text, from its first line on, or with its last in view. @param {{ text: string, label: string, isEnd: boolean }} props */
function Shown({ text, label, isEnd }) {
  const box = useRef(/** @type {HTMLPreElement | null} */ (null));
  useEffect(() => {
    if (isEnd && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text]);
  return html`<pre ref=${box} tabindex="0" aria-label=${label}>${text}</pre>`;
}

/**
 * The beginning of an object, or its end, as text whatever it is; and a way to save all of it.
 * @param {{ name: string, object: any, version?: number, isEnd?: boolean, label?: string }} props
 */
export function Preview({ name, object, version, isEnd = false, label = `Contents of ${object.key}` }) {
  const url = () => atObject(name, object.key, { version });
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const live = useLive(
    async (signal) => {
      if (object.size === 0) return "";
      const range = isEnd ? `bytes=-${PREVIEW_BYTES}` : `bytes=0-${PREVIEW_BYTES - 1}`;
      const headers = object.size > PREVIEW_BYTES ? { range } : undefined;
      return (await fetchRaw(url(), { signal, headers })).text();
    },
    Infinity,
    [name, object.key, object.version],
  );
  const download = async () => {
    try {
      const answer = await fetchRaw(url(), { within: 600_000 });
      save(object.key.split("/").pop() ?? "object", await answer.blob(), "application/octet-stream");
    } catch (problem) {
      setError(/** @type {Error} */ (problem));
    }
  };
  return html`<div class="preview">
    <${Loaded} live=${live}>${(/** @type {string} */ text) => html`<${Shown} ...${{ text, label, isEnd }} />`}</${Loaded}>
    ${object.size > PREVIEW_BYTES && html`<p class="small">The ${isEnd ? "last" : "first"} ${size(PREVIEW_BYTES)} of ${size(object.size)}.</p>`}
    ${object.size <= DOWNLOAD_BYTES ? html`<button type="button" class="quiet" onClick=${download}>Save as a file</button>` : html`<p class="small">Too large to save from here: use <code>fence get</code>.</p>`}
    <${Failure} error=${error} />
  </div>`;
}
