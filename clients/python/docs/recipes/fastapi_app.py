"""FastAPI: a request under a lock, and errors as answers.

When the lock is lost, the request's task is cancelled where it waits, and the caller gets 409.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from fencegate import AsyncFencegate, Busy, FenceError, LockLost, OutcomeUnknown, Unavailable

_STATUS: list[tuple[type[FenceError], int]] = [(Busy, 409), (LockLost, 409), (OutcomeUnknown, 500), (Unavailable, 503)]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One client for the application."""
    async with AsyncFencegate.from_env() as fg:
        app.state.fg = fg
        yield


app = FastAPI(lifespan=lifespan)


@app.exception_handler(FenceError)
async def told(request: Request, error: FenceError) -> JSONResponse:
    """An error of the gateway, as an answer."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    headers = {"Retry-After": "1"} if status in (409, 503) else None
    return JSONResponse({"error": error.error_class, "detail": error.detail}, status, headers)


@app.post("/accounts/{account}/deposits")
async def deposit(account: str, amount: int, request: Request) -> dict[str, Any]:
    """Adds to an account, one request at a time."""
    fg: AsyncFencegate = request.app.state.fg
    async with fg.lock(f"account:{account}", wait="5s") as lock:
        balance = await lock.update_json("balance.json", lambda old: (old or 0) + amount)
    return {"account": account, "balance": balance}
