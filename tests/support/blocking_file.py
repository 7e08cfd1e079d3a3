"""A file that blocks its readers, like one on a volume whose server is down."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

_CLASS_CONTENT, _CLOEXEC = 0x04, 0x01
_ADD, _OPEN_PERM = 0x01, 0x00010000
_AT_FDCWD = -100


class Blocking:
    """A file whose open() blocks, because the kernel asks a program that does not answer. A pipe
    would not do, because the product never waits for a pipe. Ref: fanotify(7), which needs root.
    """

    def __init__(self, file: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._asked = libc.fanotify_init(_CLASS_CONTENT | _CLOEXEC, os.O_RDONLY | os.O_CLOEXEC)
        if self._asked < 0:
            pytest.skip(f"no file can be made to hang: {os.strerror(ctypes.get_errno())}")
        mask, path = ctypes.c_uint64(_OPEN_PERM), os.fsencode(file)
        if libc.fanotify_mark(self._asked, _ADD, mask, _AT_FDCWD, path):
            os.close(self._asked)
            pytest.skip(f"{file} cannot be made to hang: {os.strerror(ctypes.get_errno())}")
        os.utime(file)  # make readers that have a cached copy read again

    def end(self) -> None:
        """Restore the file and release blocked readers."""
        os.close(self._asked)
