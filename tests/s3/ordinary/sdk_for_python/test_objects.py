"""Objects: whole, in ranges, under conditions, copied, and what is said of them."""

import datetime
import io
import secrets
import unittest

from case import FLAT, LAKE, MIB, Case

ODD_KEYS = [
    "a b",
    " around ",
    "a+b",
    "100%",
    "%41%2F",
    "a//b",
    "//",
    "a/../b",
    "./a",
    "tail/",
    "ключ/ö/日本/🦀",
    "o\u0308",
    "!'()*;:@&=$,~-_.",
    '"<>\\^`{|}[]#?',
    "k" * 1024,
]


class Objects(Case):
    def test_what_is_put_is_there_and_what_is_deleted_is_gone(self) -> None:
        etag = self.put("orders/one", b"the body")
        for answer in [
            self.s3.head_object(Bucket=LAKE, Key="orders/one"),
            self.s3.get_object(Bucket=LAKE, Key="orders/one"),
        ]:
            self.assertEqual((answer["ETag"], answer["ContentLength"]), (etag, 8))
            age = datetime.datetime.now(datetime.UTC) - answer["LastModified"]
            self.assertLess(abs(age.total_seconds()), 60)
        self.assertEqual(self.get("orders/one"), b"the body")
        self.assertNotEqual(self.put("orders/one", b"the body"), etag, "an ETag names a write, not bytes")
        for _ in range(2):
            self.s3.delete_object(Bucket=LAKE, Key="orders/one")
        self.is_absent("orders/one")
        self.refuses("NoSuchKey", self.s3.get_object, Bucket=LAKE, Key="orders/one")
        self.refuses("NoSuchBucket", self.s3.get_object, Bucket="no-such-bucket", Key="k")

    def test_bodies_of_any_size(self) -> None:
        for size in [0, 1, 300 * 1024, 3 * MIB]:
            body = secrets.token_bytes(size)
            self.put("orders/sized", body)
            self.assertEqual(self.get("orders/sized"), body)

    def test_what_is_said_of_an_object_comes_back(self) -> None:
        said = {
            "ContentType": "text/csv; charset=utf-8",
            "CacheControl": "max-age=60",
            "ContentDisposition": 'attachment; filename="a b.csv"',
            "ContentEncoding": "x-none",
            "ContentLanguage": "de, en",
            "Metadata": {"made-by": "a test", "empty": ""},
        }
        self.put("orders/said", **said)
        head = self.s3.head_object(Bucket=LAKE, Key="orders/said")
        self.assertEqual({name: head[name] for name in said}, said)
        self.put("orders/said")
        head = self.s3.head_object(Bucket=LAKE, Key="orders/said")
        self.assertEqual((head["Metadata"], head["ContentType"]), ({}, "binary/octet-stream"), "of the object before")
        self.assertNotIn("CacheControl", head)
        answer = self.s3.get_object(Bucket=LAKE, Key="orders/said", ResponseContentType="text/html")
        self.assertEqual(answer["ContentType"], "text/html")

    def test_any_key_is_a_key(self) -> None:
        for number, key in enumerate(ODD_KEYS):
            body = b"%d" % number
            self.put(key, body, FLAT)
            self.assertEqual(self.get(key, FLAT), body, key)
        listed = [one["Key"] for one in self.s3.list_objects_v2(Bucket=FLAT)["Contents"]]
        self.assertEqual(listed, sorted(ODD_KEYS, key=str.encode))
        for key in ODD_KEYS[:-1]:
            self.put("orders/" + key, key.encode())
            self.assertEqual(self.get("orders/" + key), key.encode(), key)
        for bucket, before in [(FLAT, ""), (LAKE, "orders/")]:
            objects = [{"Key": before + key} for key in ODD_KEYS]
            answer = self.s3.delete_objects(Bucket=bucket, Delete={"Objects": objects[:-1]})
            self.assertEqual(len(answer["Deleted"]), len(ODD_KEYS) - 1)
            self.assertNotIn("Errors", answer)
        self.s3.delete_object(Bucket=FLAT, Key=ODD_KEYS[-1])
        self.refuses("KeyTooLongError", self.s3.put_object, Bucket=FLAT, Key="k" * 1025)

    def test_what_no_lock_of_the_job_covers_is_refused(self) -> None:
        self.refuses("FenceTokenUnknown", self.s3.put_object, Bucket=LAKE, Key="others/k", Body=b"x")
        self.refuses("InvalidArgument", self.s3.put_object, Bucket=LAKE, Key="no name/k", Body=b"x")
        self.is_absent("others/k")

    def test_a_stream_without_an_end_in_sight(self) -> None:
        class Pipe(io.RawIOBase):
            """Something that cannot be read twice."""

            def __init__(self, size: int) -> None:
                self.left = size

            def readable(self) -> bool:
                return True

            def readinto(self, into: bytearray) -> int:
                count = min(len(into), self.left, 100_000)
                into[:count] = b"s" * count
                self.left -= count
                return count

        for size in [1000, 9 * MIB]:
            self.s3.upload_fileobj(io.BufferedReader(Pipe(size)), LAKE, "orders/stream")
            self.assertEqual(self.get("orders/stream"), b"s" * size)


