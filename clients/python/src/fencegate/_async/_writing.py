"""Sends a write until its outcome is known, or its deadline has passed. **Safety-critical**: an outcome that is unknown
is never reported as known (CC24a)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .. import errors
from .._body import digest_header
from .._core import clock
from .._core.acquiring import Refusal, Stranger
from .._core.backoff import Backoff
from .._core.ids import RequestIds
from .._core.numbers import UnderWay
from .._core.replies import (
    AnswerBroken,
    Failure,
    Foreign,
    Nothing,
    Problem,
    Unsendable,
    detail_of,
    error_of,
    floor_ms,
    known_of,
    summary,
)
from .._core.settling import Beside, Said, Settling, Verdict
from .._core.turn import Turn
from .._guard.held import Held
from .._hooks import OutcomeResolved, Retry, StaleWrite
from .._json import members
from .._prepared import Prepared
from .._results import Applied, NotApplied, Receipt, Settled
from .._wire import Operation
from .._words import ErrorClass, Kind, OperationOutcome
from . import _runtime as runtime
from ._answer import AsyncAnswer
from ._burying import bury
from ._caller import AsyncCaller
from ._operations import operation_of_id, operation_of_key
from ._renewing import renew_now
from ._unknown import AsyncOutcomeUnknown

_RESENT_UNASKED_MS = 30_000
"""Until the gateway has said how long it keeps keys, nothing is sent again later than this."""
_ASK_WITHIN_MS = 5_000
"""How long a look-up may take."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a write that took effect. Its headers say enough if a newer gateway has another body."""

    status: int
    headers: dict[str, str]
    document: dict[str, Any]
    """The body, if it is a JSON object; else nothing."""

    @property
    def operation(self) -> str | None:
        """The id of the operation."""
        return self.headers.get("x-operation-id")

    @property
    def version(self) -> int | None:
        """The version of the resource that the write became."""
        text = self.headers.get("x-resource-version", "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None

    @property
    def was_replayed(self) -> bool:
        """Whether it took effect by an earlier attempt."""
        return self.headers.get("idempotent-replayed") == "true"


class _Ended(Exception):
    """The attempts ended, and something may have taken effect, or may yet."""

    def __init__(self, last: dict[str, Any]) -> None:
        super().__init__()
        self.last = last


class AsyncWriting:
    """One write under way, or whose outcome is unknown."""

    __slots__ = (
        "_caller",
        "_first_ms",
        "_ids",
        "_known",
        "_number",
        "_operation",
        "_settling",
        "_turn",
        "_under_way",
        "_was_told_unknown",
        "held",
        "prepared",
    )

    def __init__(self, caller: AsyncCaller, held: Held, prepared: Prepared) -> None:
        self._caller = caller
        self.held = held
        self.prepared = prepared
        self._settling = Settling(held.is_numbered, prepared.condition, prepared.is_own_key)
        self._ids = RequestIds()
        self._number: int | None = None
        self._under_way: UnderWay | None = None
        # When the first attempt was sent.
        self._first_ms: int | None = None
        self._operation: str | None = None
        # Once the caller was told that the outcome is unknown, the write never gets another number: it could land on
        # top of what the caller wrote since (CC23).
        self._was_told_unknown = False
        # What became of it, once that is known: it is never sent again.
        self._known: Settled | None = None
        self._turn: Turn | None = None

    async def go(self) -> tuple[Answered | Operation, Receipt]:
        """Sends the write until it is settled."""
        began_ms, held = clock.now_ms(), self.held
        # 1. Locally: is the guard good (CC21)?
        held.begin_call()
        if held.in_order is None:
            return await self._go(began_ms)
        await runtime.take(held.in_order)
        try:
            return await self._go(began_ms)
        finally:
            held.in_order.give_back()

    async def _go(self, began_ms: int) -> tuple[Answered | Operation, Receipt]:
        held, prepared = self.held, self.prepared
        # 2. A large body: a holder that lost its lock learns it for some hundred bytes (CC27).
        if prepared.request.body is not None and prepared.request.body.is_large:
            await self._renew_first()
        self._under_way = held.numbers.begin()
        error: errors.FenceError | None = None
        try:
            # A release of another thread either sees that this is under way, or is seen here.
            held.check()
            try:
                # 3. Attempts, until something settles it.
                effect: Answered | Operation = await self._attempts(began_ms + prepared.within_ms)
            except _Ended as ended:
                # 4. Or else: did it take effect? A caller that is told *unknown* can go on asking.
                found = await self._ask()
                if found is None:
                    raise self._unknown(ended.last) from None
                effect = found
            return effect, Receipt(prepared.key, self._number, self._ids.attempts)
        except errors.FenceError as failure:
            failure.idempotency_key, failure.number = prepared.key, self._number
            error = failure
            raise
        finally:
            self._under_way.end()
            self._note_settled()
            held.shared.called(prepared.call, began_ms, self._ids.attempts, error)

    async def go_on(self, within_ms: int) -> Settled:
        """Goes on with a write whose outcome was unknown, for so long (CC25)."""
        until_ms = clock.now_ms() + within_ms
        turn = await self._take_turn()
        try:
            if self._known is not None:
                return self._known
            try:
                # First what costs nothing: is there a record of it?
                effect: Answered | Operation | None = await self._ask()
                if effect is None:
                    try:
                        effect = await self._attempts(until_ms)
                    except _Ended as ended:
                        effect = await self._ask()
                        if effect is None:
                            self._tell_resolved(False)
                            raise self._unknown(ended.last) from None
                known: Settled = Applied(effect.operation, effect.version)
            except errors.OutcomeUnknown:
                raise
            except errors.FenceError as error:
                known = NotApplied(error)
            return self._now_known(known)
        finally:
            turn.give_back()

    async def bury(self, within_ms: int) -> bool:
        """Gives the lock back, whatever state the guard is in, and waits for that. Gives whether a gateway confirmed it."""
        held = self.held
        held.release()
        held.is_buried = held.is_buried or await bury(self._caller, held.burial(), within_ms)
        return held.is_buried

    async def ask_finally(self) -> Settled | None:
        """Once a gateway has buried the lock, no copy of the write takes effect any more: no record means that none
        has, as long as the gateway still remembers the key. None: that cannot be said."""
        turn = await self._take_turn()
        try:
            if self._known is not None:
                return self._known
            asked_ms = clock.now_ms()
            try:
                found = await self._ask()
            except errors.FenceError as error:
                return self._now_known(NotApplied(error))
            if found is not None:
                return self._now_known(Applied(found.operation, found.version))
            if not await self._is_nowhere(asked_ms):
                return None
            self._settling = Settling(self.held.is_numbered, self.prepared.condition)
            return self._now_known(NotApplied(errors.Unavailable("the lock is over, and no write has this key")))
        finally:
            turn.give_back()

    async def _take_turn(self) -> Turn:
        if self._turn is None:
            self._turn = Turn()
        await runtime.take(self._turn)
        return self._turn

    def _now_known(self, known: Settled) -> Settled:
        self._known = known
        self._note_settled()
        self._tell_resolved(True)
        return known

    def _tell_resolved(self, resolved: bool) -> None:
        self.held.shared.hooks.tell(OutcomeResolved(self.prepared.resource, resolved))

    def _note_settled(self) -> None:
        """Its number is done with, if no copy of it can land any more."""
        if self._number is not None and not self._settling.is_open:
            self.held.numbers.settled(self._number)

    async def _is_nowhere(self, asked_ms: int) -> bool:
        """Whether a gateway says that no write has the key, at a time when it would know it if one had."""
        if self._first_ms is None:
            return True
        kept_ms = await self._caller.status_now()
        if kept_ms is None:
            return False
        if self.prepared.kept_ms is not None:
            kept_ms = min(kept_ms, self.prepared.kept_ms)
        if asked_ms - self._first_ms >= kept_ms // 2:
            return False
        until_ms = clock.now_ms() + _ASK_WITHIN_MS
        try:
            found = await operation_of_key(self._caller, self.prepared.resource, self.prepared.key, until_ms)
        except errors.FenceError:
            return False
        return found is None

    async def _renew_first(self) -> None:
        if not self.held.lease.is_stale_for_upload(clock.now_ms()):
            return
        try:
            await renew_now(self._caller, self.held)
        except errors.Unavailable:
            # A guard that nobody confirms may still be good: the gateway judges the write.
            pass

    async def _attempts(self, until_ms: int) -> Answered:
        """Attempts, with pauses, until an answer settles the write or the deadline has passed."""
        prepared, backoff = self.prepared, None
        last: dict[str, Any] = {"detail": "no attempt was made"}
        while True:
            # 1. Is there time for an attempt, and does the gateway still know the key?
            if clock.now_ms() >= until_ms or not await self._may_send():
                raise self._ended(last)
            # 2. The attempt. Until it is answered, it counts as open: a caller that is cancelled here leaves it so.
            was_open = self._settling.is_open
            self._settling.is_open = True
            if self._first_ms is None:
                self._first_ms = clock.now_ms()
            reply = await self._attempt()
            self._settling.is_open = was_open
            # 3. Its answer, judged for all attempts alike.
            verdict = self._judge(reply)
            if isinstance(reply, AsyncAnswer):
                try:
                    return await _answered(reply)
                except AnswerBroken as broken:
                    # It took effect, and the answer that says so was cut off: again, for all of it.
                    self._settling.is_open = True
                    reply = broken.failure
            elif verdict is Verdict.REFUSED:
                raise self._refused(reply)
            elif verdict is Verdict.RENUMBER and self._number is not None:
                # It took no effect under its number, nor will it: the next, after a while.
                self.held.numbers.settled(self._number)
                self._number = None
            elif isinstance(reply, Unsendable):
                # Our own fault: nothing more can be sent. What was sent before may be open.
                if self._settling.is_open:
                    raise _Ended({"detail": reply.error.detail})
                raise reply.error
            last = {"detail": detail_of(reply), **known_of(reply, self._ids.attempts)}
            await self._caller.note_slowness(reply)
            if not prepared.retries or not prepared.is_replayable:
                raise self._ended(last)
            # 4. A pause.
            backoff = backoff or Backoff()
            left_ms = until_ms - clock.now_ms()
            pause_ms = backoff.next(clock.draw(), floor_ms(reply), left_ms)
            # A pause that reaches the deadline leaves no time for another attempt (CC10).
            if pause_ms is None or pause_ms >= left_ms:
                if self._settling.is_open:
                    await runtime.sleep_until_ms(until_ms)
                raise self._ended(last)
            self.held.shared.hooks.tell(Retry(prepared.call, self._ids.attempts, summary(reply)))
            await runtime.sleep_until_ms(clock.now_ms() + pause_ms)

    async def _attempt(self) -> AsyncAnswer | Failure:
        request = self.prepared.request
        if self.held.is_numbered:
            if self._number is None:
                self._number = self.held.numbers.next()
            headers = [*request.headers, (b"X-Fence-Seq", b"%d" % self._number)]
            request = type(request)(request.method, request.path, headers, request.body)
        reply = await self._caller.transport.attempt(request, self._ids.next())
        if isinstance(reply, AsyncAnswer):
            self._operation = reply.headers.get("x-operation-id") or self._operation
        elif isinstance(reply, Problem):
            self._operation = reply.operation or self._operation
        return reply

    def _judge(self, reply: AsyncAnswer | Failure) -> Verdict:
        if isinstance(reply, AsyncAnswer):
            return self._settling.judge(Said.DONE)
        if isinstance(reply, Problem) and reply.error_class is ErrorClass.LOCK_LOST:
            self.held.refused(reply)
        return self._settling.judge(self._said(reply), self._beside())

    def _said(self, failure: Failure) -> Said | Refusal | Stranger:
        if isinstance(failure, Problem):
            refusal = failure.refusal
            if self.prepared.rides_out and refusal.code in ("resource-frozen", "resource-draining"):
                return Refusal(refusal.code, ErrorClass.UNAVAILABLE)
            return refusal
        if isinstance(failure, Foreign):
            return failure.stranger
        return Said.UNANSWERED if isinstance(failure, Nothing) and failure.was_sent else Said.UNSENT

    def _beside(self) -> Beside:
        overlaps = self._under_way is not None and not self._was_told_unknown and self._under_way.overlapped()
        earlier = self._number is not None and self.held.numbers.is_earlier_open(self._number)
        return Beside(overlapped=overlaps, earlier_is_open=earlier)

    def _refused(self, failure: Failure) -> errors.FenceError:
        error = error_of(failure, self._ids.attempts)
        if isinstance(error, errors.LockLost):
            self.held.shared.hooks.tell(StaleWrite(self.prepared.resource, error.reason))
        return error

    async def _may_send(self) -> bool:
        """Whether the gateway surely still knows the key of the first attempt: nothing is sent later than half of the
        time for which it is kept (CC20)."""
        if self._first_ms is None:
            return True
        if self.held.shared.keys_kept_ms is None and clock.now_ms() - self._first_ms >= _RESENT_UNASKED_MS:
            await self._caller.status_now()
        return self._is_key_known(self._first_ms)

    def _is_key_known(self, first_ms: int) -> bool:
        kept_ms = self.held.shared.keys_kept_ms
        if kept_ms is None:
            kept_ms = 2 * _RESENT_UNASKED_MS
        elif self.prepared.kept_ms is not None:
            kept_ms = min(kept_ms, self.prepared.kept_ms)
        return clock.now_ms() - first_ms < kept_ms // 2

    async def _ask(self) -> Operation | None:
        """Looks the write up: by its operation, or else by its key (CC24). None: that decides nothing. A record that
        one attempt took no effect decides nothing either: a proxy may have made two of it."""
        found = await self._find(clock.now_ms() + _ASK_WITHIN_MS)
        if found is None:
            return None
        self._settling.judge(Said.DONE)
        if self.prepared.is_own_key or self._is_about_this(found):
            return found
        raise errors.Misuse(f"the idempotency key was used for another payload, by operation {found.operation}")

    async def _find(self, until_ms: int) -> Operation | None:
        """The operation of this write that took effect, if a gateway knows one."""
        if self._operation is not None:
            found = await self._quietly(self._operation, until_ms)
            if found is not None and found.outcome == OperationOutcome.APPLIED:
                return found
        try:
            found = await operation_of_key(self._caller, self.prepared.resource, self.prepared.key, until_ms)
        except errors.FenceError:
            return None
        if found is None or found.outcome != OperationOutcome.APPLIED:
            return None
        if found.kind == Kind.COMMIT:
            # By its key a commit tells one of its resources, by its id all of them.
            return await self._quietly(found.operation, until_ms) or found
        return found

    async def _quietly(self, operation: str, until_ms: int) -> Operation | None:
        try:
            return await operation_of_id(self._caller, operation, until_ms)
        except errors.FenceError:
            return None

    def _is_about_this(self, found: Operation) -> bool:
        """Whether the write that has a key of the caller's is this one."""
        prepared = self.prepared
        kind = "delete_all" if prepared.call == "delete" and prepared.object is None else prepared.call
        if found.kind is not None and found.kind != kind:
            return False
        if kind != "commit" and found.key != prepared.object:
            return False
        if found.sha256 is None or prepared.digest is None:
            return True
        try:
            return digest_header(bytes.fromhex(found.sha256)) == prepared.digest
        except ValueError:
            return True

    def _ended(self, last: dict[str, Any]) -> Exception:
        return _Ended(last) if self._settling.is_open else errors.Unavailable(**last)

    def _unknown(self, last: dict[str, Any]) -> errors.OutcomeUnknown:
        self._was_told_unknown = True
        known = dict(last)
        detail = f"the outcome of the write on {self.prepared.resource} is unknown: {known.pop('detail')}"
        known["resource"] = known.get("resource") or self.prepared.resource
        can_resend = self.prepared.is_replayable and self._first_ms is not None and self._is_key_known(self._first_ms)
        return AsyncOutcomeUnknown(detail, write=self, operation=self._operation, can_resend=can_resend, **known)


async def _answered(answer: AsyncAnswer) -> Answered:
    """Reads the answer to a write that took effect."""
    if answer.status == 204:
        await answer.bytes()
        return Answered(answer.status, answer.headers, {})
    body = await answer.bytes()
    try:
        document = members(json.loads(body))
    except ValueError as error:
        raise AnswerBroken(Foreign(answer.status, f"an answer that is not the gateway's: {error}")) from None
    return Answered(answer.status, answer.headers, document)
