"""The twin for threads is what the generator makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_twin_is_what_the_generator_makes() -> None:
    made = subprocess.run(
        [sys.executable, ROOT / "scripts" / "unasync.py", "--check"], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr


def test_nothing_asynchronous_is_left_in_the_twin() -> None:
    for path in (ROOT / "src" / "fencegate" / "_sync").glob("*.py"):
        text = path.read_text()
        for word in ("await ", "async def", "async with", "async for", "asyncio", "Async("):
            assert word not in text or (word == "asyncio" and "hand" in text), f"{path.name}: {word}"
