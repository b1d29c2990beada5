"""Works out the access keys that the test `keys` of this crate expects, apart from the code that it tests.

python3 gateway/s3/tests/vectors/keys.py
"""

import base64
import hashlib
import hmac
import uuid

ROOT = bytes(range(32))
LOCK = uuid.UUID("67e55044-10b1-426f-9247-bb680e5fe0c8")


def mac(key: bytes, text: bytes) -> bytes:
    return hmac.new(key, text, hashlib.sha256).digest()


def derived(purpose: str) -> bytes:
    return mac(ROOT, f"fencegate s3 {purpose}".encode())


def show(form: str, plain: bytes) -> None:
    key = form + base64.b32encode(plain).decode().rstrip("=")
    secret = base64.urlsafe_b64encode(mac(derived("secret"), key.encode())).decode().rstrip("=")
    print(f'("{key}", "{secret}"),')


def of_lock(token: int, lock: uuid.UUID) -> None:
    plain = token.to_bytes(8, "big") + lock.bytes
    iv = mac(derived("lock tag"), plain)[:8]
    stream = mac(derived("lock stream"), iv)
    show("FG1", iv + bytes(one ^ other for one, other in zip(plain, stream, strict=False)))


def authenticated(form: str, purpose: str, plain: bytes) -> None:
    show(form, plain + mac(derived(purpose), plain)[:8])


of_lock(1, LOCK)
of_lock(2**63 - 1, LOCK)
authenticated("FG2", "principal tag", b"k7")
authenticated("FG2", "principal tag", b"z" * 32)
authenticated("FG3", "anyone tag", bytes([0]) + bytes(range(11)))
authenticated("FG3", "anyone tag", bytes([1]) + bytes(range(11)))
