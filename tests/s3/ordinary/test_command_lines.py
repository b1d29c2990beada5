"""What people do with the AWS CLI and with s5cmd, under a lock of `lake:orders` and others, as in sdk_for_python."""

import json
import os
import secrets
import subprocess
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

LAKE = "s3://lake"
MIB = 1024 * 1024
NAMES = ["a b", "a+b", "100%", "ключ ö", "(x)&=$,~-_"]


class Commands(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_(self, *words: object, fails: bool = False, given: bytes = b"") -> str:
        done = subprocess.run([str(word) for word in words], capture_output=True, input=given)
        self.assertEqual(done.returncode != 0, fails, (words, done.stderr))
        return done.stdout.decode()

    def file(self, name: str, body: bytes) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)
        return file

    def tree(self) -> Path:
        # Yesterday's: S3 tells whole seconds, so what is made and sent in one second looks as if it had changed since.
        yesterday_s = time.time() - 24 * 60 * 60
        for number, name in enumerate(NAMES):
            os.utime(self.file(f"tree/{name}/{name}.txt", b"%d" % number), (yesterday_s, yesterday_s))
        return self.folder / "tree"

    def files(self, below: Path) -> dict[str, bytes]:
        found = (file for file in below.rglob("*") if file.is_file())
        return {str(file.relative_to(below)): file.read_bytes() for file in found}


class AwsCli(Commands):
    def aws(self, *words: object, **more: object) -> str:
        return self.run_("aws", "s3", *words, **more)

    def api(self, *words: object, **more: object) -> dict:
        return json.loads(self.run_("aws", "s3api", *words, **more) or "{}")

    def test_files(self) -> None:
        body = secrets.token_bytes(20 * MIB)
        self.aws("cp", self.file("large", body), f"{LAKE}/orders/cli/large")
        self.aws("cp", f"{LAKE}/orders/cli/large", f"{LAKE}/orders/cli/copy")
        self.aws("cp", f"{LAKE}/orders/cli/copy", self.folder / "back")
        self.assertEqual((self.folder / "back").read_bytes(), body)
        self.aws("cp", "-", f"{LAKE}/orders/cli/piped", "--metadata", "a=b", given=b"from a pipe")
        self.aws("mv", f"{LAKE}/orders/cli/piped", f"{LAKE}/orders/cli/moved")
        head = self.api("head-object", "--bucket", "lake", "--key", "orders/cli/moved")
        self.assertEqual((head["ContentLength"], head["Metadata"]), (11, {"a": "b"}))
        self.aws("rm", f"{LAKE}/orders/cli/", "--recursive")
        self.aws("ls", f"{LAKE}/orders/cli/", fails=True)

    def test_folders(self) -> None:
        tree = self.tree()
        self.aws("sync", tree, f"{LAKE}/orders/tree")
        self.assertEqual(self.aws("sync", tree, f"{LAKE}/orders/tree"), "", "nothing has changed")
        listed = self.aws("ls", f"{LAKE}/orders/tree/").splitlines()
        self.assertEqual([line.split("PRE ")[1] for line in listed], sorted(f"{name}/" for name in NAMES))
        self.aws("cp", "--recursive", f"{LAKE}/orders/tree", self.folder / "back")
        self.assertEqual(self.files(self.folder / "back"), self.files(tree))
        self.file("tree/a b/a b.txt", b"another")
        (tree / "100%" / "100%.txt").unlink()
        said = self.aws("sync", "--delete", tree, f"{LAKE}/orders/tree")
        self.assertEqual((said.count("upload:"), said.count("delete:")), (1, 1), said)
        self.aws("rm", "--recursive", f"{LAKE}/orders/tree")

    def test_urls_and_conditions(self) -> None:
        of = ["--bucket", "lake", "--key", "orders/cli.txt"]
        body = ["--body", self.file("body", b"body")]
        self.api("put-object", *of, *body, "--if-none-match", "*", "--checksum-algorithm", "SHA256")
        self.run_("aws", "s3api", "put-object", *of, *body, "--if-none-match", "*", fails=True)
        url = self.aws("presign", f"{LAKE}/orders/cli.txt").strip()
        with urllib.request.urlopen(url) as answer:
            self.assertEqual(answer.read(), b"body")
        self.api("get-object", *of, "--range", "bytes=1-2", self.folder / "range")
        self.assertEqual((self.folder / "range").read_bytes(), b"od")
        self.api("delete-objects", "--bucket", "lake", "--delete", '{"Objects": [{"Key": "orders/cli.txt"}]}')
        self.run_("aws", "s3api", "head-object", *of, fails=True)
        self.assertIn("lake", self.aws("ls"))


class S5cmd(Commands):
    def s5cmd(self, *words: object, **more: object) -> str:
        return self.run_("s5cmd", *words, **more)

    def test_files(self) -> None:
        body = secrets.token_bytes(20 * MIB)
        self.s5cmd("cp", "--part-size", "5", "--metadata", "a=b", self.file("large", body), f"{LAKE}/orders/s5/large")
        self.s5cmd("cp", f"{LAKE}/orders/s5/large", f"{LAKE}/orders/s5/copy")
        self.s5cmd("cp", "--part-size", "5", f"{LAKE}/orders/s5/copy", self.folder / "back")
        self.assertEqual((self.folder / "back").read_bytes(), body)
        self.s5cmd("pipe", f"{LAKE}/orders/s5/piped", given=b"from a pipe")
        self.s5cmd("mv", f"{LAKE}/orders/s5/piped", f"{LAKE}/orders/s5/moved")
        self.assertEqual(self.s5cmd("cat", f"{LAKE}/orders/s5/moved"), "from a pipe")
        self.s5cmd("cat", f"{LAKE}/orders/s5/piped", fails=True)
        self.assertIn(f"{2 * len(body) + 11}", self.s5cmd("du", f"{LAKE}/orders/s5/*"))
        self.s5cmd("rm", f"{LAKE}/orders/s5/*")
        self.s5cmd("ls", f"{LAKE}/orders/s5/*", fails=True)

    def test_folders(self) -> None:
        tree = self.tree()
        self.s5cmd("sync", f"{tree}/", f"{LAKE}/orders/s5tree/")
        listed = self.s5cmd("ls", f"{LAKE}/orders/s5tree/").splitlines()
        self.assertEqual([line.split("DIR  ")[1] for line in listed], sorted(f"{name}/" for name in NAMES))
        self.s5cmd("cp", f"{LAKE}/orders/s5tree/*", f"{self.folder}/back/")
        self.assertEqual(self.files(self.folder / "back"), self.files(tree))
        self.s5cmd("rm", f"{LAKE}/orders/s5tree/*")


if __name__ == "__main__":
    unittest.main()
