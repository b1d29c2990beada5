// Why no gateway is reached: causes that pass, and those that no wait can mend.

import { causes } from "./answer.js";
import { isOfCertificate, wasNotSent } from "./judging.js";

/** A failure at a base URL, in words, and whether no wait can mend it. */
export interface Why {
  readonly lasts: boolean;
  readonly detail: string;
}

/** Why an attempt at this base URL got no answer. Browsers tell no causes. */
export function why(base: string, error: unknown): Why {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  const root = cause instanceof Error && cause.cause instanceof Error ? cause.cause : cause;
  const codes = [cause, root].map((it) => String((it as { code?: unknown } | null)?.code ?? ""));
  const text = causes(root);
  const is = (pattern: RegExp): boolean => codes.some((code) => pattern.test(code));
  if (codes.some(isOfCertificate)) {
    return { lasts: true, detail: `the certificate of ${base} is not trusted: ${text}` };
  }
  if (is(/_ALERT_.*(CERTIFICATE|UNKNOWN_CA)/)) {
    return { lasts: true, detail: `a certificate of the caller is missing or refused at ${base}: ${text}` };
  }
  if (is(/^(EPROTO|ERR_SSL_WRONG_VERSION_NUMBER|ERR_SSL_PACKET_LENGTH_TOO_LONG)$/)) {
    return { lasts: true, detail: `no TLS is spoken at ${base}: ${text}` };
  }
  if (is(/^ENOTFOUND$/)) return { lasts: false, detail: `the name in ${base} is not known: ${text}` };
  const what = wasNotSent(error) ? "no gateway answers at" : "no answer from";
  return { lasts: false, detail: `${what} ${base}: ${wasNotSent(error) ? text : causes(error)}` };
}
