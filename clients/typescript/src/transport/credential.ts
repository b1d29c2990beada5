// What a client shows in `Authorization`: a fixed text, or what a function gives (CC1).

import { Denied } from "../core/errors.js";
import { causes } from "./answer.js";
import type { Time } from "./time.js";

/** How long a function may take that gives the credential. */
const CREDENTIAL_WITHIN_MS = 15_000;

/** A bearer token, or a function that is asked for it before each attempt, and once more after a 401. */
export type Credential = string | (() => string | Promise<string>);

/** The token to show now. */
export async function asked(credential: () => string | Promise<string>, time: Time): Promise<string> {
  let failure: unknown = "it was not there in time";
  const asking = Promise.resolve()
    .then(credential)
    .catch((error: unknown) => {
      failure = error;
      return undefined;
    });
  const token = await time.within(CREDENTIAL_WITHIN_MS, asking);
  if (failure instanceof Denied) throw failure;
  if (token === undefined) throw new Denied(`no credential: ${causes(failure)}`);
  if (!isToken(token)) throw new Denied("the credential is empty, or holds what a header cannot");
  return token;
}

/** Whether a credential can be sent as it is. */
export function isToken(token: string): boolean {
  return /^[!-~]+$/.test(token);
}
