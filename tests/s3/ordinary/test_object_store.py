"""What programs do with the crate object_store, under a lock of `lake:orders` and others, as in sdk_for_python."""

import datetime
import secrets
import unittest
import urllib.request

import obstore
from obstore.exceptions import AlreadyExistsError, NotFoundError, NotModifiedError, PreconditionError
from obstore.store import S3Store

MIB = 1024 * 1024
KEYS = ["orders/a b", "orders/a+b", "orders/100%", "orders/%41", "orders/ключ/ö", "orders/!'()*;:@&=$,~-_."]


class Objects(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.store = S3Store("lake")

    def get(self, key: str, **options: object) -> bytes:
        return obstore.get(self.store, key, options=options).bytes().to_bytes()

    def test_what_is_put_is_there_and_what_is_deleted_is_gone(self) -> None:
        for key in KEYS:
            told = obstore.put(self.store, key, key.encode())
            head = obstore.head(self.store, key)
            self.assertEqual((head["e_tag"], head["size"], head["path"]), (told["e_tag"], len(key.encode()), key))
            self.assertEqual(self.get(key), key.encode())
        obstore.delete(self.store, KEYS)
        for key in KEYS:
            with self.assertRaises((NotFoundError, FileNotFoundError)):
                obstore.head(self.store, key)

    def test_what_is_said_of_an_object_comes_back(self) -> None:
        said = {"Content-Type": "text/csv", "Cache-Control": "no-cache", "made-by": "a test"}
        obstore.put(self.store, "orders/said", b"x", attributes=said)
        self.assertEqual(obstore.get(self.store, "orders/said").attributes, said)

    def test_ranges(self) -> None:
        body = secrets.token_bytes(400 * 1024)
        obstore.put(self.store, "orders/range", body)
        self.assertEqual(obstore.get_range(self.store, "orders/range", start=5, end=9).to_bytes(), body[5:9])
        self.assertEqual(self.get("orders/range", range={"suffix": 7}), body[-7:])
        self.assertEqual(self.get("orders/range", range={"offset": 7}), body[7:])
        ranges = obstore.get_ranges(self.store, "orders/range", starts=[0, 300_000], ends=[4, 300_005])
        self.assertEqual([one.to_bytes() for one in ranges], [body[:4], body[300_000:300_005]])

    def test_conditions(self) -> None:
        obstore.delete(self.store, "orders/once")
        made = obstore.put(self.store, "orders/once", b"1", mode="create")
        with self.assertRaises(AlreadyExistsError):
            obstore.put(self.store, "orders/once", b"2", mode="create")
        newer = obstore.put(self.store, "orders/once", b"2", mode={"e_tag": made["e_tag"]})
        with self.assertRaises(PreconditionError):
            obstore.put(self.store, "orders/once", b"3", mode={"e_tag": made["e_tag"]})
        with self.assertRaises(PreconditionError):
            self.get("orders/once", if_match=made["e_tag"])
        with self.assertRaises(NotModifiedError):
            self.get("orders/once", if_none_match=newer["e_tag"])
        self.assertEqual(self.get("orders/once"), b"2")

    def test_lists(self) -> None:
        keys = ["a-b/y", "a/x", "a/y/1", "a/y/2", "c"]
        for key in keys:
            obstore.put(self.store, f"list/{key}", b"x")
        listed = [one["path"] for page in obstore.list(self.store, "list", chunk_size=2) for one in page]
        self.assertEqual(listed, [f"list/{key}" for key in keys])
        below = obstore.list_with_delimiter(self.store, "list")
        self.assertEqual([one["path"] for one in below["objects"]], ["list/c"])
        self.assertEqual(sorted(below["common_prefixes"]), ["list/a", "list/a-b"])
        obstore.delete(self.store, listed)

    def test_copies(self) -> None:
        obstore.put(self.store, "orders/from ö", b"body")
        for name in ["orders/to", "a/to"]:
            obstore.copy(self.store, "orders/from ö", name, overwrite=True)
            self.assertEqual(self.get(name), b"body")
        obstore.rename(self.store, "a/to", "a/renamed", overwrite=True)
        self.assertEqual(self.get("a/renamed"), b"body")
        with self.assertRaises((NotFoundError, FileNotFoundError)):
            obstore.head(self.store, "a/to")
        obstore.delete(self.store, "a/renamed")

    def test_large_objects(self) -> None:
        body = secrets.token_bytes(20 * MIB)
        obstore.put(self.store, "orders/large", body, use_multipart=True, max_concurrency=4)
        self.assertEqual(self.get("orders/large"), body)
        pieces = (body[at : at + MIB] for at in range(0, len(body), MIB))
        obstore.put(self.store, "orders/stream", pieces)
        self.assertEqual(self.get("orders/stream"), body)
        with obstore.open_writer(self.store, "orders/written") as writer:
            writer.write(body[: 11 * MIB])
        self.assertEqual(self.get("orders/written"), body[: 11 * MIB])

    def test_whoever_has_the_url_does_what_it_says(self) -> None:
        minute = datetime.timedelta(minutes=1)
        put = obstore.sign(self.store, "PUT", "orders/signed ö+", minute)
        with urllib.request.urlopen(urllib.request.Request(put, data=b"by url", method="PUT")) as answer:
            self.assertEqual(answer.status, 200)
        with urllib.request.urlopen(obstore.sign(self.store, "GET", "orders/signed ö+", minute)) as answer:
            self.assertEqual(answer.read(), b"by url")


if __name__ == "__main__":
    unittest.main()
