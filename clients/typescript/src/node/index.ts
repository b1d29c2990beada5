// What a program in Node has beyond the rest: clients from the environment, files, and certificates.

import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { CLIENT_NAMES, type ClientOptions } from "../client/options.js";
import { Denied, Misuse } from "../core/errors.js";
import { checked } from "../core/options.js";
import { nodeFetch } from "./http.js";
import { Fencegate } from "./main.js";

export { download, type Downloaded, type DownloadOptions } from "./download.js";
export { file } from "./file.js";
export { nodeFetch, type NodeFetchOptions } from "./http.js";

/**
 * A client as the environment describes it: `FENCE_URL` (a base URL, or several with commas), `FENCE_OWNER`,
 * `FENCE_AUTH_TOKEN` or `FENCE_AUTH_TOKEN_FILE`, `FENCE_CA_FILE`, `FENCE_CERT_FILE` and `FENCE_KEY_FILE`; each request
 * says `TRACEPARENT`. Options that are given count more. It gives connections up after 3 s.
 *
 * @throws Misuse: `FENCE_URL` is missing, or one of them makes no sense.
 */
export function fromEnv(options: ClientOptions = {}): Fencegate {
  checked("fromEnv()", options, CLIENT_NAMES);
  const urls = variable("FENCE_URL");
  if (urls === undefined) throw new Misuse("FENCE_URL is not set: where is the gateway?");
  const [token, tokenFile] = [variable("FENCE_AUTH_TOKEN"), variable("FENCE_AUTH_TOKEN_FILE")];
  if (token !== undefined && tokenFile !== undefined) {
    throw new Misuse("FENCE_AUTH_TOKEN and FENCE_AUTH_TOKEN_FILE: one of them");
  }
  const [cert, key] = [contents("FENCE_CERT_FILE"), contents("FENCE_KEY_FILE")];
  if ((cert === undefined) !== (key === undefined))
    throw new Misuse("FENCE_CERT_FILE and FENCE_KEY_FILE: both or none");
  const ca = contents("FENCE_CA_FILE");
  const known: ClientOptions = {
    owner: variable("FENCE_OWNER"),
    auth: tokenFile === undefined ? token : tokenInFile(tokenFile),
    fetch: nodeFetch({ ca, cert, key }),
    traceparent: tracer(),
  };
  // An option that is `undefined` is not given, and hides nothing.
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  return new Fencegate(urls, { ...known, ...Object.fromEntries(given) });
}

/**
 * A credential for the option `auth`: the contents of a file, read before each request, and once more after a 401.
 * Whoever changes the credential only has to replace the file.
 */
export function tokenInFile(path: string): () => Promise<string> {
  return async () => {
    let text: string;
    try {
      text = (await readFile(path, "utf8")).trim();
    } catch (error) {
      throw new Denied(`cannot read ${path}: ${(error as Error).message}`);
    }
    // As of a file that is being replaced piece by piece: it says nothing yet.
    if (text === "") throw new Denied(`${path} is empty`);
    return text;
  };
}

function variable(name: string): string | undefined {
  const value = process.env[name];
  return value === "" ? undefined : value;
}

/** The span that the environment names. What cannot be read is none: no call fails for a trace. */
function tracer(): (() => string) | undefined {
  const named = variable("TRACEPARENT");
  if (named === undefined || !/^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/.test(named)) return undefined;
  return () => named;
}

function contents(name: string): string | undefined {
  const path = variable(name);
  if (path === undefined) return undefined;
  try {
    return readFileSync(path, "utf8");
  } catch (error) {
    throw new Misuse(`${name}: cannot read ${path}: ${(error as Error).message}`);
  }
}
