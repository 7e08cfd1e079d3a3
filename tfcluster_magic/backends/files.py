"""Small files that are always whole: written beside their place and moved over it, or not at all.

Promises that a reader sees the old content or the new one, never a part. Owns the mode (private to
the user) and the temporary names. Never retries and never hides an OSError: the caller knows what a
full disk means for it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from _thread import get_native_id
from pathlib import Path
from typing import TypeVar

import msgspec

from . import newer

T = TypeVar("T")


def write(path: Path, content: bytes, durable: bool = False, alone: bool = False) -> None:
    """Replace `path` with `content`; `durable` also survives a power cut. Raises OSError.

    `alone`: a lock keeps others from writing it, so that what a killed writer left is taken.
    """
    # One name for each thread of each process: two writers of one file (readers that repair a
    # record, requests to stop one run) stay apart. A process's only thread has its number.
    beside = path.with_name(f".{path.name}.{'half' if alone else get_native_id()}")
    try:
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(fd, view) :]
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def read(path: Path, kind: type[T]) -> T | None:
    """The content of a JSON file as a `kind`, as far as this version knows it; None when it is
    missing, unreadable, or something else.
    """
    try:
        content = path.read_bytes()
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.ValidationError:
            known = msgspec.json.decode(content)
            is_struct = hasattr(kind, "__struct_fields__")
            return newer.known_part(known, kind) if is_struct and isinstance(known, dict) else None  # type: ignore[type-var]
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def is_gone(path: Path) -> bool:
    """Whether there is surely nothing at `path`; a volume that fails for now has it still."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def remove_tree(path: Path) -> None:
    """Remove a folder and all in it; what cannot be removed is left. Never raises."""
    # A snapshot may be read-only: give the folders back their write bit first.
    for folder, _, _ in os.walk(path):
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)
    shutil.rmtree(path, ignore_errors=True)


def remove_empty(path: Path) -> None:
    """Remove a folder with nothing in it, and the one above if that was all of it."""
    for folder in (path, path.parent):
        with contextlib.suppress(OSError):  # there is something in it, or it is gone
            folder.rmdir()
