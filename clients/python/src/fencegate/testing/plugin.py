"""Fixtures for pytest. A project names them in its `conftest.py`:

pytest_plugins = ["fencegate.testing.plugin"]
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from .. import Fencegate
from .._core.ids import uuid7
from .gateway import Gateway


@pytest.fixture(scope="session")
def fencegate_gateway() -> Iterator[Gateway]:
    """A gateway in memory, for all tests of the session."""
    with Gateway() as gateway:
        yield gateway


@pytest.fixture
def fencegate_url(fencegate_gateway: Gateway) -> str:
    """Where it listens, for clients of the test's own."""
    return fencegate_gateway.url


@pytest.fixture
def fencegate(fencegate_gateway: Gateway) -> Iterator[Fencegate]:
    """A client for one test. What it holds at the end is given back."""
    with Fencegate(fencegate_gateway.url) as client:
        yield client


@pytest.fixture
def fencegate_resource(request: pytest.FixtureRequest) -> str:
    """The name of a resource that no other test uses."""
    test = re.sub(r"[^A-Za-z0-9._~-]", "_", request.node.name)
    return f"{test[:200]}:{uuid7()}"
