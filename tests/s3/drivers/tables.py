"""Libraries of tables. To put a text is to write a table that has it in its one row. The first word says which library."""

import sys
from collections.abc import Callable

import driver
from driver import BUCKET


def at(key: str) -> str:
    return f"s3://{BUCKET}/{key}"


class Delta:
    """Delta Lake: delta-rs, on object_store."""

    def __init__(self) -> None:
        import deltalake
        import pyarrow

        self.delta, self.arrow = deltalake, pyarrow

    def put(self, key: str, text: str) -> None:
        table = self.arrow.table({"text": [text]})
        self.delta.write_deltalake(at(key), table, mode="overwrite")

    def delete(self, key: str) -> None:
        """Deletes the files of versions before this one."""
        table = self.delta.DeltaTable(at(key))
        table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)

    def get(self, key: str) -> str:
        return self.delta.DeltaTable(at(key)).to_pyarrow_table()["text"][0].as_py()


class Lance:
    """Lance, on object_store."""

    def __init__(self) -> None:
        import lance
        import pyarrow

        self.lance, self.arrow = lance, pyarrow

    def put(self, key: str, text: str) -> None:
        self.lance.write_dataset(self.arrow.table({"text": [text]}), at(key), mode="overwrite")

    def delete(self, key: str) -> None:
        self.lance.dataset(at(key)).delete("true")

    def get(self, key: str) -> str:
        return self.lance.dataset(at(key)).to_table()["text"][0].as_py()


class Polars:
    """Frames of polars, on object_store."""

    def __init__(self) -> None:
        import polars

        self.polars = polars

    def put(self, key: str, text: str) -> None:
        self.polars.DataFrame({"text": [text]}).write_parquet(at(key))

    def get(self, key: str) -> str:
        return self.polars.read_parquet(at(key))["text"][0]


class DuckDb:
    """DuckDB, with a client of S3 of its own."""

    def __init__(self) -> None:
        from pathlib import Path

        import duckdb
        import duckdb_ext.extensions

        self.db = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        extension = next(Path(duckdb_ext.extensions.__path__[0]).rglob("*.duckdb_extension"))
        self.db.execute(f"LOAD '{extension}'")
        # The variables that it reads by itself say all but this.
        self.db.execute("SET s3_url_style = 'path'")

    def put(self, key: str, text: str) -> None:
        self.db.execute(f"COPY (SELECT '{text}' AS text) TO '{at(key)}' (FORMAT csv)")

    def get(self, key: str) -> str:
        return self.db.execute(f"SELECT text FROM read_csv('{at(key)}')").fetchone()[0]


TOOLS: dict[str, Callable[[], object]] = {"delta": Delta, "lance": Lance, "polars": Polars, "duckdb": DuckDb}

if __name__ == "__main__":
    driver.serve(TOOLS[sys.argv[1]]())
