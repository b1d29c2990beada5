#!/usr/bin/env python3
"""A whole run of all checks and tests: `tests/run.sh` starts it. With names of phases it runs these alone.

One red phase does not stop the others. A run ends with the times of its phases and tests, and with all that failed and the
command that repeats it. What a phase prints is kept in a file; what is printed here is its end.
"""

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import report
from phases import KEPT, ROOT, STAGES, Phase

TAIL_OF_GOOD = 2
TAIL_OF_BAD = 150
BEGAN = time.monotonic()


@dataclass
class Outcome:
    """What came of a phase. Processor time is that of all its processes that ended."""

    name: str
    why: str
    seconds: float
    cpu_seconds: float


class Run:
    def __init__(self, wanted: list[str]):
        self.wanted = wanted
        self.outcomes: dict[str, Outcome] = {}
        self.printing = threading.Lock()
        self.under_way: set[subprocess.Popen[bytes]] = set()
        self.is_ending = False

    def say(self, *lines: str) -> None:
        minutes, seconds = divmod(int(time.monotonic() - BEGAN), 60)
        with self.printing:
            print(f"==> {minutes}:{seconds:02d} {lines[0]}", *lines[1:], sep="\n", flush=True)

    def lane(self, lane: list[Phase]) -> None:
        for phase in lane:
            if (not self.wanted or phase.name in self.wanted) and not self.is_ending:
                self.phase(phase)

    def phase(self, phase: Phase) -> None:
        # What a phase by name needs was made before, by a whole run.
        missing = [name for name in phase.needs if name in self.outcomes and self.outcomes[name].why]
        if missing:
            self.outcomes[phase.name] = Outcome(phase.name, f"not run, for want of {', '.join(missing)}", 0, 0)
            return
        self.say(f"{phase.name}: begins")
        began, cpu, why = time.monotonic(), 0.0, ""
        log = KEPT / f"{phase.name}.log"
        with log.open("wb") as output:
            for command in phase.commands:
                output.write(f"$ {command}\n".encode())
                output.flush()
                why, spent = self.command(command, phase, output)
                cpu += spent
                if why:
                    break
        outcome = Outcome(phase.name, why, time.monotonic() - began, cpu)
        self.outcomes[phase.name] = outcome
        lines = log.read_text(errors="replace").rstrip().splitlines()
        tail = lines[-TAIL_OF_BAD:] if why else lines[-TAIL_OF_GOOD:]
        self.say(f"{phase.name}: {why or 'passed'} ({outcome.seconds:.0f} s)", *(f"    {line}" for line in tail))

    def command(self, command: str, phase: Phase, output) -> tuple[str, float]:
        """Runs a command to its end: why it failed, or nothing, and its processor time in seconds."""
        env = os.environ | phase.env
        try:
            # A group of its own, so that all of it can be ended.
            process = subprocess.Popen(
                shlex.split(command),
                cwd=ROOT,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        except OSError as error:
            return str(error), 0
        self.under_way.add(process)
        is_late = threading.Event()

        def give_up() -> None:
            is_late.set()
            end(process)

        hung = threading.Timer(phase.minutes_max * 60, give_up)
        hung.start()
        _, status, usage = os.wait4(process.pid, 0)
        hung.cancel()
        self.under_way.discard(process)
        process.returncode = os.waitstatus_to_exitcode(status)
        code = process.returncode
        why = f"failed with {code}" if code else ""
        if is_late.is_set():
            why = f"hangs: not done after {phase.minutes_max} minutes"
        return why, usage.ru_utime + usage.ru_stime

    def end(self, *_signal: object) -> None:
        self.is_ending = True
        for process in list(self.under_way):
            end(process)
        # At once: what would end the phases in time still waits.
        os._exit(130)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ends a command and all that it has started."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
        except ProcessLookupError:
            return
        time.sleep(5)


def main(wanted: list[str]) -> int:
    names = [phase.name for stage in STAGES for lane in stage for phase in lane]
    if unknown := [name for name in wanted if name not in names]:
        print(f"no such phase: {', '.join(unknown)}; there are {', '.join(names)}", file=sys.stderr)
        return 2
    KEPT.mkdir(parents=True, exist_ok=True)
    run = Run(wanted)
    signal.signal(signal.SIGINT, run.end)
    signal.signal(signal.SIGTERM, run.end)
    for stage in STAGES:
        lanes = [threading.Thread(target=run.lane, args=[lane], daemon=True) for lane in stage]
        for thread in lanes:
            thread.start()
        for thread in lanes:
            thread.join()
    outcomes = [run.outcomes[name] for name in names if name in run.outcomes]
    text = report.of(outcomes, time.monotonic() - BEGAN)
    (KEPT / "report.txt").write_text(text)
    print(text)
    return 1 if any(outcome.why for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main(sys.argv[1:]))
