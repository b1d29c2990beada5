"""What all tests use: a gateway in memory, and clients of it."""

from __future__ import annotations

pytest_plugins = ["fencegate.testing.plugin"]
