"""Options that callers give by name: one that is none, or whose value is of another kind, is refused before it does harm."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import lru_cache
from typing import get_type_hints

from .errors import Misuse


def checked_options(call: str, given: Mapping[str, object], known: type) -> None:
    """Refuses what a `TypedDict` does not name as `TypeError`, as Python does where parameters have names, and a switch
    that is neither `True` nor `False` as `Misuse`. Other values are checked by whoever takes them."""
    names, switches = _named(known)
    for name, value in given.items():
        if name not in names:
            raise TypeError(f"{call} got an unexpected keyword argument {name!r}{_hint(name, names)}")
        if name in switches:
            checked_switch(name, value)


def checked_switch(name: str, value: object) -> bool:
    """`True` or `False`, and nothing that merely counts as one of them."""
    if not isinstance(value, bool):
        raise Misuse(f"{name} is True or False, not {value!r}")
    return value


def checked_number(name: str, value: object, least: int, most: int | None = None) -> int:
    """A whole number in these bounds. `True` is none."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least or (most is not None and value > most):
        bounds = f"from {least}" if most is None else f"from {least} to {most}"
        raise Misuse(f"{name} is a whole number {bounds}, not {value!r}")
    return value


def checked_function(name: str, value: object) -> None:
    """Something that can be called."""
    if not callable(value):
        raise Misuse(f"{name} is a function, not {value!r}")


@lru_cache(maxsize=16)
def _named(known: type) -> tuple[list[str], frozenset[str]]:
    """The names of a `TypedDict`, and those of its switches."""
    hints = get_type_hints(known)
    return list(hints), frozenset(name for name, kind in hints.items() if kind is bool)


def _hint(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name.lower(), names, 1)
    return f". Did you mean {near[0]!r}?" if near else f"; there are {', '.join(names)}"
