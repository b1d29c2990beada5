"""What the installed package does at all: run by scripts/try_package.sh in an environment with nothing else."""

from __future__ import annotations

import asyncio
from importlib import metadata, resources

import fencegate
from fencegate import AsyncFencegate, Fencegate, LockLost
from fencegate.testing import Gateway


def threads(gateway: Gateway) -> None:
    """A lock, a write, and a late writer."""
    with Fencegate(gateway.url) as fg:
        with fg.lock("invoices:2026", ttl="5s") as lock:
            lock.put("total.txt", "100")
        assert fg.get("invoices:2026", "total.txt").text == "100"
        late = fg.acquire("invoices:2026")
        gateway.take_over("invoices:2026")
        try:
            late.put("total.txt", "999")
        except LockLost as lost:
            assert lost.code is not None
        else:
            raise AssertionError("a late write was taken")


async def tasks(gateway: Gateway) -> None:
    """The same for asyncio."""
    async with AsyncFencegate(gateway.url) as fg:
        async with fg.lock("reports", wait="10s") as lock:
            written = await lock.put("today.json", json={"done": True})
        assert written.created
        found = await fg.get("reports", "today.json")
        assert found is not None and found.json() == {"done": True}


def main() -> None:
    """All of it."""
    assert "site-packages" in fencegate.__file__, f"it is not the installed one: {fencegate.__file__}"
    assert (resources.files("fencegate") / "py.typed").is_file()
    assert metadata.version("fencegate") == fencegate.__version__
    with Gateway() as gateway:
        threads(gateway)
        asyncio.run(tasks(gateway))
    print(f"fencegate {fencegate.__version__} works as it is installed")


main()
