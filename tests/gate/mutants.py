#!/usr/bin/env python3
"""Whether the mutants have to be tried again. They are, if what they change or what judges them is not as it was when all of
them were last caught: `tests/gate/mutants.caught` has the digest of that.

Usage: mutants.py           prints the digest of now
       mutants.py --tests   prints the filter of nextest that chooses their tests
       mutants.py --caught  says that all are caught now: `make mutants` calls it
"""

import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CAUGHT = Path(__file__).with_name("mutants.caught")
# The rule, the acts and the tables; the engine, which the simulation runs; the cases, the harness and the checkers; the Rust
# client and its scenarios.
WHAT = [
    "Cargo.lock", "gateway/core", "gateway/wire", "gateway/src/engine", "gateway/src/ledger", "schema", "tests/src",
    "tests/it/ledger", "tests/it/schedules", "tests/chaos", "tests/history", "tests/model", "tests/simulation",
    "clients/rust", "clients/conformance", "clients/vectors",
]  # fmt: skip
# The tests that try them.
TESTS = (
    "package(/^fence-(tests|model|simulation|chaos)$/) & test(/(each|every)_mutant(_of_cases)?_is_(caught|noticed)/)"
    " | package(fencegate-wrong-client) & test(wrong_clients_are_caught)"
)


def digest() -> str:
    """A digest of all these files as they lie there, and of the compiler."""
    listed = subprocess.run(["git", "ls-files", "-z", *WHAT], cwd=ROOT, check=True, capture_output=True).stdout
    whole = hashlib.sha256(subprocess.run(["rustc", "-V"], check=True, capture_output=True).stdout)
    for name in sorted(filter(None, listed.decode().split("\0"))):
        file = ROOT / name
        whole.update(name.encode() + b"\0" + (hashlib.sha256(file.read_bytes()).digest() if file.exists() else b""))
    return whole.hexdigest()


def are_caught() -> bool:
    return CAUGHT.exists() and CAUGHT.read_text().strip() == digest()


if __name__ == "__main__":
    if sys.argv[1:] == ["--caught"]:
        CAUGHT.write_text(digest() + "\n")
    print(TESTS if sys.argv[1:] == ["--tests"] else digest())
