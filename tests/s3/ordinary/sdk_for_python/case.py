"""What the tests of the AWS SDK for Python have in common. They run under a lock of `lake` and some of its resources, and of
`flat`.

`lake` is one segment deep: `orders/x` lies in the resource `lake:orders`, `x` in `lake`. `flat` is one resource.
"""

import unittest

import boto3
from botocore.exceptions import ClientError

LAKE, FLAT = "lake", "flat"
MIB = 1024 * 1024


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.s3 = boto3.client("s3")

    def refuses(self, code: str, call: object, **given: object) -> dict:
        """The call fails with this code."""
        with self.assertRaises(ClientError) as caught:
            call(**given)
        self.assertEqual(caught.exception.response["Error"]["Code"], code)
        return caught.exception.response

    def put(self, key: str, body: bytes = b"x", bucket: str = LAKE, **more: object) -> str:
        return self.s3.put_object(Bucket=bucket, Key=key, Body=body, **more)["ETag"]

    def get(self, key: str, bucket: str = LAKE, **more: object) -> bytes:
        return self.s3.get_object(Bucket=bucket, Key=key, **more)["Body"].read()

    def is_absent(self, key: str, bucket: str = LAKE) -> None:
        self.refuses("404", self.s3.head_object, Bucket=bucket, Key=key)
