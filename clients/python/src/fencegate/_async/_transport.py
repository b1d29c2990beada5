"""One attempt of a call: to which gateway, for how long, and whose answer came back."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

import httpx2

from .. import errors
from .._body import PIECE
from .._core import clock
from .._core.replies import (
    AnswerBroken,
    Failure,
    Foreign,
    Nothing,
    Unsendable,
    is_elsewhere_better,
    problem_of,
    retry_after_ms,
)
from .._core.unreached import why
from .._core.urls import Base
from .._credential import Credential
from .._hooks import logger
from .._request import Request
from .._settings import user_agent
from .._shared import Shared
from . import _runtime as runtime
from ._answer import AsyncAnswer
from ._sending import BodyStream, NoHead, send

Reply: TypeAlias = AsyncAnswer | Failure

_LIMITS = httpx2.Limits(max_connections=1_024, max_keepalive_connections=64, keepalive_expiry=30.0)
_LIMITS_AT_END = httpx2.Limits(max_connections=1_024, max_keepalive_connections=0)
# Before the request itself: nothing of it has left the machine.
_UNSENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
)
_url = lru_cache(maxsize=1_024)(httpx2.URL)


class AsyncTransport:
    """Sends requests to the gateways of a client."""

    def __init__(
        self,
        shared: Shared,
        replaced: httpx2.AsyncBaseTransport | None = None,
        credential: Credential | None = None,
    ) -> None:
        self._shared = shared
        self._credential = credential or shared.settings.credential
        self._settings = shared.settings
        self._replaced = replaced
        self._transports: dict[str | None, httpx2.AsyncBaseTransport] = {}
        self._by_place: list[httpx2.AsyncBaseTransport | None] = [None] * len(self._settings.urls.all)
        self._was_reached = False
        self._closed: set[int] = set()
        agent = (b"User-Agent", user_agent())
        self._headers = [
            [(b"Host", base.host_header), agent, *self._settings.headers] for base in self._settings.urls.all
        ]

    async def close(self) -> None:
        """Closes all connections."""
        transports, self._transports = self._transports, {}
        self._by_place = [None] * len(self._by_place)
        for transport in transports.values():
            await transport.aclose()

    def forget(self) -> list[object]:
        """Lets go of all connections without a word to anybody, and gives them."""
        transports, self._transports = self._transports, {}
        self._by_place = [None] * len(self._by_place)
        return list(transports.values())

    async def attempt(self, request: Request, id: str) -> Reply:
        """One attempt. After a 401 the credential is asked for once more, unless the body can be read only once."""
        reply = await self._judged(request, id)
        is_replayable = request.body is None or request.body.is_replayable
        if isinstance(reply, AsyncAnswer) or self._credential is None or not is_replayable:
            return reply
        if getattr(reply, "status", None) == 401:
            return await self._judged(request, f"{id}.again")
        return reply

    async def attempt_any(self, request: Request, id: str, is_meant: Callable[[dict[str, str]], bool]) -> Reply:
        """One attempt whose answer counts whatever its status is, if its headers show that it is the one meant."""
        base, head = await self._exchange(request, id)
        if isinstance(head, AsyncAnswer):
            if head.headers.get("x-request-id") == id and is_meant(head.headers):
                return head
            reply = await self._judge(head, id)
            if isinstance(reply, AsyncAnswer):
                await reply.close()
                reply = _foreign(reply, is_ours=True)
        else:
            reply = head
        self._look_elsewhere(base, reply)
        return reply

    async def _judged(self, request: Request, id: str) -> Reply:
        base, head = await self._exchange(request, id)
        reply = await self._judge(head, id) if isinstance(head, AsyncAnswer) else head
        if not isinstance(reply, AsyncAnswer):
            self._look_elsewhere(base, reply)
        return reply

    async def _exchange(self, request: Request, id: str) -> tuple[Base, Reply]:
        """Sends a request to the gateway that is asked now, and gives the head of the answer."""
        base = self._settings.urls.current(clock.now_ms())
        try:
            built = await self._build(base, request, id)
            transport = self._by_place[base.place] or self._transport_of(base)
        except errors.FenceError as error:
            return base, Unsendable(error)
        head_ms = self._shared.head_ms() + request.wait_ms
        if request.within_ms is not None:
            head_ms = min(head_ms, request.within_ms)
        try:
            response = await send(transport, built, head_ms)
        except _UNSENT as error:
            timed_out = isinstance(error, httpx2.TimeoutException)
            lasts, detail = why(base.text, error)
            failure = Nothing(False, timed_out, detail)
            return base, self._lasting(base, failure, request) if lasts else failure
        except NoHead as error:
            return base, Nothing(True, True, str(error))
        except httpx2.TimeoutException:
            return base, Nothing(True, True, "the request stood still")
        except httpx2.TransportError as error:
            lasts, detail = why(base.text, error)
            if lasts:
                return base, self._lasting(base, Nothing(True, False, detail), request)
            return base, Nothing(True, False, f"no answer from {base.text}: {error}")
        except errors.FenceError as error:
            # The body cannot be read on; its beginning may have been sent.
            return base, Nothing(True, False, error.detail)
        except Exception as error:
            return base, Nothing(True, False, f"the request broke off: {error!r}")
        self._was_reached = True
        # From here on it is the body that may stand still.
        built.extensions["timeout"]["read"] = self._settings.idle_ms / 1000
        return base, AsyncAnswer(response, built.extensions["timeout"])

    def _lasting(self, base: Base, failure: Nothing, request: Request) -> Failure:
        """Ends a call for a cause that no wait can mend, if nothing has ever answered and it is so of all gateways.

        Not one whose request changes something and may have been sent: that it took no effect is not known.
        """
        self._closed.add(base.place)
        if failure.was_sent and request.method not in ("GET", "HEAD"):
            return failure
        if self._was_reached or len(self._closed) < len(self._settings.urls.all):
            return failure
        return Unsendable(errors.Unavailable(failure.detail))

    async def _build(self, base: Base, request: Request, id: str) -> httpx2.Request:
        headers = [*self._headers[base.place], *request.headers, (b"X-Request-Id", id.encode())]
        settings = self._settings
        traced = self._traced()
        if traced is not None and traced.isascii() and traced.isprintable():
            headers.append((b"traceparent", traced.encode()))
        if self._credential is not None:
            shown = self._credential.header()
            if shown is None and self._credential.ask is not None:
                shown = await runtime.credential(self._credential.ask)
            if shown is not None:
                headers.append((b"Authorization", shown))
        stream = self._stream(request, headers)
        idle_s = settings.idle_ms / 1000
        timeout: dict[str, Any] = {
            "connect": settings.connect_ms / 1000,
            "pool": settings.head_ms / 1000,
            "write": idle_s,
            "read": None,
        }
        url = _url(base.text + request.path)
        return httpx2.Request(request.method, url, headers=headers, stream=stream, extensions={"timeout": timeout})

    def _traced(self) -> str | None:
        if self._settings.traceparent is None:
            return None
        try:
            return self._settings.traceparent()
        except Exception:
            # What is sent matters more than its trace: it may be a release.
            logger.exception("traceparent failed")
            return None

    def _stream(self, request: Request, headers: list[tuple[bytes, bytes]]) -> httpx2.ByteStream | BodyStream:
        body = request.body
        if body is None:
            if request.method in ("POST", "PUT", "PATCH"):
                headers.append((b"Content-Length", b"0"))
            return httpx2.ByteStream(b"")
        if body.size is None:
            headers.append((b"Transfer-Encoding", b"chunked"))
        else:
            headers.append((b"Content-Length", b"%d" % body.size))
        whole = body.whole
        return BodyStream(body) if whole is None or len(whole) > PIECE else httpx2.ByteStream(whole)

    async def _judge(self, answer: AsyncAnswer, id: str) -> Reply:
        """Whose answer it is: a gateway's has our id of the request (CC24a)."""
        is_ours = answer.headers.get("x-request-id") == id
        status = answer.status
        if is_ours and (200 <= status < 300 or status == 304):
            return answer
        foreign = _foreign(answer, is_ours)
        if not is_ours or not 400 <= status < 600:
            await answer.close()
            return foreign
        try:
            body = await answer.bytes()
        except AnswerBroken as broken:
            return broken.failure
        return problem_of(status, body, foreign.retry_after_ms) or foreign

    def _look_elsewhere(self, base: Base, reply: Failure) -> None:
        if is_elsewhere_better(reply):
            self._settings.urls.avoid(base, clock.now_ms())

    def _transport_of(self, base: Base) -> httpx2.AsyncBaseTransport:
        if self._replaced is not None:
            return self._replaced
        proxy = None if base.is_loopback else _proxy_of(base)
        transport = self._transports.get(proxy)
        if transport is None:
            # Nobody closes what is opened after the end: it keeps no connection.
            limits = _LIMITS_AT_END if self._shared.is_closed else _LIMITS
            tls = self._settings.tls()
            made = httpx2.AsyncHTTPTransport(verify=tls, trust_env=False, proxy=proxy, limits=limits)
            # Another thread may have made one meanwhile.
            transport = self._transports.setdefault(proxy, made)
        self._by_place[base.place] = transport
        return transport


def _proxy_of(base: Base) -> str | None:
    """The proxy that the environment names for a gateway; none for this machine (CC4)."""
    if urllib.request.proxy_bypass(base.host):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get("https" if base.is_tls else "http") or proxies.get("all")


def _foreign(answer: AsyncAnswer, is_ours: bool) -> Foreign:
    what = answer.headers.get("content-type", "no content type")
    who = "the gateway" if is_ours else "something between here and the gateway"
    why = " without saying why" if is_ours else ""
    detail = f"{who} answered {answer.status}{why} ({what})"
    return Foreign(answer.status, detail, retry_after_ms(answer.headers.get("retry-after")))
