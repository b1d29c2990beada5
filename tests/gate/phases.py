"""The phases of a whole run: what is checked, in which order, and what runs beside what."""

import os
import shlex
from dataclasses import dataclass, field

import mutants
from mutants import ROOT

TARGET = (ROOT / os.environ.get("CARGO_TARGET_DIR", "target")).resolve()
TOOLS = TARGET / "tools"
DEBUG = TARGET / "debug"
# What a run leaves: the log of each phase, and the report.
KEPT = TARGET / "run"

# Tests wait for servers more than they compute, so more are under way than there are cores.
THREADS = os.environ.get("FENCE_TEST_THREADS", "4")

# Clippy compiles our crates in place of rustc, so that each is read once for lints and tests. What it finds is a warning
# here: a lint is no reason not to run the tests. `lints` fails of it.
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
NEXTEST = (
    f"{DEBUG}/fence-servers {TOOLS}/gate/bin/cargo-nextest nextest run --workspace --locked --test-threads {THREADS}"
)
# Mutants that were all caught, and of which nothing has changed since, are not tried again.
LEFT_OUT = f"({mutants.SURVEY}) | ({mutants.TESTS})" if mutants.are_caught() else mutants.SURVEY
FILTER = f"-E {shlex.quote(f'not ({LEFT_OUT})')}"
PYTHON = f"{TOOLS}/python/bin/python"


@dataclass
class Phase:
    """A step of a run: commands, one after the other, until one fails."""

    name: str
    # As a shell would read them; there is none.
    commands: list[str]
    # The phases without which this one cannot run.
    needs: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    # A phase that hangs is ended. No phase that works takes as long.
    minutes_max: int = 30


def script(name: str, path: str) -> Phase:
    """A check with an environment of its own below the folder of tools."""
    return Phase(name, [f"{path} {TOOLS}/{name}"], ("build", "programs", "tools"), PROGRAMS)


def chaos(name: str, words: str, *needs: str) -> Phase:
    """A survey of a minute; `make long` has 20 of each."""
    return Phase(name, [f"{DEBUG}/fence-chaos {words} --out {TARGET}/{name}"], ("build", "programs", *needs))


# What a library notices of a fault; `tests/clients.sh` has all kinds.
NOTICED = (
    "gateway-stop,gateway-kill,client-stop,client-kill,etcd-stop,postgres-stop,both-restored,"
    "edge-slow,edge-half-open,edge-one-way,edge-reset,edge-refused"
)

# Stages run one after the other, the lanes of a stage beside each other, the phases of a lane one after the other. What
# sleeps stands beside what computes. Chaos is alone: after each fault service must be back within 30 s.
STAGES: list[list[list[Phase]]] = [
    [
        [
            Phase("format", ["cargo fmt --all --check"]),
            # The tests, and the programs that only tests use.
            Phase(
                "build",
                ["cargo build --workspace --tests --bin fence-chaos --bin fence-servers --locked --timings"],
                env=LINTING,
            ),
            # As they are shipped: without the mistakes and the clock that the tests have.
            Phase("programs", ["cargo build -p fencegate -p fencegate-cli --locked"]),
        ],
        [Phase("tools", [f"tests/tools.sh {TOOLS}"])],
    ],
    [
        [
            Phase("lints", [f"python3 tests/gate/lints.py {KEPT}/build.log"], ("build",)),
            Phase(
                "tests",
                [f"{NEXTEST} --profile gate {FILTER}"],
                ("build", "programs", "tools"),
                LINTING | PROGRAMS,
                55,
            ),
            Phase(
                "examples",
                # With `--doc`, cargo would run those of the wrong client, too: copies that name the crate of the right one.
                ["cargo test --doc --workspace --exclude fencegate-wrong-client --locked"],
                ("build", "programs"),
                LINTING | PROGRAMS,
            ),
        ],
        [
            Phase("features", ["tests/features.sh"]),
            # The specification in its smallest bound; `make long` has all of it.
            Phase("spec", ["tests/spec/check.sh short"]),
            Phase("licences", [f"{TOOLS}/gate/bin/cargo-deny check licenses bans sources"], ("tools",)),
            script("python", "clients/python/check.sh"),
            Phase(
                "scripts",
                [f"{PYTHON} -m ruff {how} tests/s3 tests/gate" for how in ("check --quiet", "format --quiet --check")],
                ("tools",),
            ),
            script("recipes", "tests/recipes/check.sh"),
            script("typescript", "clients/typescript/check.sh"),
            script("ui", "tests/ui/check.sh"),
            script("observability", "tests/observability/check.sh"),
        ],
    ],
    [
        [
            chaos("chaos", "run --minutes 1"),
            chaos(
                "chaos-python",
                f"run --minutes 0.5 --faults {NOTICED} --client {shlex.quote(f'{PYTHON} -m fencegate.testing.driver')}",
                "tools",
            ),
            chaos(
                "chaos-node",
                f"run --minutes 0.5 --faults {NOTICED} --client 'node clients/typescript/dist/testing/driver.js'",
                "tools",
            ),
            chaos("schedules", "schedules --minutes 1"),
        ]
    ],
]
