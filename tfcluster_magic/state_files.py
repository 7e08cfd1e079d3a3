"""State files: checked when read, and written completely or not at all.

A state file may have become anything since it was written: cut off, garbled, huge, a pipe, a link,
or another user's. `read_bytes` opens only a regular file of the folder's owner, this user or root.
It never blocks and never reads more than `MOST_BYTES`. Any fault raises `Unreadable`. `write`
replaces a file atomically, so a reader sees either the old content or the new. This module owns the
file mode (private to the user), the temporary names, the spare files that allow a write on a full
disk, and the reading of files from newer versions.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import stat
import threading
import time
from _thread import get_native_id
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec
from msgspec.structs import fields

from .i18n import _
from .spec import conversion

T = TypeVar("T")

MOST_BYTES = 8 << 20
"""Maximum bytes of a state file that is read or written. The longest possible content, the argument
list of a process, is shorter.
"""
MOST_NUMBER = 2.5e11
"""Maximum fractional number in a state file. As a time in seconds since 1970, it is in the year
9892.
"""
_ODD_NUMBER = re.compile(rb"(?:^|[:,\[])\s*(?:-|[0-9.]*[eE]|[0-9]{12})")
"""Pattern that matches every text with a number below 0 or above `MOST_NUMBER`, and few others."""
SPARE_BYTES = 32 << 10
NEEDED = 1 << 20
"""Threshold: a disk with fewer free bytes counts as full."""
FULL = (errno.ENOSPC, errno.EDQUOT)
OURS = (-1, -1)
"""Default for the owner of a file that `write` creates: the user and group of this process."""


class Unreadable(Exception):
    """A state file that exists but is not valid; the text says why."""


def open_regular(path: Path, *, owned: bool = True) -> int:
    """Open a regular file for reading, without blocking and without following a link.

    With `owned`, the file must belong to the folder's owner, this user or root.

    Raises:
        FileNotFoundError: there is nothing at `path`.
        Unreadable: it is something else, or cannot be opened.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
    except (OSError, ValueError) as error:
        raise Unreadable(_error_text(error)) from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise Unreadable(_("it is not a regular file"))
        is_ours = found.st_uid in (0, os.geteuid())
        if owned and not is_ours and found.st_uid != os.stat(path.parent).st_uid:
            raise Unreadable(_("it belongs to another user"))
    except OSError as error:
        os.close(fd)
        raise Unreadable(_error_text(error)) from None
    except Unreadable:
        os.close(fd)
        raise
    return fd


