"""Checks of the files alone: the boards' layout and data sources, the alerts' labels, pages and tests, the mixin."""

import json
import re
import subprocess
import sys

import yaml

from exprs import FOLDER, RECORDED, ROOT, all_asked, boards, rules

# What Grafana and the boards' own variables put into an expression.
KNOWN = re.compile(r"\$(__rate_interval|job|instance|end|upstream|name)\b")
wrong: list[str] = []


def must(holds: object, what: str) -> None:
    if not holds:
        wrong.append(what)


def layout(name: str, board: dict) -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in board["panels"]:
        at, title = panel["gridPos"], f"{name} / {panel['title']}"
        must(
            at["w"] > 0 and at["h"] > 0 and at["x"] >= 0 and at["y"] >= 0 and at["x"] + at["w"] <= 24,
            f"{title}: its gridPos",
        )
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                must((x, y) not in taken, f"{title} covers {taken.get((x, y))}")
                taken[x, y] = title


def sources(name: str, board: dict) -> None:
    """Whatever names a data source names the variable."""

    def look(where: str, value: object) -> None:
        if isinstance(value, dict):
            if "datasource" in value:
                found = value["datasource"]
                must(found == {"type": "prometheus", "uid": "${datasource}"}, f"{where}: its datasource is {found}")
            for key, inner in value.items():
                look(f"{where}.{key}", inner)
        elif isinstance(value, list):
            for at, inner in enumerate(value):
                look(f"{where}[{at}]", inner)

    look(name, board)
    for panel in board["panels"]:
        title = f"{name} / {panel['title']}"
        targets = panel.get("targets", [])
        must(panel["type"] == "row" or targets, f"{title} asks for nothing")
        must(panel["type"] == "row" or "datasource" in panel, f"{title} has no datasource")
        must(all("datasource" in target for target in targets), f"{title}: a target has no datasource")
        must(len({target["refId"] for target in targets}) == len(targets), f"{title}: its refIds are not unique")
        must(
            any(target.get("instant") or target.get("range") for target in targets) or not targets,
            f"{title}: neither instant nor range",
        )


def check_boards() -> None:
    found = boards()
    must(len(found) == 7, "there are seven boards")
    must(len({board["uid"] for board in found.values()}) == len(found), "the uids of boards are not unique")
    must(len({board["title"] for board in found.values()}) == len(found), "the titles of boards are not unique")
    for name, board in found.items():
        must(board["uid"] == f"fencegate-{name}", f"{name}: its uid is {board['uid']}")
        must(board["schemaVersion"] == 39, f"{name}: its schemaVersion")
        must("id" not in board, f"{name}: an id is the database's of one Grafana")
        ids = [panel["id"] for panel in board["panels"]]
        must(len(set(ids)) == len(ids), f"{name}: the ids of panels are not unique")
        variables = [variable["name"] for variable in board["templating"]["list"]]
        must(variables[:3] == ["datasource", "job", "instance"], f"{name}: its variables are {variables}")
        layout(name, board)
        sources(name, board)
    annotated = {one["name"] for one in found["overview"]["annotations"]["list"]}
    must({"New epoch", "Re-fenced"} <= annotated, "the overview has no annotations of epochs")
    for asked in all_asked():
        must("irate(" not in asked.expr, f"{asked.where}: irate misses what is between two scrapes")
        must("$" not in KNOWN.sub("", asked.expr), f"{asked.where}: an unknown variable")


def check_metrics() -> None:
    """Every metric that the source names is on a panel, and every recorded series that is asked for is recorded."""
    on_panels = {name for asked in all_asked() if asked.is_panel for name in asked.metrics()}
    named = set()
    for path in (ROOT / "gateway/src").rglob("*.rs"):
        if "ledger" not in path.parts:
            named |= set(re.findall(r'const \w+: &str =\s*"(fencegate_[a-z0-9_]+)"', path.read_text()))
    must(len(named) > 50, f"the source names {len(named)} metrics, which are too few to be all")
    must(not named - on_panels, f"on no panel: {sorted(named - on_panels)}")
    recorded = {rule["record"] for rule in rules("rules.yaml")}
    asked_for = {name for asked in all_asked() for name in RECORDED.findall(asked.expr)}
    must(asked_for <= recorded, f"recorded by no rule: {sorted(asked_for - recorded)}")


