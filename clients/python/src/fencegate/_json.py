"""Looks at values that came as JSON, of which nothing is known."""

from __future__ import annotations

from typing import Any, cast


def members(value: Any) -> dict[str, Any]:
    """The members of a JSON object; none if it is something else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def items(value: Any) -> list[Any] | None:
    """The items of a JSON array; None if it is something else."""
    return cast("list[Any]", value) if isinstance(value, list) else None
