#!/usr/bin/env python3
"""Repeats the lightest tests of the last gate, to find the flakes among them. Fails if 1 run of a test in 10,000 fails.

Usage: repeats.py [TIMES]. The tests of the last gate are in `target/nextest/gate/junit.xml`; the heaviest tenth stays out.
"""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET

from phases import KEPT, LINTING, NEXTEST, PROGRAMS, ROOT, TARGET

LIGHT = 0.9
RUNS_PER_FAILURE = 10_000


def cases(profile: str) -> list[ET.Element]:
    return list(ET.parse(TARGET / f"nextest/{profile}/junit.xml").iter("testcase"))


def main(times: int) -> int:
    timed = sorted(cases("gate"), key=lambda case: float(case.get("time", 0)))
    heavy = timed[int(len(timed) * LIGHT) :]
    out = " | ".join(f"(binary_id({case.get('classname')}) & test(={case.get('name')}))" for case in heavy)
    command = [*NEXTEST.split(), "--no-fail-fast", "--stress-count", str(times), "-E", f"not ({out})"]
    log = KEPT / "repeats.log"
    KEPT.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        subprocess.run(
            command, cwd=ROOT, env=os.environ | LINTING | PROGRAMS, stdout=output, stderr=output, check=False
        )
    failed = [
        line.strip()
        for line in log.read_text(errors="replace").splitlines()
        if line.strip().startswith(("FAIL", "TIMEOUT"))
    ]
    runs = (len(timed) - len(heavy)) * times
    print(*sorted(set(failed)), f"{len(failed)} of {runs} runs failed; the log is {log}", sep="\n")
    return 1 if len(failed) * RUNS_PER_FAILURE >= runs else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
