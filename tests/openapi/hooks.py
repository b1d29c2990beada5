"""What schemathesis needs to get behind the fence: live locks, and the list of what is excused.

It makes up names, tokens and ids, so that nearly all its writes would be refused before the rule looks at
anything else. Wherever it made up a good one, a live one is put in its place; a bad one stays.
"""

import atexit
import collections
import json
import os
import random
import re
import tomllib
import urllib.error
import urllib.request
import uuid
from pathlib import Path

import schemathesis

GATEWAY = os.environ["FENCE_TEST_GATEWAY_URL"]
# No bound on speed: nothing that works takes as long, on a busy machine either.
HANGS_S = 120
RESULT = os.environ["FENCE_TEST_RESULT"]
EXCUSED = tomllib.loads((Path(__file__).parent / "excused.toml").read_text())["excused"]

NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._~\-:@#+=,]{1,256}\Z")
TOKEN = re.compile(r"[1-9][0-9]{0,18}\Z")
KEY = re.compile(r"[A-Za-z0-9_/-]+\Z")
BUCKET = re.compile(r"[a-z0-9][a-z0-9-]*[a-z0-9]\Z")
KEPT = re.compile(r"[1-9][0-9]{0,2}d|[1-9][0-9]{0,3}[mh]")
WAIT = re.compile(r"[0-9]+(ms|s)\Z")

dice = random.Random(4711)
statuses = collections.Counter()
excuses = collections.Counter()
operations = []


