"""The client of MinIO for Python."""

import io
import os

import driver
import minio
from driver import BUCKET, PART_BYTES
from minio.commonconfig import CopySource
from minio.deleteobjects import DeleteObject


class Client:
    def __init__(self) -> None:
        host = os.environ["AWS_ENDPOINT_URL_S3"].removeprefix("http://")
        keys = minio.credentials.EnvAWSProvider()
        self.client = minio.Minio(host, credentials=keys, secure=False)

    def put(self, key: str, text: str) -> None:
        body = text.encode()
        self.client.put_object(BUCKET, key, io.BytesIO(body), len(body))

    def large(self, key: str) -> None:
        size = 2 * PART_BYTES + 1
        self.client.put_object(BUCKET, key, io.BytesIO(bytes(size)), size, part_size=PART_BYTES)

    def delete(self, key: str) -> None:
        self.client.remove_object(BUCKET, key)

    def delete_many(self, keys: list[str]) -> None:
        if errors := list(self.client.remove_objects(BUCKET, [DeleteObject(key) for key in keys])):
            raise RuntimeError([str(error.code) for error in errors])

    def copy(self, source: str, key: str) -> None:
        self.client.copy_object(BUCKET, key, CopySource(BUCKET, source))

    def get(self, key: str) -> str:
        with self.client.get_object(BUCKET, key) as answer:
            return answer.read().decode()


if __name__ == "__main__":
    driver.serve(Client())
