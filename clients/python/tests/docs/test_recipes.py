"""Every recipe works, with the framework that it is for."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest

from fencegate import (
    AsyncFencegate,
    Fencegate,
    LockLost,
    LossReason,
    Misuse,
    ResourceFrozen,
    Unavailable,
)

RECIPES = Path(__file__).resolve().parents[2] / "docs" / "recipes"


def _recipe(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"recipe_{name}", RECIPES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, fencegate_url: str) -> None:
    monkeypatch.setenv("FENCE_URL", fencegate_url)


def test_every_recipe_is_tested() -> None:
    tested = {"celery_tasks", "apscheduler_jobs", "fastapi_app", "django_command", "sqlalchemy_guard"}
    assert {path.stem for path in RECIPES.glob("*.py")} == tested
    listed = (RECIPES / "README.md").read_text()
    assert all(f"({name}.py)" in listed for name in tested)


def test_celery(fencegate: Fencegate) -> None:
    recipe = _recipe("celery_tasks")
    recipe.app.conf.update(task_always_eager=True, task_eager_propagates=True)
    assert recipe.close_month.delay("2026-11").get() == "2026-11 is closed"
    (task,) = fencegate.resources(prefix=f"task:{recipe.close_month.name}:").all()
    found = fencegate.get(task.resource, "state.txt")
    assert found is not None and found.text == "closing 2026-11"
    from celery.exceptions import Retry

    with fencegate.lock(task.resource), pytest.raises(Retry):
        recipe.close_month.apply(args=("2026-11",), throw=True, retries=0)
    recipe.gateway().close()


def test_apscheduler(fencegate: Fencegate, fencegate_url: str) -> None:
    jobs = _recipe("apscheduler_jobs").scheduler(fencegate)
    job = jobs.get_job("nightly") or next(job for job, *_ in jobs._pending_jobs)
    for _ in range(2):
        job.func()
    assert [str(entry.kind) for entry in fencegate.versions("job:nightly")] == ["put", "put"]
    with Fencegate(fencegate_url) as other, other.lock("job:nightly"):
        job.func()
    assert len(fencegate.versions("job:nightly").all()) == 2


def test_fastapi(fencegate: Fencegate) -> None:
    recipe = _recipe("fastapi_app")

    async def run() -> None:
        transport = httpx2.ASGITransport(recipe.app)
        async with (
            recipe.app.router.lifespan_context(recipe.app),
            httpx2.AsyncClient(transport=transport, base_url="http://app") as browser,
        ):
            path = "/accounts/7/deposits?amount=10"
            answers = await asyncio.gather(*(browser.post(path) for _ in range(3)))
            assert sorted(answer.json()["balance"] for answer in answers) == [10, 20, 30]
            fg: AsyncFencegate = recipe.app.state.fg
            await fg.admin.freeze("account:7", "closed for today")
            answer = await browser.post(path, timeout=60)
            assert answer.status_code == 409 and answer.json()["error"] == "Busy"

    asyncio.run(run())


def test_django(fencegate: Fencegate) -> None:
    from django.conf import settings
    from django.core.management import CommandError, call_command

    if not settings.configured:
        settings.configure()
    recipe = _recipe("django_command")
    call_command(recipe.Command())
    found = fencegate.get("books", "state.txt")
    assert found is not None and found.text == "closed"
    with fencegate.lock("books"), pytest.raises(CommandError) as failed:
        call_command(recipe.Command())
    assert failed.value.returncode == 75


def test_sqlalchemy_says_what_the_guard_refused(fencegate: Fencegate, fencegate_resource: str) -> None:
    from sqlalchemy.dialects import postgresql
    from sqlalchemy.exc import DBAPIError

    recipe = _recipe("sqlalchemy_guard")
    sql = str(recipe.GUARD.compile(dialect=postgresql.dialect()))
    assert sql.startswith("SELECT fencegate.guard_all(CAST(") and "uuid[]" in sql

    class Refused(Exception):
        def __init__(self, sqlstate: str) -> None:
            super().__init__(f"refused with {sqlstate}")
            self.sqlstate = sqlstate

    def told(sqlstate: str) -> Any:
        return recipe.fence_error(DBAPIError("SELECT", {}, Refused(sqlstate)))

    assert isinstance(told("FG403"), LockLost) and told("FG403").reason is LossReason.SUPERSEDED
    assert isinstance(told("FG406"), ResourceFrozen) and isinstance(told("FG411"), Misuse)
    assert isinstance(told("40001"), Unavailable) and told("23505") is None

    class Session:
        """Nothing is begun under a lock that is over."""

    lock = fencegate.acquire(fencegate_resource)
    lock.release()
    with pytest.raises(LockLost), recipe.guarded(Session(), lock):
        pass
