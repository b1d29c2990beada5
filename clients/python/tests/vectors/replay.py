"""Reads the vectors, and the words in them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from fencegate import ErrorClass, LossReason
from fencegate._core.classes import CLASS_OF, class_of

FOLDER = Path(__file__).resolve().parents[3] / "vectors"


def load(name: str) -> dict[str, Any]:
    """A file of vectors."""
    file = json.loads((FOLDER / f"{name}.json").read_text())
    assert file["core"] == 1 and file["about"] and file["cases"], name
    return file


def cases(name: str) -> Any:
    """All cases of a file, each a test of its own under its id."""
    found = [pytest.param(case, id=case["id"]) for case in load(name)["cases"]]
    return pytest.mark.parametrize("case", found)


def foreign(got: str) -> int | None:
    """The status of an answer that no gateway gave."""
    return int(got.removeprefix("proxy-")) if got.startswith("proxy-") else None


def classed(got: str) -> tuple[str, ErrorClass]:
    """A code and its class; `+unknown` behind it says that the outcome is unknown."""
    if got.endswith("+unknown"):
        code = got.removesuffix("+unknown")
        return code, class_of(code, 503, True, True)
    if got in CLASS_OF:
        return got, CLASS_OF[got]
    assert got.startswith("fence-"), got
    return got, class_of(got, 412, False, False)


def reason(word: str | None) -> LossReason | None:
    """Why a guard is lost."""
    return None if word is None else LossReason(word)


def decoded(said: dict[str, str]) -> bytes:
    """Bytes as text or in base64."""
    return said["text"].encode() if "text" in said else base64.b64decode(said["base64"])
