"""Uploads in parts, checksums, and URLs that are signed."""

import hashlib
import secrets
import tempfile
import unittest
import urllib.error
import urllib.request
from pathlib import Path

from case import LAKE, MIB, Case


class Uploads(Case):
    def test_a_large_file_in_parts(self) -> None:
        body = secrets.token_bytes(20 * MIB)
        with tempfile.TemporaryDirectory() as folder:
            file, back = Path(folder, "file"), Path(folder, "back")
            file.write_bytes(body)
            self.s3.upload_file(
                str(file), LAKE, "orders/large", ExtraArgs={"Metadata": {"a": "b"}, "ContentType": "x/y"}
            )
            self.s3.download_file(LAKE, "orders/large", str(back))
            self.assertEqual(hashlib.sha256(back.read_bytes()).digest(), hashlib.sha256(body).digest())
        head = self.s3.head_object(Bucket=LAKE, Key="orders/large", PartNumber=1)
        self.assertEqual((head["Metadata"], head["ContentType"]), ({"a": "b"}, "x/y"))
        self.assertEqual((head["PartsCount"], head["ContentLength"]), (3, 8 * MIB))
        # Over the end of a part.
        asked = f"bytes={8 * MIB - 3}-{8 * MIB + 2}"
        self.assertEqual(self.get("orders/large", Range=asked), body[8 * MIB - 3 : 8 * MIB + 3])

    def test_part_by_part(self) -> None:
        of = {"Bucket": LAKE, "Key": "orders/parts"}
        upload = {**of, "UploadId": self.s3.create_multipart_upload(**of)["UploadId"]}
        bodies = [b"replaced", b"1" * (5 * MIB), b"3"]
        etags = [
            self.s3.upload_part(**upload, PartNumber=number, Body=body)["ETag"]
            for number, body in zip([1, 1, 3], bodies, strict=True)
        ]
        listed = self.s3.list_parts(**upload)["Parts"]
        self.assertEqual(
            [(one["PartNumber"], one["ETag"], one["Size"]) for one in listed],
            [(1, etags[1], 5 * MIB), (3, etags[2], 1)],
        )
        again = self.s3.upload_part(**upload, PartNumber=1, Body=bodies[1])["ETag"]
        self.assertEqual(again, etags[1], "the same part, sent twice")
        uploads = self.s3.list_multipart_uploads(Bucket=LAKE, Prefix="orders/")["Uploads"]
        self.assertEqual([(one["Key"], one["UploadId"]) for one in uploads], [("orders/parts", upload["UploadId"])])
        self.is_absent("orders/parts")
        good = [{"PartNumber": 1, "ETag": etags[1]}, {"PartNumber": 3, "ETag": etags[2]}]
        for code, parts in [
            ("InvalidPart", [{"PartNumber": 1, "ETag": etags[0]}]),
            ("InvalidPart", [{"PartNumber": 2, "ETag": etags[1]}]),
            ("InvalidPartOrder", good[::-1]),
        ]:
            self.refuses(code, self.s3.complete_multipart_upload, **upload, MultipartUpload={"Parts": parts})
        told = [self.s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": good})["ETag"] for _ in range(2)]
        self.assertEqual(told[0], told[1], "the second is a repetition")
        self.assertEqual(self.get("orders/parts"), bodies[1] + bodies[2])
        self.assertEqual(self.s3.head_object(**of)["ETag"], told[0])
        self.refuses("NoSuchUpload", self.s3.upload_part, **upload, PartNumber=4, Body=b"late")

    def test_small_parts_and_uploads_that_are_given_up(self) -> None:
        of = {"Bucket": LAKE, "Key": "orders/given-up"}
        upload = {**of, "UploadId": self.s3.create_multipart_upload(**of)["UploadId"]}
        parts = [
            {"PartNumber": number, "ETag": self.s3.upload_part(**upload, PartNumber=number, Body=b"small")["ETag"]}
            for number in [1, 2]
        ]
        self.refuses("EntityTooSmall", self.s3.complete_multipart_upload, **upload, MultipartUpload={"Parts": parts})
        self.s3.abort_multipart_upload(**upload)
        self.refuses("NoSuchUpload", self.s3.list_parts, **upload)
        self.refuses("NoSuchUpload", self.s3.complete_multipart_upload, **upload, MultipartUpload={"Parts": parts})
        self.is_absent("orders/given-up")

    def test_parts_that_are_copied(self) -> None:
        body = secrets.token_bytes(6 * MIB)
        self.put("a/source", body)
        of = {"Bucket": LAKE, "Key": "orders/of-copies"}
        upload = {**of, "UploadId": self.s3.create_multipart_upload(**of)["UploadId"]}
        source = {"CopySource": {"Bucket": LAKE, "Key": "a/source"}}
        parts = []
        for number, span in enumerate([f"bytes=0-{5 * MIB - 1}", f"bytes={5 * MIB}-{6 * MIB - 1}"], 1):
            told = self.s3.upload_part_copy(**upload, **source, PartNumber=number, CopySourceRange=span)
            parts.append({"PartNumber": number, "ETag": told["CopyPartResult"]["ETag"]})
        self.s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
        self.assertEqual(self.get("orders/of-copies"), body)
        self.s3.delete_object(Bucket=LAKE, Key="a/source")


class Checksums(Case):
    def test_each_that_the_client_can_make(self) -> None:
        for name in ["CRC32", "SHA1", "SHA256"]:
            sent = self.s3.put_object(Bucket=LAKE, Key="orders/sum", Body=b"body", ChecksumAlgorithm=name)
            head = self.s3.head_object(Bucket=LAKE, Key="orders/sum", ChecksumMode="ENABLED")
            self.assertEqual(head[f"Checksum{name}"], sent[f"Checksum{name}"])
        self.assertNotIn("ChecksumSHA256", self.s3.head_object(Bucket=LAKE, Key="orders/sum"))

    def test_a_wrong_one_changes_nothing(self) -> None:
        self.put("orders/sum", b"good")
        wrong = {"Bucket": LAKE, "Key": "orders/sum", "Body": b"bad"}
        self.refuses("BadDigest", self.s3.put_object, **wrong, ChecksumSHA1="2jmj7l5rSw0yVb/vlWAYkK/YBwk=")
        self.refuses("BadDigest", self.s3.put_object, **wrong, ContentMD5="1B2M2Y8AsgTpgAmY7PhCfg==")
        self.refuses("InvalidDigest", self.s3.put_object, **wrong, ContentMD5="short")
        self.assertEqual(self.get("orders/sum"), b"good")

    def test_of_an_upload_in_parts(self) -> None:
        of = {"Bucket": LAKE, "Key": "orders/sums"}
        made = self.s3.create_multipart_upload(**of, ChecksumAlgorithm="SHA256")
        upload = {**of, "UploadId": made["UploadId"]}
        part = self.s3.upload_part(**upload, PartNumber=1, Body=b"body", ChecksumAlgorithm="SHA256")
        parts = [{"PartNumber": 1, "ETag": part["ETag"], "ChecksumSHA256": part["ChecksumSHA256"]}]
        self.s3.complete_multipart_upload(**upload, MultipartUpload={"Parts": parts})
        head = self.s3.head_object(**of, ChecksumMode="ENABLED")
        self.assertTrue(head["ChecksumSHA256"].endswith("-1"), head["ChecksumSHA256"])
        self.assertEqual(head["ChecksumType"], "COMPOSITE")


class Presigned(Case):
    def fetch(self, method: str, url: str, body: bytes | None = None) -> tuple[int, bytes]:
        request = urllib.request.Request(url, data=body, method=method)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def test_whoever_has_the_url_does_what_it_says(self) -> None:
        for key in ["orders/plain", "orders/a b+c/ö%"]:
            of = {"Bucket": LAKE, "Key": key}
            put = self.s3.generate_presigned_url("put_object", of)
            self.assertEqual(self.fetch("PUT", put, b"by url")[0], 200)
            get = self.s3.generate_presigned_url("get_object", {**of, "ResponseContentType": "a/b"})
            self.assertEqual(self.fetch("GET", get), (200, b"by url"))
            self.assertEqual(self.fetch("DELETE", get)[0], 403)
            other = get.replace("lake/orders/", "lake/orders/x")
            self.assertEqual(self.fetch("GET", other)[0], 403)


if __name__ == "__main__":
    unittest.main()