def sections() -> dict[str, str]:
    """The sections of the runbook on alerts, by their anchors."""
    _, _, text = (ROOT / "docs/runbook.md").read_text().partition("\n## Alerts\n")
    text = text.partition("\n## ")[0]
    parts = re.split(r"\n### (\w+)\n", text)[1:]
    return {title.lower(): body for title, body in zip(parts[::2], parts[1::2], strict=True)}


def check_alerts() -> None:
    alerts, pages = rules("alerts.yaml"), sections()
    cases: dict[str, set[bool]] = {}
    tests = yaml.safe_load((FOLDER / "prometheus/alerts_test.yaml").read_text())["tests"]
    for test in tests:
        for case in test["alert_rule_test"]:
            cases.setdefault(case["alertname"], set()).add(bool(case.get("exp_alerts")))
    names = [alert["alert"] for alert in alerts]
    must(len(set(names)) == len(names), "two alerts have one name")
    for alert in alerts:
        name, notes = alert["alert"], alert.get("annotations", {})
        must(re.fullmatch(r"Fencegate[A-Z]\w+", name), f"{name}: its name")
        severity = alert.get("labels", {}).get("severity")
        must(severity in {"critical", "warning", "info"}, f"{name}: its severity is {severity}")
        must(re.fullmatch(r"\d+[smh]", str(alert.get("for"))), f"{name}: its `for` is {alert.get('for')}")
        must(notes.keys() == {"summary", "description", "runbook_url"}, f"{name}: its annotations are {sorted(notes)}")
        must(all(notes.values()), f"{name}: an annotation is empty")
        must(notes.get("runbook_url") == f"docs/runbook.md#{name.lower()}", f"{name}: its runbook_url")
        page = pages.pop(name.lower(), "")
        must(
            page.strip().startswith(f"{severity}.".capitalize()),
            f"{name}: the runbook has no section that says {severity}",
        )
        must("*Look at*" in page and "*Do*" in page, f"{name}: the runbook does not say what to look at and what to do")
        must(cases.get(name) == {True, False}, f"{name}: the tests have not both a firing and a silent case")
    must(not pages, f"sections of the runbook for no alert: {sorted(pages)}")
    must(not cases.keys() - set(names), f"tests of no alert: {sorted(cases.keys() - set(names))}")


def jsonnet(text: str) -> object:
    done = subprocess.run(["jsonnet", "-e", text], capture_output=True, text=True, check=False, cwd=FOLDER)
    must(done.returncode == 0, f"jsonnet {text}: {done.stderr}")
    return json.loads(done.stdout) if done.returncode == 0 else None


def check_mixin() -> None:
    mixin = '(import "mixin/mixin.libsonnet")'
    plain = {name: yaml.safe_load((FOLDER / f"prometheus/{name}.yaml").read_text()) for name in ["alerts", "rules"]}
    must(jsonnet(f"{mixin}.prometheusAlerts") == plain["alerts"], "the mixin's alerts are not those of the file")
    must(jsonnet(f"{mixin}.prometheusRules") == plain["rules"], "the mixin's rules are not those of the file")
    its_boards = {f"fencegate-{name}.json": board for name, board in boards().items()}
    must(jsonnet(f"{mixin}.grafanaDashboards") == its_boards, "the mixin's boards are not those of the files")
    config = (
        '{ _config+:: { gatewaySelector: "job=~\\"a|b\\"", runbook: "https://example.com/runbook", tags: ["ours"] } }'
    )
    changed = jsonnet(f"{mixin} + {config} + {{ all: [self.prometheusAlerts, self.grafanaDashboards] }}")
    text = json.dumps(changed)
    must(
        'job=\\"fencegate\\"' not in text and 'up{job=~\\"a|b\\"}' in text,
        "the mixin does not change which jobs are gateways",
    )
    moved = '"docs/runbook.md' not in text and "https://example.com/runbook#fencegaterefenced" in text
    must(moved, "the mixin does not change where the runbook is")
    must(text.count('"ours"') == len(its_boards), "the mixin does not add tags")


for check in [check_boards, check_metrics, check_alerts, check_mixin]:
    check()
for line in wrong:
    print(f"wrong: {line}", file=sys.stderr)
if wrong:
    sys.exit(1)
counts = {
    "boards": boards(),
    "alerts": rules("alerts.yaml"),
    "recording rules": rules("rules.yaml"),
    "expressions": all_asked(),
}
print(", ".join(f"{len(all_of)} {what}" for what, all_of in counts.items()))
