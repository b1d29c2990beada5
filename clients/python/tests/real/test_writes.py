"""Writes and reads of real gateways, for threads."""

from __future__ import annotations

import resource as machine
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencegate import (
    DELETE,
    KEEP,
    Body,
    Changed,
    Fencegate,
    Kind,
    LockLost,
    Misuse,
    NotApplied,
    NotFound,
    Operation,
    OutcomeUnknown,
    Unavailable,
)
from fencegate.hooks import Event, Retry
from fencegate.testing import Gateway

from .waiting import HANGS_S, until


def test_an_object_is_written_read_and_deleted(fencegate: Fencegate, fencegate_resource: str) -> None:
    with fencegate.lock(fencegate_resource) as lock:
        written = lock.put("a/ü.txt", "hällo", content_type="text/plain")
        assert written.created and written.version == 1 and written.size == 6 and not written.replayed
        assert (written.receipt.number, written.receipt.attempts) == (1, 1)
        again = lock.put("a/ü.txt", b"2", if_match=written.etag)
        assert not again.created and again.version == 2
        with pytest.raises(Changed) as changed:
            lock.put("a/ü.txt", "3", if_match=written.etag)
        assert changed.value.version == 2 and changed.value.etag == again.etag
        with pytest.raises(Changed):
            lock.put("a/ü.txt", "3", if_absent=True)
        lock.put("a/ü.txt", "4", expect_version=2)
        kept = fencegate.get(fencegate_resource, "a/ü.txt", version=3)
        assert kept is not None and kept.text == "4" and kept.version == 3
        with pytest.raises(NotFound):
            fencegate.get(fencegate_resource, "a/ü.txt", version=17)
        deleted = lock.delete("a/ü.txt")
        assert deleted.version == 4 and deleted.operation is not None
        assert lock.delete("a/ü.txt").version is None
    assert fencegate.get(fencegate_resource, "a/ü.txt") is None
    assert fencegate.head(fencegate_resource, "a/ü.txt") is None


def test_bodies_of_all_kinds(fencegate: Fencegate, fencegate_resource: str, tmp_path: Path) -> None:
    file = tmp_path / "scan.bin"
    file.write_bytes(b"file")

    def pieces() -> Iterator[bytes]:
        yield b"pie"
        yield b"ces"

    with fencegate.lock(fencegate_resource) as lock:
        lock.put("bytes", bytearray(b"bytes"))
        lock.put("json", json={"a": [1, "ü"]})
        lock.put("file", file)
        lock.put("stream", Body.stream(pieces))
        lock.put("sized", Body.stream(pieces, 6))
        lock.put("once", Body.once(pieces()))
        lock.put("empty", "")
        with pytest.raises(Misuse):
            lock.put("nothing")
        with pytest.raises(Misuse):
            lock.put("nan", json=float("nan"))
        with pytest.raises(Misuse):
            lock.put("missing", tmp_path / "missing")
        with pytest.raises((OutcomeUnknown, Unavailable)):
            lock.put("short", Body.stream(pieces, 7), timeout="1s")
    found = {entry.key: entry.size for entry in fencegate.list(fencegate_resource)}
    assert found == {"bytes": 5, "empty": 0, "file": 4, "json": 14, "once": 6, "sized": 6, "stream": 6}
    stored = fencegate.get(fencegate_resource, "json")
    assert stored is not None and stored.json() == {"a": [1, "ü"]} and stored.content_type == "application/json"


def test_names_are_refused_before_anything_is_sent(fencegate: Fencegate, fencegate_resource: str) -> None:
    with fencegate.lock(fencegate_resource) as lock:
        for key in ("", "a//b", "..", "a\x00", "e\u0301", 7):
            with pytest.raises(Misuse):
                lock.put(key, "x")  # type: ignore[arg-type]
        with pytest.raises(Misuse):
            lock.put("a", "x", resource="another")
        with pytest.raises(Misuse):
            lock.put("a", "x", idempotency_key="two words")
        with pytest.raises(Misuse):
            lock.put("a", "x", if_match="no quotes")
    with pytest.raises(Misuse):
        fencegate.lock("a/b").__enter__()


