"""The driver around a client that makes the mistake named by `FENCE_TEST_CLIENT_MUTANT`, or none: a scenario that
notices no mistake proves nothing.

`driver.py --names` prints the names of all mistakes that it has, with commas between them.
"""

from __future__ import annotations

import builtins
import os
import sys

import patching


def main() -> int:
    """Drives it."""
    if sys.argv[1:] == ["--names"]:
        print(",".join(patching.names()))
        return 0
    chosen = os.environ.get("FENCE_TEST_CLIENT_MUTANT")
    builtins.wrong = lambda name: name == chosen  # type: ignore[attr-defined]
    sys.path.insert(0, str(patching.made()))
    from fencegate.testing.driver.__main__ import main as drive

    return drive()


sys.exit(main())
