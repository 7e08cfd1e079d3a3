"""A file that hangs whoever opens it, as one on a volume whose server is away."""

from __future__ import annotations

import os
from pathlib import Path


class Blocking:
    """A file that was replaced by a pipe which nobody writes to: to open it blocks."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._true = file.with_name("true")
        self._handle = file.with_name("handle")  # the pipe's other name, to end the block
        os.mkfifo(self._handle)
        os.link(file, self._true)
        pipe = file.with_name("pipe")
        os.link(self._handle, pipe)
        pipe.replace(file)

    def end(self) -> None:
        """The file is as it was, and who is blocked goes on."""
        self._true.replace(self.file)
        os.close(os.open(self._handle, os.O_RDWR))
        while True:
            try:
                os.close(os.open(self._handle, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:  # noqa: PERF203
                return  # nobody waits any more
