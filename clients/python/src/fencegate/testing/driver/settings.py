"""The settings of a driver's client, from the field `options` of its command."""

from __future__ import annotations

from typing import Any

from .told import DriverError

_TIMES = {"timeout": "answer_timeout", "deadline": "call_timeout", "write_deadline": "write_timeout"}


def settings_of(options: dict[str, Any] | None) -> dict[str, Any]:
    """The settings, by the names that the library has for them."""
    given = dict(options or {})
    settings: dict[str, Any] = {setting: given.pop(name) for name, setting in _TIMES.items() if name in given}
    settings["headers"] = given.pop("headers", None)
    tokens: list[str] = given.pop("auth", [])
    if tokens:
        settings["auth"] = lambda: tokens.pop(0) if len(tokens) > 1 else tokens[0]
    if given:
        raise DriverError(f"client has no options {list(given)}")
    return settings
