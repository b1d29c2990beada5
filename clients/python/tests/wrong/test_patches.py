"""The patches of the wrong client fit the sources, and are those of the catalogue of the conformance scenarios."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import patching
import pytest

CATALOGUE = Path(__file__).resolve().parents[3] / "conformance" / "src" / "mutants"


def test_every_patch_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = patching.made()
    for path in made.rglob("*.py"):
        compile(path.read_text(), str(path), "exec")


def test_the_mistakes_are_in_the_catalogue() -> None:
    text = "".join(path.read_text() for path in CATALOGUE.glob("*.rs"))
    assert set(patching.names()) <= set(re.findall(r'\bmutant\(\s*"([a-z-]+)"', text))
