"""Downloads: an object in a file, whole or not at all (CC47)."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import BinaryIO

from .. import errors
from .._files import claim, put_in_place
from .._objects import ObjectHead
from . import _runtime as runtime
from ._object import AsyncReader


async def store(reader: AsyncReader, path: str | os.PathLike[str]) -> ObjectHead:
    """Reads into `<path>.part`, which takes the place of `path` once it is whole and on disk."""
    target = Path(path)
    try:
        part, file = await runtime.in_thread(lambda: claim(target))
    except OSError as error:
        raise _unwritable(target, error) from error
    try:
        # It is open, and so locked, until its fate is decided.
        with file:
            await _write(reader, file, target)
            await runtime.in_thread(lambda: put_in_place(file, part, target))
    except BaseException as error:
        with contextlib.suppress(OSError):
            part.unlink()
        if isinstance(error, OSError):
            raise _unwritable(target, error) from error
        raise
    return reader.head


async def _write(reader: AsyncReader, file: BinaryIO, target: Path) -> None:
    async for piece in reader:
        try:
            file.write(piece)
        except OSError as error:
            raise _unwritable(target, error) from error


def _unwritable(path: Path, error: OSError) -> errors.Misuse:
    return errors.Misuse(f"cannot write {path}: {error}")
