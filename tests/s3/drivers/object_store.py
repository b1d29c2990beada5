"""The crate object_store, by its package for Python: what delta-rs, Lance, polars and DataFusion stand on."""

import driver
import obstore
from driver import BUCKET, PART_BYTES
from obstore.store import S3Store


class ObjectStore:
    def __init__(self) -> None:
        self.store = S3Store(BUCKET)
        self.writer: object = None

    def put(self, key: str, text: str, mode: str = "overwrite") -> str:
        return obstore.put(self.store, key, text.encode(), mode=mode)["e_tag"]

    def large(self, key: str) -> None:
        obstore.put(self.store, key, bytes(2 * PART_BYTES + 1), use_multipart=True, chunk_size=PART_BYTES)

    def begin(self, key: str) -> None:
        self.writer = obstore.open_writer(self.store, key, buffer_size=PART_BYTES)
        self.writer.write(bytes(PART_BYTES + 1))
        self.writer.flush()

    def complete(self) -> None:
        self.writer.close()

    def delete(self, key: str) -> None:
        obstore.delete(self.store, key)

    def copy(self, source: str, key: str) -> None:
        obstore.copy(self.store, source, key, overwrite=True)

    def get(self, key: str) -> str:
        return obstore.get(self.store, key).bytes().to_bytes().decode()


if __name__ == "__main__":
    driver.serve(ObjectStore())
