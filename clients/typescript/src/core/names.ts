// Names of resources, objects and people: the rules of the gateway, checked before anything is sent (CC4), and how
// names are written into paths.

import { Misuse } from "./errors.js";

const RESOURCE = /^[A-Za-z0-9._~\-:@#+=,]*$/;
const PRINCIPAL = /^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}$/;
/** Control, format and unassigned characters, lone surrogates, and separators of lines and paragraphs. */
const UNWANTED = /[\p{Cc}\p{Cf}\p{Cn}\p{Cs}\p{Zl}\p{Zp}]/u;
const CONTROL = /\p{Cc}/u;

const encoder = new TextEncoder();

/** The number of bytes of a text in UTF-8. */
export function bytesIn(text: string): number {
  return encoder.encode(text).length;
}

/** Why a name of a resource is refused; `undefined`: it is good. */
export function resourceFlaw(name: string): string | undefined {
  if (name.length < 1 || name.length > 256) return "length";
  if (!RESOURCE.test(name)) return "alphabet";
  return name === "." || name === ".." ? "dots" : undefined;
}

/** Why a key of an object is refused; `undefined`: it is good. */
export function objectFlaw(key: string): string | undefined {
  const bytes = bytesIn(key);
  if (bytes < 1 || bytes > 1024) return "length";
  if (UNWANTED.test(key)) return "control";
  for (const segment of key.split("/")) {
    if (segment === "") return "empty-segment";
    if (segment === "." || segment === "..") return "dots";
  }
  return key.normalize("NFC") === key ? undefined : "not-nfc";
}

const FLAWS: Record<string, string> = {
  length: "it is empty or too long",
  alphabet: "it has characters other than A-Z a-z 0-9 . _ ~ - : @ # + = ,",
  dots: "it has a part that is . or ..",
  "empty-segment": "there is nothing between two slashes, before the first or behind the last",
  control: "it has control, format or unassigned characters, or separators of lines",
  "not-nfc": "it is not in Unicode normalisation form C",
};

function shown(text: unknown): string {
  return typeof text === "string" ? JSON.stringify(text.slice(0, 300)) : String(typeof text);
}

/** The name of a resource, if it is good. */
export function resourceName(name: string): string {
  const flaw = typeof name === "string" ? resourceFlaw(name) : "alphabet";
  if (flaw !== undefined) throw new Misuse(`The resource name is not allowed: ${shown(name)}: ${FLAWS[flaw]}`);
  return name;
}

/** The key of an object, if it is good. */
export function objectKey(key: string): string {
  const flaw = typeof key === "string" ? objectFlaw(key) : "length";
  if (flaw !== undefined) throw new Misuse(`The object key is not allowed: ${shown(key)}: ${FLAWS[flaw]}`);
  return key;
}

/** The resources of a lock: 1 to 32, each once, in byte order. */
export function resourceNames(names: string | readonly string[]): string[] {
  const sorted = [names].flat().map(resourceName).sort();
  if (sorted.length < 1 || sorted.length > 32) throw new Misuse("a lock is on 1 to 32 resources");
  if (new Set(sorted).size < sorted.length) throw new Misuse("each resource may be named only once");
  return sorted;
}

/** The name of a principal, if it is good. */
export function principalName(name: string): string {
  if (PRINCIPAL.test(name)) return name;
  throw new Misuse(`${shown(name)} is no principal: 1 to 128 of A-Z a-z 0-9 . _ : / @ -, not role:`);
}

/** Who may write under a lock: principals, and roles as `role:NAME`; at most 16 (CC14a). */
export function writerNames(names: readonly string[]): string[] {
  if (names.length > 16) throw new Misuse("a lock has at most 16 writers");
  for (const name of names) principalName(name.startsWith("role:") ? name.slice(5) : name);
  return [...names];
}

/** What a holder calls itself, if the gateway takes it: at most 256 bytes, without control characters. */
export function ownerName(owner: string): string {
  return words(owner, "an owner", 0, 256);
}

/** An operator's words: 1 to 1,024 bytes, without control characters. */
export function reasonText(reason: string): string {
  return words(reason, "a reason", 1, 1024);
}

/** The beginning of a name: at most 1,024 bytes, without control characters. */
export function prefixText(prefix: string): string {
  return words(prefix, "a prefix", 0, 1024);
}

function words(text: string, what: string, least: number, most: number): string {
  const bytes = typeof text === "string" ? bytesIn(text) : -1;
  if (bytes >= least && bytes <= most && !CONTROL.test(text)) return text;
  throw new Misuse(`${what} has ${least} to ${most} bytes and no control characters`);
}

/** A key of the caller's own for a write. */
export function idempotencyKey(key: string): string {
  if (/^[!-~]{1,255}$/.test(key)) return key;
  throw new Misuse("an idempotency key has 1 to 255 visible ASCII characters");
}

/** The tags of a condition, such as `"g0-v17"` with its quotes, or `*`. */
export function entityTags(tags: string): string {
  if (tags === "*" || /^"[ -~]+"$/.test(tags)) return tags;
  throw new Misuse(`${shown(tags)} is no entity tag such as "g0-v17", with its quotes`);
}

/** The type of the bytes of an object. */
export function contentTypeText(contentType: string): string {
  if (/^[ -~]{1,255}$/.test(contentType)) return contentType;
  throw new Misuse("a content type has 1 to 255 visible ASCII characters and spaces");
}

const PLAIN = /^[A-Za-z0-9\-._~]*$/;

/** Text as one segment of a path or a value of a query: all bytes but `A-Z a-z 0-9 - . _ ~` as `%XX`. */
export function segment(text: string): string {
  if (PLAIN.test(text)) return text;
  return encodeURIComponent(text).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
}

/** The path of a resource. */
export function resourcePath(resource: string): string {
  return `/resources/${segment(resource)}`;
}

/** The path of an object; slashes of its key stay. */
export function objectPath(resource: string, key: string): string {
  return `${resourcePath(resource)}/objects/${key.split("/").map(segment).join("/")}`;
}

/** A query of those parameters that have a value: `?a=b&c=d`, or nothing. */
export function query(parameters: Record<string, string | number | undefined>): string {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined);
  return given.map(([name, value], at) => `${at === 0 ? "?" : "&"}${name}=${segment(String(value))}`).join("");
}