def call(method, path, body=None):
    """A call of our own: the status and the document."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(GATEWAY + path, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=HANGS_S) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


class Live:
    """A resource with a lock that is in force."""

    def __init__(self, name):
        self.name, self.lock, self.sure = name, None, False

    def held(self):
        """Its lock, taken anew if what was tried ended it or froze the resource."""
        if self.sure:
            return self.lock
        self.sure = True
        if self.lock:
            status, lock = call("GET", f"/locks/{self.lock['id']}")
            view = call("GET", f"/resources/{self.name}")[1]
            in_force = status == 200 and lock["state"] == "leased" and "ended" not in lock
            if in_force and "frozen" not in view and "protected" not in view:
                return self.lock
            reason = {"reason": "the next case"}
            for act in ("unfreeze", "unprotect", "break"):
                call("POST", f"/resources/{self.name}/{act}", reason)
        wanted = {"resource": self.name, "id": str(uuid.uuid4()), "ttl": "1h", "wait": "5s"}
        status, self.lock = call("POST", "/locks", wanted)
        assert status == 201, (status, self.lock)
        return self.lock


OURS, UPSTREAMS = Live("live"), Live("u:1")
OBJECT = "known"


def known_object(lock):
    """Puts an object to be read, if what was tried has deleted it."""
    path = f"{GATEWAY}/resources/{OURS.name}/objects/{OBJECT}"
    headers = {"X-Fence-Token": lock["token"], "If-None-Match": "*"}
    request = urllib.request.Request(path, b"0123456789", headers, method="PUT")
    try:
        urllib.request.urlopen(request, timeout=HANGS_S).close()
    except urllib.error.HTTPError as error:
        assert error.code == 412, error.code


def with_bodies(form):
    """A list on our resource with one put at most, and the part that has its bytes."""
    operations, parts = [], {}
    for number, operation in enumerate(form["operations"]["operations"]):
        operation = {**operation, "resource": OURS.name, "key": f"c{number}"}
        operation.pop("if_match", None)
        if operation["op"] == "put":
            if parts:
                continue
            operation["body"] = "body"
            parts = {"body": "bytes"}
        operations.append(operation)
    return {"operations": {"operations": operations}, **parts}


@schemathesis.hook
def before_call(context, case, kwargs):
    name = case.operation.definition.raw["operationId"]
    query, headers, path = case.query, case.headers, case.path_parameters
    if isinstance(query, dict) and WAIT.match(str(query.get("wait", ""))):
        query["wait"] = "20ms"
    if isinstance(case.body, dict) and WAIT.match(str(case.body.get("wait", ""))):
        case.body["wait"] = "20ms"
    # Where it finds no text for a pattern, it sends a number and believes that it fits.
    for header in ("If-Match", "If-None-Match", "Content-MD5", "Repr-Digest", "Content-Digest"):
        if headers and str(headers.get(header)) == "0":
            del headers[header]
    if dice.random() < 0.1:
        return
    upstream = name.endswith("Upstream")
    live = UPSTREAMS if upstream else OURS
    lock = live.held()
    if path:
        replace(path, "resource", NAME, live.name if name != "setFence" else f"fence-{uuid.uuid4()}")
        if name == "deleteBucket" and BUCKET.match(str(path.get("name", ""))):
            path["name"] = "doomed"
            call("PUT", "/buckets/doomed", {})
        elif not name.endswith("Bucket"):
            replace(path, "name", NAME, "u")
        if upstream and KEY.match(str(path.get("path", ""))):
            path["path"] = f"r/{live.name.removeprefix('u:')}"
        if name in ("getObject", "headObject") and KEY.match(str(path.get("key", ""))):
            path["key"] = OBJECT
        if name == "getOperation" and operations:
            replace_id(path, "id", operations[-1])
        else:
            replace_id(path, "id", lock["id"])
    if headers and "X-Fence-Token" in headers:
        replace(headers, "X-Fence-Token", TOKEN, lock["token"])
        replace_id(headers, "X-Lock-Id", lock["id"])
        # What was made up holds for no object, and a digest for no body.
        for condition in ("If-Match", "X-If-Resource-Version", "Content-MD5", "Repr-Digest", "Content-Digest"):
            if condition in headers and good(condition, headers[condition]) and dice.random() < 0.8:
                del headers[condition]
        # It comes without a key mostly, or with more years than keys are kept.
        if KEPT.fullmatch(str(headers.get("X-Fence-Key-Kept", ""))) and dice.random() < 0.8:
            del headers["X-Fence-Key-Kept"]
        # One of the two at most.
        if "If-Match" in headers and headers.get("If-None-Match") == "*":
            del headers["If-None-Match"]
    if name in ("getObject", "headObject"):
        known_object(lock)
        if dice.random() < 0.8:
            for values, condition, pattern in (
                (headers, "If-Match", '.*".*'), (headers, "If-None-Match", '.*".*|[*]'), (query, "version", "[1-9][0-9]*"),
            ):
                if values and re.fullmatch(pattern, str(values.get(condition, "-"))):
                    del values[condition]
    if name == "resolveDoubts" and isinstance(case.body, dict):
        replace(case.body, "upstream", NAME, "u")
    if name == "commit" and case.meta.generation.mode.is_positive and isinstance(case.body, dict):
        case.body = with_bodies(case.body)
    if name == "renewLocks" and isinstance(case.body, dict) and isinstance(case.body.get("ids"), list):
        for index, one in enumerate(case.body["ids"][:1]):
            if is_id(one):
                case.body["ids"][index] = lock["id"]


def good(name, value):
    if name == "X-If-Resource-Version":
        return re.fullmatch("0|[1-9][0-9]{0,17}", str(value)) is not None
    return name != "If-Match" or '"' in str(value) or str(value) == "*"


def is_id(text):
    try:
        return len(str(text)) == 36 and bool(uuid.UUID(str(text)))
    except ValueError:
        return False


def replace(values, name, pattern, by):
    if name in values and pattern.match(str(values[name])):
        values[name] = by


def replace_id(values, name, by):
    if name in values and is_id(values[name]):
        values[name] = by


@schemathesis.hook
def after_call(context, case, response):
    name = case.operation.definition.raw["operationId"]
    statuses[f"{name} {response.status_code}"] += 1
    if case.operation.method.upper() != "GET":
        OURS.sure = UPSTREAMS.sure = False
    operation = response.headers.get("x-operation-id")
    if operation:
        operations.append(operation[0] if isinstance(operation, list) else operation)


@schemathesis.hook
def filter_failure(context, failure, case, response):
    name = case.operation.definition.raw["operationId"]
    body = response.text if response.encoding != "binary" else ""
    for number, excuse in enumerate(EXCUSED):
        if (
            excuse["failure"] == failure.code
            and re.fullmatch(excuse.get("operation", ".*"), name)
            and response.status_code == excuse["status"]
            and excuse["says"] in body
        ):
            excuses[excuse["says"]] += 1
            return False
    return True


@atexit.register
def report():
    Path(RESULT).write_text(json.dumps({"statuses": statuses, "excused": excuses}, indent=1))
