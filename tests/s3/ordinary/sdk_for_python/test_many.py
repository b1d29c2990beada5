"""Lists, copies, deletions of many, and buckets."""

import io
import os
import secrets
import unittest

import boto3
from case import FLAT, LAKE, MIB, Case


class Lists(Case):
    KEYS = ("a-b/y", "a/x", "a/y/1", "a/y/2", "b/z", "c", "d/e/f")

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        for key in cls.KEYS:
            cls.s3.put_object(Bucket=LAKE, Key="list/" + key, Body=key.encode())
        # Of other resources: `lake` itself, `lake:a-b`, `lake:a`.
        for key in ["root", "a/of-a", "a-b/of-a-b"]:
            cls.s3.put_object(Bucket=LAKE, Key=key, Body=b"")

    @classmethod
    def tearDownClass(cls) -> None:
        keys = [*("list/" + key for key in cls.KEYS), "root", "a/of-a", "a-b/of-a-b"]
        cls.s3.delete_objects(Bucket=LAKE, Delete={"Objects": [{"Key": key} for key in keys]})

    def listed(self, name: str = "list_objects_v2", size: int = 1000, **asked: object) -> tuple[list[str], list[str]]:
        keys, prefixes = [], []
        for page in self.s3.get_paginator(name).paginate(Bucket=LAKE, PaginationConfig={"PageSize": size}, **asked):
            self.assertLessEqual(len(page.get("Contents", [])) + len(page.get("CommonPrefixes", [])), size)
            keys += [one["Key"] for one in page.get("Contents", [])]
            prefixes += [one["Prefix"] for one in page.get("CommonPrefixes", [])]
        return keys, prefixes

    def test_in_the_order_of_whole_keys_page_by_page(self) -> None:
        wanted = ["list/" + key for key in self.KEYS]
        for name in ["list_objects_v2", "list_objects"]:
            for size in [1, 2, 3, 1000]:
                self.assertEqual(self.listed(name, size, Prefix="list/"), (wanted, []), (name, size))
                self.assertEqual(
                    self.listed(name, size, Prefix="list/", Delimiter="/"),
                    (["list/c"], ["list/a-b/", "list/a/", "list/b/", "list/d/"]),
                    (name, size),
                )

    def test_over_resources(self) -> None:
        for size in [1, 2, 1000]:
            keys, _ = self.listed(size=size)
            self.assertEqual(keys, sorted(keys))
            self.assertLessEqual({"root", "a/of-a", "a-b/of-a-b", "list/c"}, set(keys))
            self.assertEqual(self.listed(size=size, Prefix="a"), (["a-b/of-a-b", "a/of-a"], []))
            self.assertEqual(self.listed(size=size, Prefix="a", Delimiter="/"), ([], ["a-b/", "a/"]))

    def test_from_somewhere_on(self) -> None:
        self.assertEqual(self.listed(Prefix="list/", StartAfter="list/b/z")[0], ["list/c", "list/d/e/f"])
        answer = self.s3.list_objects(Bucket=LAKE, Prefix="list/", Marker="list/b/z", MaxKeys=1)
        self.assertEqual(([one["Key"] for one in answer["Contents"]], answer["IsTruncated"]), (["list/c"], True))

    def test_what_is_told_of_each(self) -> None:
        [one] = self.s3.list_objects_v2(Bucket=LAKE, Prefix="list/c", FetchOwner=True)["Contents"]
        head = self.s3.head_object(Bucket=LAKE, Key="list/c")
        self.assertEqual((one["ETag"], one["Size"]), (head["ETag"], 1))
        self.assertEqual(one["LastModified"].replace(microsecond=0), head["LastModified"])
        self.assertIn("Owner", one)
        nothing = self.s3.list_objects_v2(Bucket=LAKE, Prefix="no-such/")
        self.assertEqual((nothing["KeyCount"], nothing["IsTruncated"]), (0, False))