def test_a_commit_is_all_or_nothing(fencegate: Fencegate, fencegate_resource: str, tmp_path: Path) -> None:
    orders, stock = f"{fencegate_resource}:orders", f"{fencegate_resource}:stock"
    file = tmp_path / "label.bin"
    file.write_bytes(b"x" * 100_000)
    with fencegate.lock([orders, stock]) as lock:
        tag = lock.put("boxes", "98", resource=stock).etag
        assert tag is not None
        commit = lock.commit().put(orders, "17.json", json={"boxes": 1}, if_absent=True)
        commit.put(stock, "boxes", b"97", if_match=tag).put(orders, "17.bin", file).delete(orders, "draft.json")
        done = commit.expect_version(orders, 0).send()
        assert {(one.resource, one.version) for one in done.resources} == {(orders, 1), (stock, 2)}
        assert [str(one.op) for one in done.results] == ["put", "put", "put", "delete"]
        with pytest.raises(Changed) as changed:
            lock.commit().put(orders, "18.json", "{}").put(stock, "boxes", "96", if_match=tag).send()
        assert changed.value.index == 1
        with pytest.raises(Misuse):
            lock.commit().send()
        with pytest.raises(Misuse):
            lock.commit().put(orders, "a", "1").put(orders, "a", "2").send()
        with pytest.raises(Misuse):
            lock.commit().put("another", "a", "1").send()
    assert fencegate.get(orders, "18.json") is None
    label = fencegate.get(orders, "17.bin")
    assert label is not None and label.size == 100_000


def test_a_key_makes_a_write_take_effect_once(fencegate: Fencegate, fencegate_resource: str) -> None:
    with fencegate.lock(fencegate_resource) as lock:
        first = lock.put("paid.txt", "yes", idempotency_key="message-17")
        again = lock.put("paid.txt", "yes", idempotency_key="message-17")
        assert again.replayed and again.version == first.version
        with pytest.raises(Misuse):
            lock.put("paid.txt", "no", idempotency_key="message-17")
        done = lock.once("message-17", lambda: "never")
        assert isinstance(done, Operation) and done.version == first.version
        assert lock.once("message-18", lambda: "now") == "now"
    found = fencegate.operation_by_key(fencegate_resource, "message-17")
    assert found is not None and found.operation == first.operation
    assert fencegate.operation(first.operation) is not None
    assert fencegate.operation_by_key(fencegate_resource, "message-19") is None


def test_an_update_begins_again_when_something_changed(fencegate: Fencegate, fencegate_resource: str) -> None:
    with fencegate.lock(fencegate_resource) as lock:
        rounds: list[bytes | None] = []

        def change(old: bytes | None) -> bytes:
            rounds.append(old)
            if len(rounds) == 1:
                lock.put("count", "5")
            return b"%d" % (int(old or 0) + 1)

        assert lock.update("count", change) is not None
        assert rounds == [None, b"5"]
        assert lock.update("count", lambda old: KEEP) is None
        assert lock.update_json("count", lambda old: old + 1) == 7
        assert lock.update("count", lambda old: DELETE) is None
        assert lock.update_json("count", lambda old: 0 if old is None else old + 1) == 0
        lock.put("text", "no json")
        with pytest.raises(Misuse):
            lock.update_json("text", lambda old: old)
    assert fencegate.update_json(fencegate_resource, "count", lambda old: old + 1) == 1


