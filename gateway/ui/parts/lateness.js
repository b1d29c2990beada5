// How late a write was: a small drawing, and the same in words.
import { duration } from "../words.js";
import { html } from "./common.js";

/** @param {any} rejection */
export function latenessInWords({ owner, grants_behind, superseded_ms }) {
  const who = owner || "Somebody";
  if (superseded_ms == null) return `${who} wrote under a token that is no good here.`;
  const behind = grants_behind == null ? "" : `, ${grants_behind === 1 ? "1 grant" : `${grants_behind} grants`} behind`;
  return `${who} wrote ${duration(superseded_ms)} late${behind}.`;
}

/** The old holder's time, the new one's, and where the late write came. @param {{ rejection: any }} props */
export function Lateness({ rejection }) {
  const { superseded_ms: late } = rejection;
  const words = latenessInWords(rejection);
  if (late == null) return html`<span>${words}</span>`;
  // A write that was a moment late is drawn as one; the longest is drawn at the end.
  const x = 60 + Math.min(130, 26 * Math.log10(1 + late / 50));
  return html`<span class="lateness">
    <svg viewBox="0 0 200 26" width="200" height="26" role="img" aria-label=${words}>
      <rect class="old-holder" x="2" y="3" width="58" height="7" rx="2" />
      <rect class="new-holder" x="60" y="15" width="138" height="7" rx="2" />
      <line class="taken-over" x1="60" y1="1" x2="60" y2="25" />
      <line class="gap" x1="62" y1="6.5" x2=${x - 5} y2="6.5" />
      <path class="tried" d=${`M${x - 4} 2.5l8 8m0 -8l-8 8`} />
    </svg>
    <span>${words}</span>
  </span>`;
}
