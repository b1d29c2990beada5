"""What an acquire asks for, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypedDict

from . import errors
from ._core import names
from ._core.acquiring import Patience
from ._core.durations import Duration, max_hold_ms, text, ttl_ms, whole_ms
from ._core.lease import Terms
from ._shared import Shared

OnLost: TypeAlias = Literal["raise", "ignore"] | Callable[[errors.LockLost], object]


class KeepOptions(TypedDict, total=False):
    """How a lock is kept.

    - `ttl`: how long it lasts without renewal, `1s` to `24h`, or `infinite`; by default the client's.
    - `owner`: what the holder calls itself; by default as the client does.
    - `max_hold`: how long it may be held in all, however often it is renewed, `1s` to `30d`.
    - `metadata`: a few words on the lock, shown to its holder.
    - `writers`: who else may write under its token, with credentials of their own: principals, and roles as
      `role:NAME`; at most 16. Writes of this guard have no numbers then.
    - `only_if_exists`: refuses resources that were never locked before.
    - `on_uncertain`: what the guard does when its deadline has passed without an answer. `stop` (the default): it is
      lost. `hold`: it holds on until the gateway says that it is lost, for work all of whose effects go through the
      gateway.
    - `stall_after`: without a sign of life for so long (a call through the guard, or `beat`), renewals stop and the
      guard is lost.
    - `watch`: whether the lock's events are followed, which tell of a loss before the next renewal does.
    - `ordered`: one write at a time, in the order of the calls.
    - `numbers`: whether writes have numbers; `False` for a token that several processes share.
    - `on_lost`: what a scope does whose lock was lost although its body ended well. `raise` (the default): it raises
      `LockLost`, and a task is cancelled at once. `ignore`: nothing. A function: it is called at once, from the loop
      or from the client's thread, and the scope raises at its end.
    """

    ttl: Duration | Literal["infinite"] | None
    owner: str | None
    max_hold: Duration | None
    metadata: Mapping[str, str] | None
    writers: Iterable[str]
    only_if_exists: bool
    on_uncertain: Literal["stop", "hold"]
    stall_after: Duration | None
    watch: bool
    ordered: bool
    numbers: bool
    on_lost: OnLost


class LockOptions(KeepOptions, total=False):
    """How a lock is taken and kept: the options of `KeepOptions`, and:

    - `wait`: how long to wait if somebody else holds it, or `forever`; by default not at all.
    """

    wait: Duration | Literal["forever"] | None


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for, checked."""

    resources: tuple[str, ...]
    patience: Patience
    ttl_ms: int | None
    document: dict[str, Any]
    """The request, but for the id and the wait."""
    owner: str
    terms: Terms
    is_watched: bool
    is_ordered: bool
    is_numbered: bool


def wish_of(shared: Shared, resources: str | Iterable[str], options: LockOptions) -> Wish:
    """Checks what a caller wants."""
    chosen = names.checked_resources(resources)
    owner = options.get("owner")
    owner = shared.owner if owner is None else names.checked_owner(owner)
    ttl = options.get("ttl")
    lasts_ms = shared.settings.ttl_ms if ttl is None else ttl_ms(ttl)
    max_hold, metadata = options.get("max_hold"), options.get("metadata")
    writers = names.checked_writers(options.get("writers", ()))
    stall_after = options.get("stall_after")
    stall_after_ms = None if stall_after is None else whole_ms(stall_after, "stall_after")
    if stall_after_ms == 0:
        raise errors.Misuse("stall_after is more than nothing")
    on_uncertain = options.get("on_uncertain", "stop")
    if on_uncertain not in ("stop", "hold"):
        raise errors.Misuse("on_uncertain is stop or hold")
    document: dict[str, Any] = {
        "resource": chosen[0] if len(chosen) == 1 else None,
        "resources": None if len(chosen) == 1 else list(chosen),
        "ttl": text(lasts_ms),
        "max_hold": None if max_hold is None else text(max_hold_ms(max_hold)),
        "metadata": names.checked_metadata(dict(metadata)) if metadata else None,
        "only_if_exists": True if options.get("only_if_exists") else None,
        "owner": owner,
        "writers": list(writers) or None,
    }
    return Wish(
        resources=chosen,
        patience=_patience(options.get("wait")),
        ttl_ms=lasts_ms,
        document={name: value for name, value in document.items() if value is not None},
        owner=owner,
        terms=Terms(holds_on=on_uncertain == "hold", stall_after_ms=stall_after_ms),
        is_watched=options.get("watch", True),
        is_ordered=options.get("ordered", False),
        # What others write under the token has no numbers, so that ours would prove nothing (CC24a).
        is_numbered=options.get("numbers", True) and not writers,
    )


def checked_on_lost(on_lost: object) -> None:
    """Refuses what says nothing about a loss."""
    if on_lost not in ("raise", "ignore") and not callable(on_lost):
        raise errors.Misuse("on_lost is raise, ignore, or a function")


def _patience(wait: Duration | Literal["forever"] | None) -> Patience:
    if wait is None:
        return Patience(waits=False)
    if wait == "forever":
        return Patience(waits=True)
    wait_ms = whole_ms(wait, "wait")
    return Patience(waits=wait_ms > 0, wait_ms=wait_ms)