def test_many_writers_on_one_guard_all_succeed(fencegate: Fencegate, fencegate_resource: str) -> None:
    with fencegate.lock(fencegate_resource) as lock:
        failures: list[BaseException] = []

        def write(worker: int) -> None:
            try:
                for number in range(20):
                    lock.put(f"{worker}/{number}", "x")
            except BaseException as error:
                failures.append(error)

        workers = [threading.Thread(target=write, args=(worker,)) for worker in range(6)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not failures
    assert len(fencegate.list(fencegate_resource, page_size=7).all()) == 120


def test_writes_of_an_ordered_guard_come_one_at_a_time(fencegate: Fencegate, fencegate_resource: str) -> None:
    with fencegate.lock(fencegate_resource, ordered=True) as lock:
        attempts: list[int] = []
        workers = [
            threading.Thread(target=lambda: attempts.append(lock.put("a", "x").receipt.attempts)) for _ in range(12)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert attempts == [1] * 12


def test_large_objects_go_up_and_down_in_flat_memory(
    fencegate: Fencegate, fencegate_resource: str, tmp_path: Path
) -> None:
    size = 160 << 20
    piece = bytes(range(256)) * 256

    def pieces() -> Iterator[bytes]:
        for _ in range(size // len(piece)):
            yield piece

    before = machine.getrusage(machine.RUSAGE_SELF).ru_maxrss
    with fencegate.lock(fencegate_resource) as lock:
        written = lock.put("large.bin", Body.stream(pieces, size))
        assert written.size == size
    read = 0
    with fencegate.open(fencegate_resource, "large.bin") as reader:
        assert reader.head.size == size
        for chunk in reader:
            read += len(chunk)
    assert read == size
    target = tmp_path / "large.bin"
    fencegate.download(fencegate_resource, "large.bin", target)
    assert target.stat().st_size == size
    grown_kib = machine.getrusage(machine.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 30 * 1024, f"{grown_kib} KiB"


def test_parts_of_objects_are_read(fencegate: Fencegate, fencegate_resource: str) -> None:
    with fencegate.lock(fencegate_resource) as lock:
        lock.put("digits", "0123456789")
    for wanted, expected in (((2, 4), b"234"), ((7, None), b"789"), ((0, 99), b"0123456789")):
        with fencegate.open(fencegate_resource, "digits", range=wanted) as reader:
            assert b"".join(reader) == expected and reader.head.size == 10
    with pytest.raises(Misuse):
        fencegate.open(fencegate_resource, "digits", range=(10, None))
    with pytest.raises(NotFound):
        fencegate.open(fencegate_resource, "missing")
    with pytest.raises(Misuse):
        fencegate.get(fencegate_resource, "digits", limit=9)


def test_a_download_takes_the_place_of_the_file_at_its_end(
    fencegate: Fencegate, fencegate_resource: str, tmp_path: Path
) -> None:
    target = tmp_path / "a.txt"
    target.write_text("before")
    with pytest.raises(NotFound):
        fencegate.download(fencegate_resource, "a.txt", target)
    assert target.read_text() == "before"
    with fencegate.lock(fencegate_resource) as lock:
        lock.put("a.txt", "after")
    assert fencegate.download(fencegate_resource, "a.txt", target).size == 5
    assert target.read_text() == "after" and list(tmp_path.iterdir()) == [target]


def test_the_history_tells_every_write(fencegate: Fencegate, fencegate_resource: str) -> None:
    with fencegate.lock(fencegate_resource) as lock:
        lock.put("a", "1")
        lock.put("b", "2")
        lock.delete_all()
    history = fencegate.versions(fencegate_resource, page_size=2).all()
    assert [(entry.version, entry.kind) for entry in history] == [(3, Kind.DELETE_ALL), (2, Kind.PUT), (1, Kind.PUT)]
    assert all(entry.committed_at.tzinfo is not None for entry in history)
    page = fencegate.versions(fencegate_resource, page_size=2).page()
    assert len(page.items) == 2 and page.next_cursor is not None


def test_operators_stop_writers_and_see_what_was_done(
    fencegate: Fencegate, fencegate_url: str, fencegate_resource: str
) -> None:
    admin, refused = fencegate.admin, threading.Event()

    def thaw() -> None:
        refused.wait(HANGS_S)
        admin.unfreeze(fencegate_resource, "books are closed")

    def hear(event: Event) -> None:
        if isinstance(event, Retry):
            refused.set()

    with Fencegate(fencegate_url, on_event=hear) as writer, writer.lock(fencegate_resource) as lock:
        frozen = admin.freeze(fencegate_resource, "books are being closed")
        assert frozen.frozen == "books are being closed"
        thawing = threading.Thread(target=thaw)
        thawing.start()
        assert lock.put("a", "1", ride_out=True).receipt.attempts > 1
        thawing.join()
        admin.protect(fencegate_resource, "to be kept")
        with pytest.raises(Misuse):
            lock.delete_all()
        admin.unprotect(fencegate_resource, "2036 has come")
        lock.delete_all()
    actions = [str(entry.action) for entry in admin.audit(resource=fencegate_resource)]
    assert actions == ["unprotect", "protect", "unfreeze", "freeze", "grant"]
    with pytest.raises(Misuse):
        admin.freeze(fencegate_resource, "")
    assert admin.intents().all() == [] and admin.doubts() == []


def test_late_writes_are_recorded(fencegate: Fencegate, fencegate_gateway: Gateway, fencegate_resource: str) -> None:
    lock = fencegate.acquire(fencegate_resource)
    fencegate_gateway.take_over(fencegate_resource)
    with pytest.raises(LockLost):
        lock.put("a", "late")
    recorded = fencegate.admin.rejections(resource=fencegate_resource)
    until(recorded.all)
    entries = recorded.all()
    assert entries[0].reason.startswith("fence-token-") and entries[0].key == "a"


def test_an_unknown_outcome_is_found_out(
    fencegate_gateway: Gateway, fencegate_url: str, fencegate_resource: str
) -> None:
    with Fencegate(fencegate_url) as client:
        lock = client.acquire(fencegate_resource, ttl="10m")
        fencegate_gateway.pause()
        try:
            with pytest.raises(OutcomeUnknown) as unknown:
                lock.put("a", "1", timeout="1s")
        finally:
            fencegate_gateway.resume()
        assert unknown.value.idempotency_key is not None and unknown.value.number == 1
        settled = unknown.value.resolve(HANGS_S)
        # What the gateway had not begun when the caller hung up may never begin.
        found = client.get(fencegate_resource, "a")
        assert (found is None) == isinstance(settled, NotApplied)
        assert unknown.value.resolve(HANGS_S) == settled
        fencegate_gateway.pause()
        try:
            with pytest.raises(OutcomeUnknown) as unknown:
                lock.put("b", "1", timeout="1s")
        finally:
            fencegate_gateway.resume()
        final = unknown.value.abandon(HANGS_S)
        found = client.get(fencegate_resource, "b")
        assert (found is None) == isinstance(final, NotApplied)
        with pytest.raises(LockLost):
            lock.put("c", "1")
