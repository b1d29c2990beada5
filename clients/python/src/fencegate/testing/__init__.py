"""For tests: a real gateway in memory (`Gateway`), guards that are lost at will (`FakeLock`, `AsyncFakeLock`), fixtures
for pytest (`fencegate.testing.plugin`), and the driver of the conformance scenarios (`fencegate.testing.driver`)."""

from __future__ import annotations

from .fake import AsyncFakeLock, FakeLock
from .gateway import Gateway

__all__ = ["AsyncFakeLock", "FakeLock", "Gateway"]
