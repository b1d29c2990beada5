// How late a write was: a small drawing, and the same in words.
import { duration } from "../words.js";
import { html } from "./common.js";

/** The sentence for a refused write, by its reason; and whether it came from somebody without the lock, or out of order. */
const KINDS = /** @type {Record<string, [words: string, isFenced: boolean]>} */ ({
  "fence-token-stale": ["wrote after somebody else had got the lock", true],
  "fence-token-released": ["wrote after the lock was given back", true],
  "fence-token-broken": ["wrote after an operator had broken the lock", true],
  "fence-token-void": ["wrote under a token from before the ledger was re-fenced", true],
  "fence-token-unknown": ["wrote under a token that was never granted on this resource", true],
  "fence-token-foreign": ["wrote under a token that was granted to another principal", true],
  "lock-id-mismatch": ["wrote under a token with the id of another lock", true],
  "sequence-out-of-order": ["had sent a later write before this one", true],
  "version-mismatch": ["expected another version: it was changed meanwhile, and is to be read again", false],
  "resource-frozen": ["wrote while an operator had frozen the resource: the lock is not lost", false],
  "resource-draining": ["wrote before the lock was in force: requests of the holder before were under way", false],
  "resource-protected": ["tried to delete the resource, which an operator protects", false],
  "too-many-objects": ["tried to delete more objects at once than one call removes", false],
});

/** Tells if a refused write could have damaged something. @param {{ reason: string }} rejection */
export const isFenced = ({ reason }) => KINDS[reason]?.[1] ?? false;

/** @param {any} rejection */
export function latenessInWords({ reason, owner, grants_behind, superseded_ms }) {
  const who = owner || "Somebody";
  if (superseded_ms == null) return `${who} ${KINDS[reason]?.[0] ?? `was refused: ${reason}`}.`;
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
