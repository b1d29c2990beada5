"""The sources of the wrong client: those of `src`, with the mistakes of `patches` put in.

A patch has the path of the file that it changes. It has hunks as `diff -u` writes them, but without the numbers of
lines: `@@` begins one, and its lines begin with a space (stays), `-` (goes) or `+` (comes). The lines that stay or go
must stand in the file exactly once. A mistake is made where `wrong("its-name")` is true.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parents[1] / "src"
PATCHES = HERE / "patches"
_NAME = re.compile(r'wrong\("([a-z-]+)"\)')


def names() -> list[str]:
    """The mistakes that there are."""
    found = {name for patch in _patches() for name in _NAME.findall(patch.read_text())}
    return sorted(found)


def made() -> Path:
    """The folder of the sources with all patches, made if it is not there yet."""
    sources = sorted(path for path in SOURCES.rglob("*") if path.suffix in (".py", ".typed"))
    digest = hashlib.sha256()
    for path in [*sources, *_patches()]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    target = Path(tempfile.gettempdir()) / f"fencegate-wrong-{os.getuid()}-{digest.hexdigest()[:16]}"
    if target.exists():
        return target
    making = Path(tempfile.mkdtemp(prefix="fencegate-wrong-"))
    for path in sources:
        copy = making / path.relative_to(SOURCES)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    for patch in _patches():
        copy = making / "fencegate" / patch.relative_to(PATCHES).with_suffix(".py")
        copy.write_text(patched(copy.read_text(), patch.read_text()))
    try:
        making.rename(target)
    except OSError:
        # Another driver was faster.
        shutil.rmtree(making)
    return target


def patched(source: str, patch: str) -> str:
    """A source with the hunks of a patch. Raises `ValueError` for lines that do not stand in it exactly once."""
    text = "\n" + source
    for hunk in patch.split("@@\n")[1:]:
        lines = [(line[:1] or " ", line[1:]) for line in hunk.splitlines()]
        stands = "\n" + "".join(f"{rest}\n" for side, rest in lines if side != "+")
        becomes = "\n" + "".join(f"{rest}\n" for side, rest in lines if side != "-")
        if text.count(stands) != 1:
            raise ValueError(f"these lines stand in {text.count(stands)} places, not in one:{stands}")
        text = text.replace(stands, becomes)
    return text[1:]


def _patches() -> list[Path]:
    return sorted(PATCHES.rglob("*.patch"))
