"""What ceph's tests need to run under a fence, as a plugin of pytest. The tests themselves are as they were written.

They make buckets as they like and know no locks. So each test has a prefix of its own for its buckets, and the key of a lock
of the first of them, for its `main` user. Buckets are made and deleted with the key of an administrator, as that of a lock
cannot do that; and what is left of a test is left.
"""

import itertools
import json
import os
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path

import boto3
import pytest
import s3tests.functional as tests
from botocore.credentials import Credentials

GATEWAY = os.environ["CEPH_GATEWAY"]
ADMIN = Credentials(os.environ["CEPH_ADMIN_KEY"], os.environ["CEPH_ADMIN_SECRET"])
RESULTS = Path(os.environ["CEPH_RESULTS"])
RESOURCES_OF_A_LOCK = 32
OF_BUCKETS = ("CreateBucket", "DeleteBucket")


def call(method: str, path: str, body: dict) -> dict:
    """Calls the gateway's own interface."""
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(GATEWAY + path, json.dumps(body).encode(), headers, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def key_of_a_lock(buckets: list[str]) -> tuple[str, str]:
    """The key of a new lock of these buckets, of which none is there yet."""
    lock = call("POST", "/locks", {"resources": buckets, "ttl": "1h", "owner": "ceph"})
    with urllib.request.urlopen(f"{GATEWAY}/locks/{lock['id']}/s3") as answer:
        key = json.load(answer)
    return key["access_key_id"], key["secret_access_key"]


def nothing(*_: object, **__: object) -> None:
    """In place of what deletes all buckets before and after each test: here each has its own."""


def pytest_configure() -> None:
    tests.setup = tests.teardown = tests.nuke_prefixed_buckets = nothing
    boto3.setup_default_session()
    for name in OF_BUCKETS:
        boto3.DEFAULT_SESSION.events.register(f"before-sign.s3.{name}", sign_as_administrator)
    boto3.DEFAULT_SESSION.events.register("provide-client-params.s3.ListBuckets", only_its_own)


def only_its_own(params: dict, **_: object) -> dict:
    """A test that lists buckets expects to see its own alone."""
    return {**params, "Prefix": tests.prefix}


def sign_as_administrator(request: object, request_signer: object, **_: object) -> None:
    if request_signer._credentials.access_key == tests.config.main_access_key:
        request.context.setdefault("signing", {})["request_credentials"] = ADMIN


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    tests.prefix = f"ceph-{uuid.uuid4().hex[:12]}-"
    tests.bucket_counter = itertools.count(1)
    buckets = [f"{tests.prefix}{number}" for number in range(1, RESOURCES_OF_A_LOCK + 1)]
    tests.config.main_access_key, tests.config.main_secret_key = key_of_a_lock(buckets)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or (report.outcome != "passed" and report.when == "setup"):
        crash = getattr(report.longrepr, "reprcrash", None)
        why = crash.message.splitlines()[0] if crash else ""
        line = {"test": report.nodeid.rpartition("::")[2], "outcome": report.outcome, "why": why}
        with RESULTS.open("a") as results:
            results.write(json.dumps(line) + "\n")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what says nothing of this gateway."""
    excused: Callable[[pytest.Item], bool] = excuses()
    left_out = [item for item in items if excused(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not excused(item)]


def excuses() -> Callable[[pytest.Item], bool]:
    given = json.loads(os.environ["CEPH_NOT_APPLICABLE"])
    names, markers = set(given["tests"]), set(given["markers"])
    return lambda item: item.originalname in names or any(mark.name in markers for mark in item.iter_markers())
