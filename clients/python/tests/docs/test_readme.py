"""Every example of the README, and of that of the project, runs against a real gateway."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
PAGES = [README, (ROOT.parents[1] / "README.md").read_text()]
OWN, PROJECT = [re.findall(r"```python\n(.*?)```", page, re.DOTALL) for page in PAGES]
EXAMPLES = OWN + PROJECT


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_examples_run(number: int, fencegate_url: str) -> None:
    program = EXAMPLES[number].replace("http://localhost:8080", fencegate_url)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60, cwd=ROOT
    )
    assert ended.returncode == 0, f"{program}\n{ended.stderr}"


def test_examples_pass_a_strict_type_check(tmp_path: Path) -> None:
    settings = {"include": ["*.py"], "typeCheckingMode": "strict", "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    for number, example in enumerate(EXAMPLES):
        # boto3 has no types, and is not needed here.
        untyped = "# pyright: reportMissingImports=false, reportUnknownMemberType=false\n"
        (tmp_path / f"example_{number}.py").write_text((untyped if "import boto3" in example else "") + example)
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--project", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "0 errors, 0 warnings" in ended.stdout


def test_the_quick_start_is_short() -> None:
    for quick_start in (OWN[0], PROJECT[0]):
        assert len(quick_start.splitlines()) <= 15


def test_every_error_is_in_the_table() -> None:
    import fencegate

    table = README.partition("## What to do about an error")[2].partition("```python")[0]
    kinds = [name for name, kind in vars(fencegate).items() if isinstance(kind, type) and issubclass(kind, Exception)]
    for name in kinds:
        assert f"`{name}`" in table or name == "NoFence", name


def test_the_licence_files_are_those_of_the_project() -> None:
    for name in ("LICENSE-MIT", "LICENSE-APACHE"):
        assert (ROOT / name).read_text() == (ROOT.parents[1] / name).read_text()


def test_the_version_is_that_of_the_project() -> None:
    import tomllib

    from fencegate import __version__

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    workspace = tomllib.loads((ROOT.parents[1] / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    assert __version__ == project == workspace
