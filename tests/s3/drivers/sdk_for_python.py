"""The AWS SDK for Python, boto3."""

import tempfile

import boto3
import driver
from driver import BUCKET, PART_BYTES


class Sdk:
    def __init__(self) -> None:
        self.begin_anew()
        self.upload: dict[str, str] = {}
        self.parts: list[dict] = []

    def begin_anew(self) -> None:
        self.session = boto3.Session()
        self.s3 = self.session.client("s3")

    def put(self, key: str, text: str, **conditions: str) -> str:
        return self.s3.put_object(Bucket=BUCKET, Key=key, Body=text.encode(), **conditions)["ETag"]

    def large(self, key: str) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.truncate(12 * 1024 * 1024)
            self.s3.upload_file(file.name, BUCKET, key)

    def begin(self, key: str) -> None:
        made = self.s3.create_multipart_upload(Bucket=BUCKET, Key=key)
        self.upload = {"Bucket": BUCKET, "Key": key, "UploadId": made["UploadId"]}
        self.part()

    def part(self) -> None:
        number = len(self.parts) + 1
        answer = self.s3.upload_part(**self.upload, PartNumber=number, Body=bytes(PART_BYTES))
        self.parts.append({"PartNumber": number, "ETag": answer["ETag"]})

    def complete(self) -> str:
        answer = self.s3.complete_multipart_upload(**self.upload, MultipartUpload={"Parts": self.parts})
        return answer["ETag"]

    def delete(self, key: str, **conditions: str) -> None:
        self.s3.delete_object(Bucket=BUCKET, Key=key, **conditions)

    def delete_many(self, keys: list[str]) -> None:
        answer = self.s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in keys]})
        if errors := answer.get("Errors"):
            raise RuntimeError(errors)

    def copy(self, source: str, key: str) -> None:
        self.s3.copy_object(Bucket=BUCKET, Key=key, CopySource={"Bucket": BUCKET, "Key": source})

    def get(self, key: str) -> str:
        return self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read().decode()


if __name__ == "__main__":
    driver.serve(Sdk())
