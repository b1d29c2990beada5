"""The report of a run: the times of its phases, tests and crates, and what failed with the command that repeats it."""

import json
import re
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path

from phases import KEPT, ROOT, TARGET

SLOWEST = 40
CRATES = 15


def of(outcomes, seconds: float) -> str:
    parts = [phases(outcomes, seconds)]
    ran = {outcome.name for outcome in outcomes if outcome.seconds}
    junit = TARGET / "nextest/gate/junit.xml"
    cases = list(ET.parse(junit).iter("testcase")) if "tests" in ran and junit.exists() else []
    if cases:
        parts.append(slowest(cases))
    timings = TARGET / "cargo-timings/cargo-timing.html"
    if "build" in ran and timings.exists():
        parts.append(crates(timings))
    parts.append(failures(outcomes, cases))
    return "\n\n".join(parts) + "\n"


def phases(outcomes, seconds: float) -> str:
    lines = ["phase              seconds  processor  outcome"]
    lines += [f"{it.name:18} {it.seconds:7.0f} {it.cpu_seconds:10.0f}  {it.why or 'passed'}" for it in outcomes]
    cpu = sum(it.cpu_seconds for it in outcomes)
    lines.append(f"{'all':18} {seconds:7.0f} {cpu:10.0f}  {seconds / 60:.1f} minutes")
    return "\n".join(lines)


def name_of(case: ET.Element) -> str:
    return f"{case.get('classname')} {case.get('name')}"


def slowest(cases: list[ET.Element]) -> str:
    timed = sorted(cases, key=lambda case: -float(case.get("time", 0)))
    lines = [
        f"{len(cases)} tests, {sum(float(case.get('time', 0)) for case in cases):.0f} s one after the other; the slowest:"
    ]
    lines += [f"{float(case.get('time', 0)):8.1f} s  {name_of(case)}" for case in timed[:SLOWEST]]
    return "\n".join(lines)


def crates(timings: Path) -> str:
    """The crates that took longest to compile, as the page of `cargo build --timings` has them."""
    found = re.search(r"const UNIT_DATA = (\[.*?\n?\]);", timings.read_text(), re.DOTALL)
    if not found:
        return "no times of crates: the page of cargo has another form"
    spent: dict[str, float] = defaultdict(float)
    units = json.loads(found[1])
    for unit in units:
        spent[unit["name"]] += unit["duration"]
    (KEPT / "crates.json").write_text(json.dumps(spent, indent=1, sort_keys=True))
    longest = sorted(spent.items(), key=lambda item: -item[1])[:CRATES]
    lines = [f"{len(units)} units compiled, {sum(spent.values()):.0f} s one after the other; the longest:"]
    return "\n".join(lines + [f"{seconds:8.1f} s  {name}" for name, seconds in longest])


def failures(outcomes, cases: list[ET.Element]) -> str:
    failed = [it for it in outcomes if it.why]
    if not failed:
        return "all checks and tests have passed"
    lines = ["failed:"]
    for it in failed:
        log = (KEPT / f"{it.name}.log").relative_to(ROOT) if it.seconds else ""
        lines.append(f"  {it.name}: {it.why}; {log}\n      again: tests/run.sh {it.name}")
        if it.name == "tests":
            lines += [f"    {what}\n      again: {again}" for what, again in map(test_again, filter(is_bad, cases))]
    return "\n".join(lines)


def is_bad(case: ET.Element) -> bool:
    return case.find("failure") is not None or case.find("error") is not None


def test_again(case: ET.Element) -> tuple[str, str]:
    is_flake = case.find("flakyFailure") is not None
    package, _, program = str(case.get("classname")).partition("::")
    name = str(case.get("name"))
    again = f"make test NAME={name}" if program == "it" else f"cargo test -p {package} -- --exact {name}"
    return name_of(case) + (": a flake, it passed at its second try" if is_flake else ""), again
