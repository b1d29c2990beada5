"""What the boards, rules and alerts ask for: their expressions, and the metrics that these name."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/observability"
# A metric of ours, with what a histogram adds to its name.
NAME = re.compile(r"(?<![\w:])((?:fencegate|process)_[a-z0-9_]+?)(?:_bucket|_sum|_count)?(?![\w:])")
RECORDED = re.compile(r"(?:job|instance):fencegate_[a-z_]+:[a-z0-9_]+")
# What a matcher, a list of labels or a text says names no metric.
ASIDE = re.compile(r'"[^"]*"|\b(?:by|on|without|ignoring)\s*\([^)]*\)')


@dataclass(frozen=True)
class Asked:
    """An expression, and where it stands."""

    where: str
    expr: str
    # Whether it asks for a moment, and not for what was within a range.
    instant: bool = False
    is_panel: bool = True

    def metrics(self) -> set[str]:
        return set(NAME.findall(ASIDE.sub("", self.expr)))


def boards() -> dict[str, dict]:
    """The boards by their files' names."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("grafana/*.json"))}


def rules(name: str) -> list[dict]:
    """The rules of a file of Prometheus."""
    groups = yaml.safe_load((FOLDER / "prometheus" / name).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def of_board(name: str, board: dict) -> list[Asked]:
    """What panels and annotations ask for."""
    found = []
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            where = f"{name} / {panel['title']} / {target['refId']}"
            found.append(Asked(where, target["expr"], target.get("instant", False)))
    for one in board["annotations"]["list"]:
        found.append(Asked(f"{name} / annotation {one['name']}", one["expr"], is_panel=False))
    return found


def all_asked() -> list[Asked]:
    """What boards, rules and alerts ask for."""
    found = [asked for name, board in boards().items() for asked in of_board(name, board)]
    for rule in rules("rules.yaml"):
        found.append(Asked(f"rule {rule['record']}", rule["expr"], is_panel=False))
    for rule in rules("alerts.yaml"):
        found.append(Asked(f"alert {rule['alert']}", rule["expr"], is_panel=False))
    return found
