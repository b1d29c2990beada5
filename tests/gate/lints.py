"""Fails if the log of a build has warnings, and prints them once each. Usage: lints.py LOG."""

import sys
from pathlib import Path


def warnings(log: str) -> list[str]:
    """The warnings of a log of cargo, each with its lines up to the next empty one."""
    found: dict[str, None] = {}
    for block in log.split("\n\n"):
        lines = block.splitlines()
        begins = next((at for at, line in enumerate(lines) if line.startswith(("warning", "error"))), None)
        # The last line says how many there were of a crate.
        if begins is not None and " generated " not in lines[begins]:
            found["\n".join(lines[begins:])] = None
    return list(found)


if __name__ == "__main__":
    found = warnings(Path(sys.argv[1]).read_text(errors="replace"))
    print(*found, f"{len(found)} warnings", sep="\n\n")
    sys.exit(1 if found else 0)
