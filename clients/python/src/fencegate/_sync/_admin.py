# Made by scripts/unasync.py out of ../_async/_admin.py: change that, and run it again.
"""What operators do (CC57): break a lock, stop all writers, look at what was done and refused, and take it upon
themselves that something is over."""

from __future__ import annotations

from .. import errors
from .._core import names
from .._core.durations import DAY_MS, Duration, text, whole_ms
from .._json import members
from .._request import Request, json_request
from .._wire import AuditEntry, DoubtEntry, IntentEntry, RejectionEntry, Resource
from .._words import AuditAction
from ._caller import Caller
from ._operations import decoded
from ._pages import Listing


class Admin:
    """Operators' calls. Each act wants a reason, which the audit keeps for ever: 1 to 1,024 bytes."""

    __slots__ = ("_caller",)

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def break_lock(self, resource: str, reason: str, *, after: Duration | None = None) -> Resource:
        """Breaks the lock on a resource: fences its holder off, at once, or at the latest so long `after`, at most 24 h,
        in which the holder may end by itself. Done again, a break can only come sooner."""
        after_ms = None if after is None else whole_ms(after, "after")
        if after_ms is not None and after_ms > DAY_MS:
            raise errors.Misuse("a break comes at most 24h later")
        return self._act(resource, "break", reason, None if after_ms is None else text(after_ms))

    def freeze(self, resource: str, reason: str) -> Resource:
        """Stops all writers of a resource, and all grants of its lock, until it is unfrozen. Who holds the lock keeps
        it."""
        return self._act(resource, "freeze", reason)

    def unfreeze(self, resource: str, reason: str) -> Resource:
        """Lets writers and grants go on. On what is not frozen it changes nothing."""
        return self._act(resource, "unfreeze", reason)

    def protect(self, resource: str, reason: str) -> Resource:
        """Forbids deleting all of a resource at once; its objects may still be written and deleted one by one."""
        return self._act(resource, "protect", reason)

    def unprotect(self, resource: str, reason: str) -> Resource:
        """Allows it again. On what is not protected it changes nothing."""
        return self._act(resource, "unprotect", reason)

    def audit(
        self, *, resource: str | None = None, action: AuditAction | str | None = None, page_size: int = 1_000
    ) -> Listing[AuditEntry]:
        """What was done to locks and resources, by whom and why, newest first: every grant, and all that operators
        did."""
        parameters = [("resource", _named(resource)), ("action", None if action is None else str(action))]
        return Listing(self._caller, "audit", AuditEntry, "/audit", parameters, page_size)

    def rejections(
        self, *, resource: str | None = None, code: str | None = None, page_size: int = 1_000
    ) -> Listing[RejectionEntry]:
        """Writes that were refused, newest first: where, why, and how late they were. `code`: only those refused so."""
        parameters = [("resource", _named(resource)), ("reason", code)]
        return Listing(self._caller, "rejections", RejectionEntry, "/rejections", parameters, page_size)

    def intents(
        self, *, resource: str | None = None, upstream: str | None = None, page_size: int = 1_000
    ) -> Listing[IntentEntry]:
        """What was forwarded to upstreams and has no known end, oldest first. It keeps the next lock on its resource from
        being in force."""
        parameters = [("resource", _named(resource)), ("upstream", upstream)]
        return Listing(self._caller, "intents", IntentEntry, "/admin/intents", parameters, page_size)

    def doubts(self) -> list[DoubtEntry]:
        """Upstreams of which intents may have been lost when the ledger was re-fenced: their resources are not locked
        before somebody resolves that."""
        said = members(self._caller.json("doubts", Request("GET", "/admin/intents?limit=1")))
        return list(decoded(tuple[DoubtEntry, ...], said.get("doubts")))

    def resolve_intent(self, operation: str, reason: str) -> None:
        """Takes it upon you that what was forwarded has no effect any more, whatever came of it. The next lock on the
        resource may be in force from then on. Again is harmless."""
        path = f"/admin/intents/{names.segment(operation)}/resolve"
        self._caller.done("resolve", json_request("POST", path, {"reason": names.checked_reason(reason)}))

    def resolve_doubts(self, upstream: str, reason: str) -> int:
        """Takes it upon you that nothing that was forwarded to this upstream before a re-fence has an effect any more.
        Gives the number of doubts that there were. Again is harmless."""
        document = {"upstream": upstream, "reason": names.checked_reason(reason)}
        said = members(self._caller.json("resolve", json_request("POST", "/admin/intents/resolve", document)))
        resolved = said.get("resolved")
        if not isinstance(resolved, int):
            raise errors.GatewayFault("an answer that is not the gateway's: no number is in it")
        return resolved

    def _act(self, resource: str, act: str, reason: str, after: str | None = None) -> Resource:
        path = f"{names.resource_path(resource)}/{act}"
        document = {"reason": names.checked_reason(reason), "after": after}
        return decoded(Resource, self._caller.json(act, json_request("POST", path, document)))


def _named(resource: str | None) -> str | None:
    if resource is not None:
        names.resource_path(resource)
    return resource
