#!/usr/bin/env python3
"""Mutants, models and seeds are run again if what they read, what they change or what judges them is not as it was when all
of them last passed: `tests/gate/mutants.caught` has the digest of that.
Nothing else can change what comes of them: a model looks at all states, and a seed gives the same history byte for byte.

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
# The rule, the acts and the tables; the engine and what it reads, which the simulation runs; the cases, the harness and the
# checkers; the Rust client and its scenarios.
WHAT = [
    "Cargo.lock", "gateway/access", "gateway/audit", "gateway/core", "gateway/wire", "gateway/src/engine",
    "gateway/src/ledger", "schema", "tests/src", "tests/it/ledger", "tests/it/schedules", "tests/chaos", "tests/history",
    "tests/model", "tests/simulation", "clients/rust", "clients/conformance", "clients/vectors",
]  # fmt: skip
# The tests that try them.
TESTS = (
    "package(/^fence-(tests|model|simulation|chaos)$/) & test(/(each|every)_mutant(_of_cases)?_is_(caught|noticed)/)"
    " | package(fencegate-wrong-client) & test(wrong_clients_are_caught)"
    " | package(fence-model) & test(every_invariant_holds_in_every_state_and_every_situation_is_reached)"
    " | package(fence-simulation) & test(/no_seed_breaks_the_promise|the_same_seed_gives_the_same_history/)"
)
# A search over up to 2,000 seeds for each wrong engine takes half an hour once the histories of the seeds are others: the
# long runs have it, and the ordinary ones a case for each wrong act.
SURVEY = "package(fence-simulation) & test(=seeds::every_mutant_is_noticed)"
TESTS = f"({TESTS}) - ({SURVEY})"


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