def _error_text(error: Exception) -> str:
    number = getattr(error, "errno", None)
    if number == errno.ELOOP:
        return _("it is a link")
    if number == errno.ENXIO:
        return _("it is not a regular file")
    return getattr(error, "strerror", None) or str(error)


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the content of a state file.

    Raises the errors of `open_regular`, and Unreadable if the file is larger than `most` bytes.
    """
    fd = open_regular(path)
    try:
        size = os.fstat(fd).st_size
        if size > most:
            raise Unreadable(_("it is larger than {most} bytes").format(most=most))
        text = os.read(fd, size)
        while len(text) < size and (piece := os.read(fd, size - len(text))):
            text += piece
        return text
    except OSError as error:
        raise Unreadable(_error_text(error)) from None
    finally:
        os.close(fd)


def read_tail(path: Path, most: int, *, owned: bool = True) -> bytes:
    """Return the last `most` bytes of a file of any size; b"" if the file cannot be read."""
    try:
        fd = open_regular(path, owned=owned)
    except (FileNotFoundError, Unreadable):
        return b""
    try:
        return os.pread(fd, most, max(0, os.fstat(fd).st_size - most))
    except OSError:
        return b""
    finally:
        os.close(fd)


_AT_ONCE = 16
READ_WITHIN = 1.5
"""Maximum seconds for which `read_together` waits, because a volume may hang. Files that have not
been read by then are left out.
"""
_hanging: dict[Path, threading.Thread] = {}
"""For each file whose reading hangs: the thread that reads it. No other thread reads the file. For
each thread that hangs on a file of a folder, later calls for this folder start one thread less.
Otherwise repeated reads would fill the process with threads.
"""


def read_together(files: Mapping[str, Path], read: Callable[[str], T | None]) -> dict[str, T]:
    """Return the result of `read` for each key of `files`, reading several files at the same time.
    Keys whose result is None, or whose file could not be read in time, are left out.
    """
    for path, reader in list(_hanging.items()):
        if not reader.is_alive():
            _hanging.pop(path, None)
    hanging, folders = list(_hanging), {path.parent for path in files.values()}
    room = _AT_ONCE - sum(path.parent in folders for path in hanging)
    left = deque((key, path) for key, path in files.items() if path not in hanging)
    found: dict[str, T] = {}
    reading: dict[threading.Thread, Path] = {}

    def work() -> None:
        with contextlib.suppress(IndexError):
            while True:
                key, path = left.popleft()
                reading[threading.current_thread()] = path
                content = read(key)
                if content is not None:
                    found[key] = content

    # Daemon threads, unlike those of a pool: a thread that hangs does not prevent the process from
    # ending.
    readers = [
        threading.Thread(target=work, name="tfcluster-reader", daemon=True)
        for _reader in range(min(room, len(left)))
    ]
    for reader in readers:
        reader.start()
    until = time.monotonic() + READ_WITHIN
    for reader in readers:
        reader.join(max(0.0, until - time.monotonic()))
    left.clear()
    _hanging.update(
        {reading[each]: each for each in readers if each in reading and each.is_alive()}
    )
    return found.copy()


def decode(text: bytes, kind: type[T], *, exact: bool = False) -> T:
    """Decode JSON as a `kind`, ignoring newer fields unless `exact`. Raises Unreadable."""
    try:
        try:
            found = conversion.decode(text, kind)
        except msgspec.ValidationError:
            if exact or not hasattr(kind, "__struct_fields__"):
                raise
            known = msgspec.json.decode(text)
            if not isinstance(known, dict):
                raise
            found = convert_known_fields(known, kind)  # type: ignore[type-var]
        if _ODD_NUMBER.search(text):
            _check_numbers(found)
    except (ValueError, RecursionError) as error:  # from msgspec, or for invalid UTF-8
        raise Unreadable(str(error)) from None
    return found


def _check_numbers(value: object) -> None:
    """Raise ValueError if `value` contains a float below 0 or above `MOST_NUMBER`, because such
    times and amounts would break later code.
    """
    kind = type(value)
    if kind is float:
        if not 0 <= value <= MOST_NUMBER:  # type: ignore[operator]
            raise ValueError(_("{number:g} is out of range").format(number=value))
    elif kind is not str:
        inside: Iterable[object] = ()
        if isinstance(value, dict):
            inside = value.values()
        elif isinstance(value, (list, tuple)):
            inside = value
        elif fields := getattr(kind, "__struct_fields__", ()):
            inside = (getattr(value, name) for name in fields)
        for each in inside:
            _check_numbers(each)


def load(path: Path, kind: type[T], *, exact: bool = False) -> T:
    """Return the content of a state file as a `kind`. Raises the errors of `read_bytes` and
    `decode`.
    """
    return decode(read_bytes(path), kind, exact=exact)


def read(path: Path, kind: type[T]) -> T | None:
    """Return the content of a state file as a `kind`, or None if it is missing or unreadable."""
    try:
        return load(path, kind)
    except (FileNotFoundError, Unreadable):
        return None


def write(
    path: Path,
    content: bytes,
    durable: bool = False,
    alone: bool = False,
    spares: Iterable[Path] = (),
    mode: int = 0o600,
    owner: tuple[int, int] = OURS,
) -> None:
    """Replace the file `path` by one with `content`. Raises OSError.

    `durable`: the new content survives a power cut. `alone`: the caller holds a lock, so the
    temporary file of a killed writer is reused. `spares`: files made by `reserve`; one of them is
    used if the disk is full. `owner`: the file's user and group; -1 stands for those of this
    process.
    """
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    # One temporary name for each thread, so that two writers of one file (readers that repair a
    # record, requests to stop a run) do not collide. Thread ids are unique among all processes of
    # the machine.
    beside = path.with_name(f".{path.name}.{'half' if alone else get_native_id()}")
    try:
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside)  # never write into a file that somebody else put there
            _write_file(beside, content, os.O_CREAT | os.O_EXCL, durable, mode, owner)
        except OSError as error:
            if error.errno not in FULL or not _claim_spare(spares, beside, len(content)):
                raise
            _write_file(beside, content, 0, durable, mode, owner)
        try:
            os.replace(beside, path)
        except IsADirectoryError:  # a folder is in the place of the state file
            put_aside(path)
            os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


def _write_file(
    path: Path, text: bytes, how: int, durable: bool, mode: int, owner: tuple[int, int]
) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | how, 0o600)
    try:
        view = memoryview(text)
        while view:
            view = view[os.write(fd, view) :]
        os.ftruncate(fd, len(text))
        if owner != OURS:
            os.fchown(fd, *owner)
        if mode != 0o600:
            os.fchmod(fd, mode)
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)


def _claim_spare(spares: Iterable[Path], beside: Path, size: int) -> bool:
    """Rename a spare file that has room for `size` bytes to `beside`. Return False if there is
    none.
    """
    if size > SPARE_BYTES:
        return False
    for spare in spares:
        with contextlib.suppress(OSError):
            os.rename(spare, beside)  # succeeds for only one of two writers
            return True
    return False


def reserve(spare: Path) -> None:
    """Create the file `spare` of `SPARE_BYTES`, which `write` uses if the disk is full. Raises
    OSError.
    """
    fd = os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.posix_fallocate(fd, 0, SPARE_BYTES)
        except (AttributeError, OSError) as error:  # fails on macOS and some file systems
            if getattr(error, "errno", None) in FULL:
                raise
            os.write(fd, bytes(SPARE_BYTES))
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(spare)
        raise
    finally:
        os.close(fd)


def lock_file(path: Path) -> int:
    """Open a lock file, and create it if it is missing; return its descriptor. If `path` is no
    regular file, it is put aside. Raises OSError.
    """
    how = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, how, 0o600)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EACCES):
            raise
        with contextlib.suppress(OSError):
            os.chmod(path.parent, 0o700)
    put_aside(path)
    return os.open(path, how, 0o600)


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock of the state file `path`, so that no other process that locks it changes the
    file. With `shared`, several readers may hold the lock at the same time. Raises OSError.
    """
    fd = lock_file(path.with_suffix(".lock"))
    try:
        fcntl.flock(fd, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def put_aside(path: Path) -> None:
    """Move aside what is at `path` but is not a state file. Raises OSError."""
    os.rename(path, path.with_name(f".{path.name}.aside.{os.lstat(path).st_ino}"))


def is_full(folder: Path) -> bool:
    """Return whether the disk of `folder` has no room for more bytes or more files."""
    try:
        there = os.statvfs(folder)
    except OSError:
        return False
    # Some file systems have no maximum number of files. They report that 0 of 0 files are free,
    # which does not mean that the disk is full.
    no_files = there.f_files > 0 and there.f_favail == 0
    return there.f_bavail * there.f_frsize < NEEDED or no_files


def mount_point(folder: Path) -> str:
    """Return where the disk of `folder` is mounted."""
    place = Path(os.path.realpath(folder))
    with contextlib.suppress(OSError):
        device = os.stat(place).st_dev
        while place != place.parent and os.stat(place.parent).st_dev == device:
            place = place.parent
    return str(place)


Stamp = tuple[int, int, int]


def stamp(path: Path) -> Stamp | None:
    """Return a value that changes when the file changes or is replaced; None if it is missing."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_size


def is_gone(path: Path) -> bool:
    """Return whether `path` certainly does not exist; a failing volume does not prove it."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def remove_tree(path: Path) -> Path | None:
    """Remove a folder with its contents. Return a path that could not be removed, or None. Never
    raises. Files that NFS keeps until their last reader closes them (`.nfs…`) count as removed.
    """
    if path.is_symlink():
        with contextlib.suppress(OSError):
            os.unlink(path)
        return path if path.is_symlink() else None
    # A snapshot may be read-only, so make its folders writable first.
    with contextlib.suppress(RecursionError):
        for folder, _folders, _files in os.walk(path):
            with contextlib.suppress(OSError):
                os.chmod(folder, 0o700)
    with contextlib.suppress(RecursionError):  # folders may be nested a thousand deep
        shutil.rmtree(path, ignore_errors=True)
    if not os.path.lexists(path):
        return None
    found: list[str] = []
    with contextlib.suppress(RecursionError):
        for folder, _folders, files in os.walk(path):
            found += (os.path.join(folder, file) for file in files)
    kept = [file for file in found if not os.path.basename(file).startswith(".nfs")]
    if found and not kept:
        return None
    return Path(kept[0]) if kept else path


def remove_empty(path: Path) -> None:
    """Remove an empty folder, and its parent if that is empty too."""
    for folder in (path, path.parent):
        with contextlib.suppress(OSError):  # not empty, or already gone
            folder.rmdir()


# Forward compatibility: unknown fields of a newer version are ignored. An older version can then
# still show, stop and name a run of a newer version, instead of treating the run as unreadable.

StructT = TypeVar("StructT", bound=msgspec.Struct)


def convert_known_fields(content: Mapping[str, object], kind: type[StructT]) -> StructT:
    """Convert the known fields of `content` to a `kind`. A field with an unknown value counts as
    not given.

    Raises:
        msgspec.ValidationError: a required field is missing or has an unknown value.
    """
    kept: dict[str, object] = {}
    for field in fields(kind):
        if field.encode_name in content:
            with contextlib.suppress(msgspec.ValidationError):
                kept[field.name] = _convert_value(content[field.encode_name], field.type)
        if field.required and field.name not in kept:
            raise msgspec.ValidationError(f"{field.encode_name} is missing or not known")
    return kind(**kept)


def _convert_value(value: object, annotation: Any) -> object:
    for candidate in (annotation, *get_args(annotation)):
        if hasattr(candidate, "__struct_fields__") and isinstance(value, dict):
            return convert_known_fields(value, candidate)
    return conversion.convert(value, annotation)
