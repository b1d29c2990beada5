"""Server-sent events, as the HTML standard has them (CC48): bytes in, events out, however they are cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

_BYTES_MAX = 1 << 20
"""The longest line, and the most data of one event, in bytes. What is longer is no event of a gateway."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class SseEvent:
    """An event: its name, its data, and the id of the last event when this one came."""

    event: str
    data: str
    id: str


@dataclass(frozen=True, slots=True)
class SsePlace:
    """An id alone, without data: where the stream stands."""

    id: str


@dataclass(frozen=True, slots=True)
class SseRetry:
    """How long to wait before the next connection, in milliseconds."""

    ms: int


@dataclass(frozen=True, slots=True)
class SseTooLong:
    """A line or an event beyond all measure. Nothing comes after this."""


SseItem: TypeAlias = SseEvent | SsePlace | SseRetry | SseTooLong


class SseParser:
    """Reads a stream of events, piece by piece."""

    def __init__(self, bytes_max: int = _BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._line = bytearray()
        self._after_cr = False
        self._is_first_line = True
        self._event = ""
        self._data: list[str] = []
        self._data_size = 0
        self._has_id = False
        self._last_id = ""
        self._is_over = False

    def push(self, piece: bytes) -> list[SseItem]:
        """Takes the next bytes, and gives what they complete. What is not complete at the end of the stream is none."""
        items: list[SseItem] = []
        at = 0
        while at < len(piece) and not self._is_over:
            # The last byte was CR: a LF right behind it belongs to it.
            if self._after_cr:
                self._after_cr = False
                if piece[at] == 0x0A:
                    at += 1
                    continue
            end = _end_of_line(piece, at)
            part = piece[at : end if end >= 0 else len(piece)]
            if len(self._line) + len(part) > self._bytes_max:
                self._give_up(items)
                break
            self._line += part
            if end < 0:
                break
            self._after_cr = piece[end] == 0x0D
            at = end + 1
            line = bytes(self._line)
            self._line.clear()
            self._take_line(line, items)
        return items

    def _give_up(self, items: list[SseItem]) -> None:
        self._is_over = True
        items.append(SseTooLong())

    def _take_line(self, line: bytes, items: list[SseItem]) -> None:
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line:
            self._end_event(items)
            return
        field, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._event = value
        elif field == "data":
            self._data_size += len(value) + 1
            if self._data_size > self._bytes_max:
                self._give_up(items)
            else:
                self._data.append(value)
        elif field == "id" and "\0" not in value:
            self._last_id = value
            self._has_id = True
        elif field == "retry" and value.isascii() and value.isdigit():
            ms = int(value) if len(value) < 20 else 2**64
            if ms < 2**64:
                items.append(SseRetry(ms))

    def _end_event(self, items: list[SseItem]) -> None:
        event, data, has_id = self._event, self._data, self._has_id
        self._event, self._data, self._data_size, self._has_id = "", [], 0, False
        if data:
            items.append(SseEvent(event or "message", "\n".join(data), self._last_id))
        elif has_id:
            items.append(SsePlace(self._last_id))


def _end_of_line(piece: bytes, at: int) -> int:
    feed = piece.find(b"\n", at)
    carriage = piece.find(b"\r", at, feed if feed >= 0 else len(piece))
    return carriage if carriage >= 0 else feed
