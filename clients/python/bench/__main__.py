"""What the library costs. Run on a quiet machine, with `FENCE_TEST_GATEWAY` naming the gateway:

    python bench             all of it; ends with 1 if a put costs more than 1.3 times that of plain httpx2
    python bench --rounds 3

Processor time is that of this process (getrusage); the gateway is another.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx2

from fencegate import AsyncFencegate, Fencegate
from fencegate.testing import Gateway

PUTS = 1_500
BODY = b"x" * 1024
MOST = 1.3
"""A put through a guard may cost so many times that of plain httpx2."""


def cpu_s() -> float:
    """The processor time of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rss_kib() -> int:
    """The memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


def per_put(put: Callable[[], object]) -> float:
    """Processor time for each put, in microseconds."""
    for _ in range(50):
        put()
    gc.collect()
    began = cpu_s()
    for _ in range(PUTS):
        put()
    return (cpu_s() - began) / PUTS * 1e6


async def per_put_async(put: Callable[[], Awaitable[object]]) -> float:
    """The same for asyncio."""
    for _ in range(50):
        await put()
    gc.collect()
    began = cpu_s()
    for _ in range(PUTS):
        await put()
    return (cpu_s() - began) / PUTS * 1e6


def puts_in_threads(url: str, rounds: int) -> tuple[list[float], list[float]]:
    """Puts through a guard, and plain ones with the same token, in turn."""
    ours: list[float] = []
    plain: list[float] = []
    with Fencegate(url) as client, client.lock("bench:sync") as lock, httpx2.Client() as http:
        headers, target = lock.headers(), f"{url}/resources/bench%3Async/objects/k"
        for _ in range(rounds):
            ours.append(per_put(lambda: lock.put("k", BODY)))
            plain.append(per_put(lambda: http.put(target, content=BODY, headers=headers).raise_for_status()))
    return ours, plain


async def puts_on_a_loop(url: str, rounds: int) -> tuple[list[float], list[float]]:
    """The same for asyncio."""
    ours: list[float] = []
    plain: list[float] = []
    async with (
        AsyncFencegate(url) as client,
        client.lock("bench:async") as lock,
        httpx2.AsyncClient() as http,
    ):
        headers, target = lock.headers(), f"{url}/resources/bench%3Aasync/objects/k"

        async def put_plainly() -> None:
            (await http.put(target, content=BODY, headers=headers)).raise_for_status()

        for _ in range(rounds):
            ours.append(await per_put_async(lambda: lock.put("k", BODY)))
            plain.append(await per_put_async(put_plainly))
    return ours, plain


def report(name: str, ours: list[float], plain: list[float]) -> bool:
    """Prints a row, and says whether it is good."""
    factor = statistics.median(ours) / statistics.median(plain)
    print(f"{name:28} {statistics.median(ours):7.0f} us  plain {statistics.median(plain):7.0f} us  {factor:.2f} times")
    return factor <= MOST


def cold_start(url: str) -> None:
    """From the start of Python to the first lock, and what of that is Python alone."""
    program = (
        "import sys; from fencegate import Fencegate\n"
        "with Fencegate(sys.argv[1]) as client, client.lock('bench:cold'): pass"
    )

    def timed(*arguments: str) -> float:
        began = time.monotonic()
        subprocess.run([sys.executable, *arguments], check=True)
        return (time.monotonic() - began) * 1000

    locked = statistics.median(timed("-c", program, url) for _ in range(5))
    imported = statistics.median(timed("-c", "import httpx2, httpcore2, anyio, ssl") for _ in range(5))
    bare = statistics.median(timed("-c", "pass") for _ in range(5))
    print(f"{'import and first lock':28} {locked:7.0f} ms  httpx2 alone {imported:.0f} ms  Python alone {bare:.0f} ms")


async def guards(url: str) -> None:
    """Memory with 1,000 guards, and what it costs to keep 10,000 of them."""
    async with AsyncFencegate(url, ttl="20s") as client:
        await client.acquire("bench:warm")

        async def take(first: int, last: int) -> list[object]:
            held: list[object] = []
            for at in range(first, last, 50):
                named = [f"bench:guard:{number}" for number in range(at, at + 50)]
                held += await asyncio.gather(*(client.acquire(name, watch=False) for name in named))
            return held

        gc.collect()
        before = rss_kib()
        some = await take(0, 1_000)
        gc.collect()
        print(f"{'memory of 1,000 guards':28} {rss_kib() - before:7.0f} KiB")
        more = await take(1_000, 10_000)
        renewed: list[object] = []
        client._shared.settings.hooks._hook = renewed.append
        began, began_s = cpu_s(), time.monotonic()
        await asyncio.sleep(14)
        spent, passed = cpu_s() - began, time.monotonic() - began_s
        client._shared.settings.hooks._hook = None
        kept = sum(guard.status == "held" for guard in [*some, *more])  # type: ignore[attr-defined]
        share = spent / passed * 100
        label, done = "10,000 guards of 20 s", f"{len(renewed)} renewals in {passed:.0f} s"
        print(f"{label:28} {kept:7d} held  {done}  {share:.1f} % of a core")


def main() -> int:
    """Measures, and judges the puts."""
    parser = argparse.ArgumentParser(prog="bench")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with Gateway() as gateway:
        good = report("put, in threads", *puts_in_threads(gateway.url, rounds))
        good &= report("put, on a loop", *asyncio.run(puts_on_a_loop(gateway.url, rounds)))
        cold_start(gateway.url)
        asyncio.run(guards(gateway.url))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
