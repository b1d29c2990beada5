"""What the drivers have in common: each takes calls as lines of JSON, and says in a line how each ended.

A driver is one process with one client, as a job would have it. It knows nothing of locks: key and endpoint are in its
environment.
"""

import contextlib
import json
import sys
import traceback

BUCKET = "lake"
PART_BYTES = 5 * 1024 * 1024
"""No part but the last may be smaller."""


def serve(client: object) -> None:
    """Does what is asked, by the client's method of that name, until there is nothing more. Whoever failed in anything does
    not end well."""
    failures = 0
    for line in sys.stdin:
        call = json.loads(line)
        try:
            told = {"told": getattr(client, call.pop("do"))(**call)}
        # Some clients' failures are no Exception.
        except BaseException as error:
            failures += 1
            told = {"failed": "".join(traceback.format_exception_only(error)).strip() + because(error)}
        print(json.dumps(told), flush=True)
    sys.exit(1 if failures else 0)


def because(error: BaseException) -> str:
    """What came before it, where a client hides that behind an error of its own."""
    cause = error.__cause__ or error.__context__
    text = ""
    with contextlib.suppress(Exception):
        text = f"; because: {cause}" if cause else ""
    return text
