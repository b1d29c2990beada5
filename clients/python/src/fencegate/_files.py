"""Files that are written beside the one they replace, and renamed at the end."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import BinaryIO


def claim(target: Path) -> tuple[Path, BinaryIO]:
    """The file `<target>.part`, empty, and ours alone as long as it is open."""
    if not target.name:
        raise OSError("it names no file")
    part = target.with_name(target.name + ".part")
    while True:
        file = part.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = os.fstat(file.fileno())
            there = part.stat()
        except FileNotFoundError:
            # Another download has put it in its place before we had the lock.
            file.close()
            continue
        except OSError as error:
            file.close()
            if isinstance(error, BlockingIOError):
                raise OSError("another download is writing it") from None
            raise
        if (ours.st_dev, ours.st_ino) == (there.st_dev, there.st_ino):
            file.truncate(0)
            return part, file
        file.close()


def put_in_place(file: BinaryIO, part: Path, target: Path) -> None:
    """Makes the file the one it replaces, once its bytes are on disk."""
    file.flush()
    os.fsync(file.fileno())
    part.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