class Ranges(Case):
    def test_a_part_of_an_object(self) -> None:
        for size in [10, 400 * 1024]:
            body = secrets.token_bytes(size)
            self.put("orders/range", body)
            last = size - 1
            for asked, wanted in [
                ("bytes=0-4", body[:5]),
                ("bytes=5-", body[5:]),
                ("bytes=-3", body[-3:]),
                (f"bytes={last}-{last + 9}", body[-1:]),
                ("bytes=-9999999", body),
            ]:
                answer = self.s3.get_object(Bucket=LAKE, Key="orders/range", Range=asked)
                self.assertEqual(answer["Body"].read(), wanted, asked)
                self.assertEqual(answer["ContentLength"], len(wanted))
                self.assertTrue(answer["ContentRange"].endswith(f"/{size}"), asked)
                self.assertEqual(answer["ResponseMetadata"]["HTTPStatusCode"], 206)
            self.refuses("InvalidRange", self.s3.get_object, Bucket=LAKE, Key="orders/range", Range=f"bytes={size}-")


class Conditions(Case):
    def test_a_put_with_a_condition(self) -> None:
        self.s3.delete_object(Bucket=LAKE, Key="orders/once")
        once = {"Bucket": LAKE, "Key": "orders/once", "Body": b"x"}
        etag = self.s3.put_object(**once, IfNoneMatch="*")["ETag"]
        self.refuses("PreconditionFailed", self.s3.put_object, **once, IfNoneMatch="*")
        newer = self.s3.put_object(**once, IfMatch=etag)["ETag"]
        self.refuses("PreconditionFailed", self.s3.put_object, **once, IfMatch=etag)
        self.refuses("NoSuchKey", self.s3.put_object, Bucket=LAKE, Key="orders/none", Body=b"", IfMatch=etag)
        self.refuses("PreconditionFailed", self.s3.delete_object, Bucket=LAKE, Key="orders/once", IfMatch=etag)
        self.s3.delete_object(Bucket=LAKE, Key="orders/once", IfMatch=newer)
        self.is_absent("orders/once")

    def test_a_get_with_a_condition(self) -> None:
        etag = self.put("orders/asked", b"body")
        of = {"Bucket": LAKE, "Key": "orders/asked"}
        hour = datetime.timedelta(hours=1)
        now = datetime.datetime.now(datetime.UTC)
        for good in [
            {"IfMatch": etag},
            {"IfNoneMatch": '"other"'},
            {"IfModifiedSince": now - hour},
            {"IfUnmodifiedSince": now + hour},
        ]:
            self.assertEqual(self.get("orders/asked", **good), b"body", good)
        for bad in [{"IfMatch": '"other"'}, {"IfUnmodifiedSince": now - hour}]:
            self.refuses("PreconditionFailed", self.s3.get_object, **of, **bad)
        for same in [{"IfNoneMatch": etag}, {"IfModifiedSince": now - datetime.timedelta(seconds=-2)}]:
            self.refuses("304", self.s3.get_object, **of, **same)


if __name__ == "__main__":
    unittest.main()
