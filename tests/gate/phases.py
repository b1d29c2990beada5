"""The phases of a whole run: what is checked, in which order, and what runs beside what."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import mutants
from mutants import ROOT

TARGET = (ROOT / os.environ.get("CARGO_TARGET_DIR", "target")).resolve()
TOOLS = TARGET / "tools"
DEBUG = TARGET / "debug"
# What a run leaves: the log of each phase, and the report.
KEPT = TARGET / "run"

# Tests wait for servers more than they compute, so a few run at a time on few cores.
THREADS = os.environ.get("FENCE_TEST_THREADS", "4")

# Clippy compiles our crates in place of rustc, so that each is read once for lints and tests. What it finds is a warning here:
# a lint is no reason not to run the tests. `lints` fails of it.
LINTING = {
    "RUSTC_WORKSPACE_WRAPPER": "clippy-driver",
    "CLIPPY_ARGS": "--cap-lints__CLIPPY_HACKERY__warn__CLIPPY_HACKERY__",
}
# The programs that tests start.
PROGRAMS = {
    "FENCE_TEST_GATEWAY": str(DEBUG / "fencegate"),
    "FENCE_TEST_FENCE": str(DEBUG / "fence"),
    "FENCE_TEST_CONFORMANCE": str(DEBUG / "fencegate-conformance"),
}
NEXTEST = [str(TOOLS / "gate/bin/cargo-nextest"), "nextest"]
# Mutants that were all caught, and of which nothing has changed since, are not tried again.
FILTER = ["-E", f"not ({mutants.TESTS})"] if mutants.are_caught() else []
PYTHON = str(TOOLS / "python/bin/python")
CHAOS = str(DEBUG / "fence-chaos")
# Random schedules and chaos are surveys: short here, in `make long` 20 minutes each.
PYTHON_DRIVER = f"{PYTHON} -m fencegate.testing.driver"
NODE_DRIVER = "node clients/typescript/dist/testing/driver.js"


@dataclass
class Phase:
    """A step of a run: commands, one after the other, until one fails."""

    name: str
    commands: list[list[str]]
    # The phases without which this one cannot run.
    needs: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    # A phase that hangs is ended. No phase that works takes as long.
    minutes_max: int = 30


def chaos(name: str, minutes: str, *needs: str, client: str = "") -> Phase:
    driven = ["--client", client] if client else []
    command = [CHAOS, "run", "--minutes", minutes, "--out", str(TARGET / name), *driven]
    return Phase(name, [command], ("build", *needs))


def ruff(folder: str) -> list[list[str]]:
    return [[PYTHON, "-m", "ruff", *words, folder] for words in (["check", "--quiet"], ["format", "--quiet", "--check"])]


def script(name: str, path: str, *needs: str) -> Phase:
    return Phase(name, [[path, str(TOOLS / name)]], ("build", "programs", *needs), PROGRAMS)


# Stages run one after the other, the lanes of a stage beside each other, the phases of a lane one after the other. What
# sleeps stands beside what computes. Chaos is alone, for its goodput is judged.
STAGES: list[list[list[Phase]]] = [
    [
        [
            Phase("format", [["cargo", "fmt", "--all", "--check"]]),
            # The tests, and the programs that only tests use.
            Phase("build", [["cargo", "build", "--workspace", "--all-targets", "--locked", "--timings"]], env=LINTING),
            # As they are shipped: without the mistakes and the clock that the tests have.
            Phase("programs", [["cargo", "build", "-p", "fencegate", "-p", "fencegate-cli", "--locked"]]),
        ],
        [Phase("tools", [["tests/tools.sh", str(TOOLS)]])],
    ],
    [
        [
            Phase("lints", [["python3", "tests/gate/lints.py", str(KEPT / "build.log")]], ("build",)),
            Phase(
                "tests",
                [[str(DEBUG / "fence-servers"), *NEXTEST, "run", "--profile", "gate", "--workspace", "--locked",
                  "--test-threads", THREADS, *FILTER]],
                ("build", "programs", "tools"),
                LINTING | PROGRAMS,
                45,
            ),
            Phase("examples", [["cargo", "test", "--doc", "--workspace", "--locked"]], ("build", "programs"), LINTING | PROGRAMS),
        ],
        [
            Phase("features", [["tests/features.sh"]]),
            Phase("licences", [[str(TOOLS / "gate/bin/cargo-deny"), "check", "licenses", "bans", "sources"]], ("tools",)),
            script("python", "clients/python/check.sh", "tools"),
            Phase("scripts", [*ruff("tests/s3"), *ruff("tests/gate")], ("python",)),
            script("recipes", "tests/recipes/check.sh"),
            script("typescript", "clients/typescript/check.sh"),
            script("ui", "tests/ui/check.sh"),
            script("observability", "tests/observability/check.sh"),
        ],
    ],
    [
        [
            chaos("chaos", "1", "programs"),
            chaos("chaos-python", "0.5", "programs", "python", client=PYTHON_DRIVER),
            chaos("chaos-node", "0.5", "programs", "typescript", client=NODE_DRIVER),
            Phase("schedules", [[CHAOS, "schedules", "--minutes", "1", "--out", str(TARGET / "schedules")]], ("build",)),
        ]
    ],
]
