"""Starts a gateway, runs ceph's tests of S3 against it, and says what came of them. Called by ceph.sh."""

import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
from ports import reserved_port

HERE = Path(__file__).parent
FILES = ["s3tests/functional/test_s3.py", "s3tests/functional/test_headers.py"]
SECTIONS = ["s3 main", "s3 alt", "s3 tenant", "iam", "iam root", "iam alt root"]
FIELDS = ["display_name", "user_id", "email", "access_key", "secret_key", "tenant"]


def post(url: str, body: dict) -> dict:
    headers = {"content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
        return json.load(answer)


def wait_until_ready(url: str) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{url}/readyz")
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the gateway does not start")


def configuration(port: int, keys: dict) -> str:
    """The file that the tests read. The key of the main user is another for each test: see fenced.py."""
    lines = ["[DEFAULT]", "host = 127.0.0.1", f"port = {port}", "is_secure = False", "[fixtures]"]
    for section in SECTIONS:
        # All buckets and objects are the gateway's.
        name = "fencegate" if section == "s3 main" else section.replace(" ", "-")
        lines += [f"[{section}]", *(f"{field} = {name}" for field in FIELDS[:3])]
        lines += [f"access_key = {keys['access_key_id']}", f"secret_key = {keys['secret_access_key']}", "tenant = t"]
    return "\n".join(lines) + "\n"


def told(results: list[dict], differs: dict[str, str]) -> int:
    """Prints what came of the tests. Returns how many did not do what the list says."""
    passed = {one["test"] for one in results if one["outcome"] == "passed"}
    failed = {one["test"]: one["why"] for one in results if one["outcome"] == "failed"}
    skipped = {one["test"] for one in results if one["outcome"] == "skipped"}
    known = {test for test in failed if test in differs}
    for test in sorted(passed):
        print(f"passed   {test}")
    for test in sorted(known):
        print(f"differs  {test}: {differs[test]}")
    for test in sorted(failed.keys() - known):
        print(f"FAILED   {test}: {failed[test]}")
    for test in sorted(skipped):
        print(f"skipped by its own makers: {test}")
    mended = sorted(test for test in passed if test in differs)
    for test in mended:
        print(f"PASSED, though differs.toml has it: {test}")
    share = 100 * len(passed) / max(1, len(passed) + len(failed))
    print(
        f"{len(passed)} passed, {len(known)} differ as listed, {len(failed) - len(known)} failed: {share:.1f} % passed"
    )
    return len(failed) - len(known) + len(mended)


def main() -> int:
    gateway, source, *words = sys.argv[1:]
    lists = tomllib.loads((HERE / "differs.toml").read_text())
    apart = {"tests": [], "markers": []}
    for group in lists["not_applicable"]:
        for kind in apart:
            apart[kind] += group.get(kind, [])
    differs = {test: group["why"] for group in lists["differs"] for test in group["tests"]}
    with tempfile.TemporaryDirectory() as name:
        folder, port, s3_port = Path(name), reserved_port(), reserved_port()
        url = f"http://127.0.0.1:{port}"
        listen = ["--listen", f"127.0.0.1:{port}", "--s3-listen", f"127.0.0.1:{s3_port}"]
        server = subprocess.Popen(
            [gateway, "serve", *listen, "--data-dir", folder / "data"],
            stderr=(folder / "log").open("w"),
            env={name: value for name, value in os.environ.items() if not name.startswith("FENCEGATE_")},
        )
        try:
            wait_until_ready(url)
            reader = post(f"{url}/admin/s3-keys", {"rights": "read"})
            admin = post(f"{url}/admin/s3-keys", {"rights": "admin"})
            (folder / "conf").write_text(configuration(s3_port, reader))
            results = folder / "results"
            results.touch()
            environment = {
                "S3TEST_CONF": str(folder / "conf"),
                "CEPH_GATEWAY": url,
                "CEPH_ADMIN_KEY": admin["access_key_id"],
                "CEPH_ADMIN_SECRET": admin["secret_access_key"],
                "CEPH_RESULTS": str(results),
                "CEPH_NOT_APPLICABLE": json.dumps(apart),
                "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_DEFAULT_REGION": "us-east-1",
                "PYTHONPATH": os.pathsep.join([str(HERE), source]),
                "PYTHONDONTWRITEBYTECODE": "1",
                "HOME": name,
            }
            pytest = [sys.executable, "-m", "pytest", "-p", "fenced", "-p", "no:cacheprovider", "--quiet", "--tb=short"]
            files = [] if any(".py" in word for word in words) else FILES
            subprocess.run([*pytest, *files, *words], cwd=source, env={**os.environ, **environment})
            wrong = told([json.loads(line) for line in results.read_text().splitlines()], differs)
        finally:
            server.terminate()
            server.wait()
            if log := os.environ.get("CEPH_LOG"):
                Path(log).write_text((folder / "log").read_text())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
