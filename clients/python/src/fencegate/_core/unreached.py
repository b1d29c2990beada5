"""Why no gateway is reached: causes that pass, and those that no wait can mend."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

_REFUSED = ("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE", "CERTIFICATE_EXPIRED", "CERTIFICATE_REVOKED", "UNKNOWN_CA")
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST")


def why(base: str, error: BaseException) -> tuple[bool, str]:
    """Whether no wait can mend what went wrong at this base URL, and what it was, for people."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True, f"the certificate of {base} is not trusted: {cause.verify_message}"
        reason = str(cause.reason or "") if isinstance(cause, ssl.SSLError) else ""
        if any(word in reason for word in _REFUSED):
            return True, f"a certificate of the caller is missing or refused at {base}: {reason}"
        if any(word in reason for word in _NO_TLS):
            return True, f"no TLS is spoken at {base}: {reason}"
        if isinstance(cause, socket.gaierror):
            return False, f"the name in {base} is not known: {cause.strerror}"
    return False, f"no gateway answers at {base}" + (f": {error}" if str(error) else "")


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