class Copies(Case):
    def test_an_object_with_what_is_said_of_it(self) -> None:
        etag = self.put("a/from +ö", b"body", Metadata={"a": "1"}, ContentType="x/y")
        source = {"Bucket": LAKE, "Key": "a/from +ö"}
        for bucket, key in [(LAKE, "a/to"), (LAKE, "orders/to"), (FLAT, "to")]:
            told = self.s3.copy_object(Bucket=bucket, Key=key, CopySource=source)["CopyObjectResult"]["ETag"]
            head = self.s3.head_object(Bucket=bucket, Key=key)
            self.assertEqual((head["ETag"], head["Metadata"], head["ContentType"]), (told, {"a": "1"}, "x/y"))
            self.assertEqual(self.get(key, bucket), b"body")
        to = {"Bucket": LAKE, "Key": "orders/to", "CopySource": source}
        self.s3.copy_object(**to, MetadataDirective="REPLACE", Metadata={"b": "2"}, ContentType="z/z")
        head = self.s3.head_object(Bucket=LAKE, Key="orders/to")
        self.assertEqual((head["Metadata"], head["ContentType"]), ({"b": "2"}, "z/z"))
        self.s3.copy_object(**to, CopySourceIfMatch=etag)
        self.refuses("PreconditionFailed", self.s3.copy_object, **to, CopySourceIfNoneMatch=etag)
        missing = {**to, "CopySource": {"Bucket": LAKE, "Key": "a/none"}}
        self.refuses("NoSuchKey", self.s3.copy_object, **missing)
        same = {**to, "CopySource": {"Bucket": LAKE, "Key": "orders/to"}}
        self.refuses("InvalidRequest", self.s3.copy_object, **same)
        for bucket, key in [(LAKE, "a/from +ö"), (LAKE, "a/to"), (FLAT, "to")]:
            self.s3.delete_object(Bucket=bucket, Key=key)

    def test_large_objects(self) -> None:
        body = secrets.token_bytes(12 * MIB)
        self.s3.upload_fileobj(io.BytesIO(body), LAKE, "orders/large-source")
        self.s3.copy({"Bucket": LAKE, "Key": "orders/large-source"}, LAKE, "orders/large-copy")
        self.assertEqual(self.get("orders/large-copy"), body)


class Deletions(Case):
    def test_many_over_resources_at_once(self) -> None:
        keys = ["orders/1", "orders/2", "a/3", "root"]
        for key in keys:
            self.put(key)
        objects = [{"Key": key} for key in [*keys, "a/never-there", "others/k"]]
        answer = self.s3.delete_objects(Bucket=LAKE, Delete={"Objects": objects})
        self.assertEqual({one["Key"] for one in answer["Deleted"]}, {*keys, "a/never-there"})
        self.assertEqual([(one["Key"], one["Code"]) for one in answer["Errors"]], [("others/k", "FenceTokenUnknown")])
        for key in keys:
            self.is_absent(key)
        self.put("orders/1")
        answer = self.s3.delete_objects(Bucket=LAKE, Delete={"Objects": [{"Key": "orders/1"}], "Quiet": True})
        self.assertNotIn("Deleted", answer)
        self.is_absent("orders/1")


class Buckets(Case):
    def test_what_tools_ask_of_buckets(self) -> None:
        self.assertLessEqual({LAKE, FLAT}, {one["Name"] for one in self.s3.list_buckets()["Buckets"]})
        self.s3.head_bucket(Bucket=LAKE)
        self.refuses("404", self.s3.head_bucket, Bucket="no-such-bucket")
        location = self.s3.get_bucket_location(Bucket=LAKE)["LocationConstraint"]
        self.assertEqual(location, os.environ["AWS_REGION"])
        self.assertNotIn("Status", self.s3.get_bucket_versioning(Bucket=LAKE))
        self.s3.create_bucket(Bucket=LAKE)
        self.refuses("AccessDenied", self.s3.create_bucket, Bucket="a-new-bucket")
        self.refuses("NoSuchBucket", self.s3.list_objects_v2, Bucket="no-such-bucket")

    def test_what_is_not_there_is_refused_by_name(self) -> None:
        self.refuses("NotImplemented", self.s3.list_object_versions, Bucket=LAKE)
        self.refuses(
            "NotImplemented",
            self.s3.put_bucket_lifecycle_configuration,
            Bucket=LAKE,
            LifecycleConfiguration={"Rules": []},
        )

    def test_who_has_no_key_gets_nothing(self) -> None:
        for key, secret, code in [
            ("FG1" + "A" * 52, "x", "InvalidAccessKeyId"),
            (os.environ["AWS_ACCESS_KEY_ID"], "x" * 43, "SignatureDoesNotMatch"),
        ]:
            other = boto3.client("s3", aws_access_key_id=key, aws_secret_access_key=secret)
            self.refuses(code, other.put_object, Bucket=LAKE, Key="orders/k", Body=b"x")
            self.refuses(code, other.list_objects_v2, Bucket=LAKE)


if __name__ == "__main__":
    unittest.main()
