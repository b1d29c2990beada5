"""Makes the twin for threads, `src/fencegate/_sync`, out of `src/fencegate/_async`.

    python scripts/unasync.py           writes the twin
    python scripts/unasync.py --check   ends with 1 if it is not what would be written

Modules that are written by hand in both folders are left alone.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "src" / "fencegate"
BY_HAND = frozenset({"__init__.py", "_base.py", "_burying.py", "_electing.py", "_runtime.py", "_sending.py"})
HEADER = "# Made by scripts/unasync.py out of ../_async/{name}: change that, and run it again.\n"

# Whole words that are not made by the general rule for `Async...`.
_WORDS = {
    "AsyncByteStream": "SyncByteStream",
    "StopAsyncIteration": "StopIteration",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
    "aiter_raw": "iter_raw",
    "anext": "next",
    "asynchronous": "blocking",
    "handle_async_request": "handle_request",
}
_Replacement: TypeAlias = str | Callable[[re.Match[str]], str]
_RULES: list[tuple[re.Pattern[str], _Replacement]] = [
    # A method that only what can be awaited has.
    (re.compile(r"    def __await__\(self\).*?\n\n", re.DOTALL), ""),
    (re.compile(r"\basync (def|with|for)\b"), r"\1"),
    (re.compile(r"\bawait "), ""),
    (re.compile(r"\b(?:" + "|".join(_WORDS) + r")\b"), lambda found: _WORDS[found[0]]),
    (re.compile(r"\bAsync(?=[A-Z])"), ""),
    (re.compile(r"\bfrom \.\.?_async\b"), lambda found: found[0].replace("_async", "_sync")),
]
_AWAITABLE = "Awaitable["


def twin(text: str) -> str:
    """The text of a module for threads."""
    text = _without_awaitables(text)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    text = re.sub(r"\bAwaitable, |, Awaitable\b", "", text)
    return _without_repeats(text)


def _without_awaitables(text: str) -> str:
    """`Awaitable[T]` is `T` where nothing is awaited."""
    while (at := text.find(_AWAITABLE)) >= 0:
        begin, depth = at + len(_AWAITABLE), 1
        end = begin
        while depth:
            depth += {"[": 1, "]": -1}.get(text[end], 0)
            end += 1
        text = text[:at] + text[begin : end - 1] + text[end:]
    return text


def _without_repeats(text: str) -> str:
    """What was two types with and without `await` is one now."""
    text = re.sub(r"(Callable\[\[[^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*\], [^\[\]]+\])\s*\|\s*\1", r"\1", text)
    return re.sub(r"\b(\w+)\[(\w+)\] \| \1\[\2\]", r"\1[\2]", text)


def make(folder: Path) -> list[str]:
    """Writes the twin into a folder, as ruff would have it, and gives the names of its modules."""
    names = sorted(path.name for path in (FOLDER / "_async").glob("*.py") if path.name not in BY_HAND)
    for name in names:
        (folder / name).write_text(HEADER.format(name=name) + twin((FOLDER / "_async" / name).read_text()))
    ruff = [sys.executable, "-m", "ruff"]
    chosen = ["--quiet", "--config", str(ROOT / "pyproject.toml"), str(folder)]
    subprocess.run([*ruff, "check", "--fix", "--exit-zero", "--select", "I,F401", *chosen], check=True)
    subprocess.run([*ruff, "format", *chosen], check=True)
    return names


def main() -> int:
    """Writes the twin, or looks whether it is there."""
    target = FOLDER / "_sync"
    with tempfile.TemporaryDirectory() as folder:
        names = make(Path(folder))
        made = {name: (Path(folder) / name).read_text() for name in names}
    there = {path.name: path.read_text() for path in target.glob("*.py") if path.name not in BY_HAND}
    wrong = sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))
    if "--check" in sys.argv[1:]:
        if wrong:
            print(f"not what scripts/unasync.py makes: {', '.join(wrong)}", file=sys.stderr)
        return 1 if wrong else 0
    for name in wrong:
        if name in made:
            (target / name).write_text(made[name])
        else:
            (target / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
