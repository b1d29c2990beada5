"""No option is dropped: a name that is none and a value of the wrong kind are refused, before anything is sent."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from fencegate import AsyncFencegate, Fencegate, Handoff, Misuse

NAN = float("nan")
HANDOFF = Handoff("01890a5d-ac96-774b-bcce-b302099a8057", "1", ("r",), "a")


class Counted(httpx2.BaseTransport):
    """Passes requests on to the gateway, and counts them."""

    def __init__(self) -> None:
        self.requests = 0
        self._real = httpx2.HTTPTransport()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.requests += 1
        return self._real.handle_request(request)

    def close(self) -> None:
        self._real.close()


# Every call that passes options on by name.
BY_NAME: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "acquire": lambda fg, options: fg.acquire("x", **options),
    "elect": lambda fg, options: fg.elect("x", lambda lock: None, **options),
    "job": lambda fg, options: fg.job("x", **options),
    "lock": lambda fg, options: fg.lock("x", **options),
    "locked": lambda fg, options: fg.locked("x", **options),
    "try_lock": lambda fg, options: fg.try_lock("x", **options),
    "update": lambda fg, options: fg.update("x", "k", lambda old: b"", **options),
    "update_json": lambda fg, options: fg.update_json("x", "k", lambda old: 1, **options),
}


def _with_options(kind: type) -> set[str]:
    """The calls of a client that take options which they do not name themselves."""
    public = [(name, call) for name, call in inspect.getmembers(kind, callable) if not name.startswith("_")]
    kinds = {name: [one.kind for one in inspect.signature(call).parameters.values()] for name, call in public}
    return {name for name, found in kinds.items() if inspect.Parameter.VAR_KEYWORD in found}


@pytest.mark.parametrize("kind", [Fencegate, AsyncFencegate])
def test_every_call_with_options_is_tried_here(kind: type) -> None:
    assert _with_options(kind) == BY_NAME.keys() | {"from_env"}


@pytest.mark.parametrize("call", sorted(BY_NAME))
def test_an_option_that_is_none_is_refused(call: str, fencegate_url: str) -> None:
    transport = Counted()
    with Fencegate(fencegate_url, transport=transport) as fg:
        with pytest.raises(TypeError, match=r"unexpected keyword argument 'tll'\. Did you mean 'ttl'\?"):
            BY_NAME[call](fg, {"tll": "3s"})
        with pytest.raises(TypeError, match=r"'zzzzz'; there are .*ttl"):
            BY_NAME[call](fg, {"zzzzz": 1})
        assert transport.requests == 0


async def _awaited(given: Any) -> None:
    if inspect.isawaitable(given):
        await given


@pytest.mark.parametrize("call", sorted(BY_NAME))
def test_an_option_that_is_none_is_refused_on_a_loop(call: str, fencegate_url: str) -> None:
    import asyncio

    async def main() -> None:
        async with AsyncFencegate(fencegate_url) as fg:
            with pytest.raises(TypeError, match="Did you mean 'ttl'"):
                await _awaited(BY_NAME[call](fg, {"tll": "3s"}))

    asyncio.run(main())


def test_a_client_takes_no_other_option(monkeypatch: pytest.MonkeyPatch) -> None:
    options: Any = {"onwer": "a"}
    monkeypatch.setenv("FENCE_URL", "http://localhost:1")
    for kind in (Fencegate, AsyncFencegate):
        with pytest.raises(TypeError, match=r"'onwer'\. Did you mean 'owner'"):
            kind("http://localhost:1", **options)
        with pytest.raises(TypeError, match=r"'onwer'\. Did you mean 'owner'"):
            kind.from_env(**options)


@pytest.mark.parametrize("call", ["elect", "try_lock"])
def test_a_wait_is_not_dropped_where_the_call_has_its_own(call: str) -> None:
    with Fencegate("http://localhost:1") as fg, pytest.raises(TypeError, match="unexpected keyword argument 'wait'"):
        BY_NAME[call](fg, {"wait": "5s"})


WRONG_VALUES: list[tuple[str, dict[str, Any]]] = [
    *[("acquire", {"ttl": ttl}) for ttl in (NAN, -1, True, "30", "30 s", "0s", "25h", [30], float("inf"))],
    *[("acquire", {"wait": wait}) for wait in (NAN, -1, True, "soon")],
    *[("acquire", {"max_hold": most}) for most in (NAN, True, "31d")],
    *[("acquire", {"stall_after": after}) for after in (NAN, False, "0s")],
    *[("acquire", {name: "no"}) for name in ("watch", "ordered", "numbers", "only_if_exists")],
    *[("acquire", {name: 1}) for name in ("watch", "ordered", "numbers", "only_if_exists")],
    ("acquire", {"on_uncertain": "Hold"}),
    ("acquire", {"on_lost": "ignored"}),
    ("elect", {"stop_grace": NAN}),
    ("elect", {"rejoin": "no"}),
    ("lock", {"interrupt_main": "no"}),
    *[("job", {"every": every}) for every in (NAN, True, -60)],
    *[("job", {name: value}) for name in ("retries", "keep", "concurrency") for value in (True, -1, "3", 1.5)],
    *[("job", {"slot": "20261122T020000Z", "shards": shards}) for shards in (True, "4", 0)],
    ("job", {"resume": "no"}),
    ("job", {"once": "twice"}),
]


@pytest.mark.parametrize(("call", "options"), WRONG_VALUES)
def test_a_value_of_the_wrong_kind_is_refused(call: str, options: dict[str, Any], fencegate_url: str) -> None:
    transport = Counted()
    with Fencegate(fencegate_url, transport=transport) as fg:
        with pytest.raises(Misuse, match=list(options)[-1]):
            BY_NAME[call](fg, options)
        assert transport.requests == 0


CLIENT_VALUES: list[dict[str, Any]] = [
    {"retries": 3},
    {"retries": "false"},
    {"ttl": NAN},
    {"ttl": True},
    {"call_timeout": -1},
    {"write_timeout": NAN},
    {"auth": 5},
    {"on_event": "print"},
    {"traceparent": "00-1"},
]


@pytest.mark.parametrize("options", CLIENT_VALUES)
def test_a_client_checks_what_its_options_are(options: dict[str, Any]) -> None:
    with pytest.raises(Misuse, match=next(iter(options))):
        Fencegate("http://localhost:1", **options)


OF_A_LOCK: list[tuple[str, Callable[[Any], Any]]] = [
    ("if_absent", lambda lock: lock.put("k", b"", if_absent="no")),
    ("if_absent", lambda lock: lock.put("k", b"", if_absent=0)),
    ("if_absent", lambda lock: lock.commit().put("r", "k", b"", if_absent="no")),
    ("ride_out", lambda lock: lock.put("k", b"", ride_out="no")),
    ("ride_out", lambda lock: lock.commit().put(lock.resources[0], "k", b"").send(ride_out=1)),
    ("retries", lambda lock: lock.delete("k", retries=3)),
    ("digest", lambda lock: lock.put("k", b"", digest="no")),
    ("timeout", lambda lock: lock.put("k", b"", timeout=NAN)),
    ("timeout", lambda lock: lock.put("k", b"", timeout=True)),
    ("version", lambda lock: lock.delete_all(expect_version=True)),
    ("ttl", lambda lock: lock.renew(ttl=NAN)),
]
OF_A_CLIENT: list[tuple[str, Callable[[Any], Any]]] = [
    ("limit", lambda fg: fg.get("r", "k", limit=NAN)),
    ("limit", lambda fg: fg.get("r", "k", limit="16")),
    ("limit", lambda fg: fg.get("r", "k", limit=True)),
    ("range", lambda fg: fg.open("r", "k", range=(True, None))),
    ("range", lambda fg: fg.open("r", "k", range=(5, 4))),
    ("page_size", lambda fg: fg.list("r", page_size=True)),
    ("page_size", lambda fg: fg.locks(page_size=1_001)),
    ("shards", lambda fg: list(fg.shards("r", True))),
    ("force", lambda fg: fg.fence("r", force="no")),
    (
        "numbers",
        lambda fg: fg.adopt(HANDOFF, numbers=1),
    ),
    ("work", lambda fg: fg.elect("r", {"ttl": "3s"})),
    ("change", lambda fg: fg.update("r", "k", b"new")),
]


@pytest.mark.parametrize("number", range(len(OF_A_LOCK)))
def test_writes_check_what_their_options_are(number: int, fencegate: Fencegate, fencegate_resource: str) -> None:
    word, call = OF_A_LOCK[number]
    with fencegate.lock(fencegate_resource, watch=False) as lock:
        with pytest.raises(Misuse, match=word):
            call(lock)
        assert fencegate.get(fencegate_resource, "k") is None


@pytest.mark.parametrize("number", range(len(OF_A_CLIENT)))
def test_calls_check_what_their_options_are(number: int, fencegate_url: str) -> None:
    word, call = OF_A_CLIENT[number]
    transport = Counted()
    with Fencegate(fencegate_url, transport=transport) as fg:
        with pytest.raises(Misuse, match=word):
            call(fg)
        assert transport.requests == 0
