"""The class of each answer."""

from __future__ import annotations

import json
from typing import Any

from fencegate import LockLost
from fencegate._core.classes import CLASS_OF
from fencegate._core.replies import (
    Failure,
    Foreign,
    Problem,
    error_of,
    is_retried,
    problem_of,
    retry_after_ms,
)
from fencegate._core.settling import Condition, Settling, Verdict
from fencegate._words import ErrorClass

from .replay import FOLDER, cases, load


@cases("errors")
def test_errors(case: dict[str, Any]) -> None:
    body = (json.dumps(case["problem"]) if "problem" in case else case["text"]).encode()
    failure = _failure(case, body)
    if isinstance(failure, Problem):
        kind: str = failure.error_class
        error = error_of(failure, 1)
        reason = error.reason if isinstance(error, LockLost) else None
        if failure.error_class is ErrorClass.OUTCOME_UNKNOWN and not case["write"]:
            kind = error.error_class
        again = is_retried(failure) or failure.code == "idempotency-in-progress"
    elif case["write"]:
        # What others answer to a write leaves it open.
        verdict = Settling(True, Condition.NONE).judge(failure.stranger)
        kind = "OutcomeUnknown" if verdict is Verdict.AGAIN else error_of(failure, 1).error_class
        reason, again = None, verdict is Verdict.AGAIN
    else:
        kind, reason, again = error_of(failure, 1).error_class, None, is_retried(failure)
    assert (kind, reason, again) == (case["class"], case["reason"], case["retry"])


def _failure(case: dict[str, Any], body: bytes) -> Problem | Foreign:
    """As the transport judges it: a gateway's answer has our id of the request."""
    status, headers = case["status"], case["headers"]
    wait_ms = retry_after_ms(headers.get("retry-after"))
    failure: Failure | None = None
    if headers.get("x-request-id") == load("errors")["request_id"] and 400 <= status < 600:
        failure = problem_of(status, body, wait_ms)
    return failure or Foreign(status, "something in between", wait_ms)


def test_every_code_has_its_class_in_the_rules() -> None:
    rules = (FOLDER.parent / "SPEC.md").read_text().splitlines()
    for code, kind in CLASS_OF.items():
        row = f"| `{kind}`"
        assert any(line.startswith(row) and f"`{code}`" in line for line in rules), code
    ids = {case["id"] for case in load("errors")["cases"]}
    assert {f"code-{code}" for code in CLASS_OF} == {id for id in ids if id.startswith("code-")}


def test_every_case_names_rules_of_the_spec() -> None:
    spec = (FOLDER.parent / "SPEC.md").read_text()
    files = sorted(path.stem for path in FOLDER.glob("*.json") if path.stem != "schema")
    assert len(files) == 11
    for name in files:
        found = load(name)["cases"]
        assert len({case["id"] for case in found}) == len(found), name
        for case in found:
            assert all(f"**{rule}** " in spec for rule in case["rules"]), case["id"]
