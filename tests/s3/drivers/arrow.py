"""The file system of Arrow, on the AWS SDK for C++."""

import driver
import pyarrow.fs
from driver import BUCKET, PART_BYTES


class Files:
    def __init__(self) -> None:
        # By a URL, as libraries on top of it do: so it takes the endpoint from the environment.
        self.files, _ = pyarrow.fs.FileSystem.from_uri(f"s3://{BUCKET}")
        self.upload: object = None

    def write(self, key: str, body: bytes) -> None:
        with self.files.open_output_stream(f"{BUCKET}/{key}") as out:
            out.write(body)

    def put(self, key: str, text: str) -> None:
        self.write(key, text.encode())

    def large(self, key: str) -> None:
        self.write(key, bytes(2 * PART_BYTES + 1))

    def begin(self, key: str) -> None:
        self.upload = self.files.open_output_stream(f"{BUCKET}/{key}")
        self.upload.write(bytes(11 * 1024 * 1024))

    def complete(self) -> None:
        self.upload.close()

    def delete(self, key: str) -> None:
        self.files.delete_file(f"{BUCKET}/{key}")

    def copy(self, source: str, key: str) -> None:
        self.files.copy_file(f"{BUCKET}/{source}", f"{BUCKET}/{key}")

    def get(self, key: str) -> str:
        with self.files.open_input_file(f"{BUCKET}/{key}") as file:
            return file.read().decode()


if __name__ == "__main__":
    driver.serve(Files())
