"""What has to be true before the child starts: the folder is there, names resolve, checkpoints too.

Runs in a thread, because a volume or a name server may hang and SIGTERM must be answered still.
Standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

import _thread
import os
import select
import time

from checkpoints import copy_checkpoints, wait_for_copy
from taskconfig import ConfigError, TaskConfig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from loop import Loop

# How long names may stay unresolved and the copy of checkpoints unfinished, in seconds.
PATIENCE = 600.0
QUIET_SECONDS = 2.0


class Preparation:
    """The thread's work and what it says; `finished` and `problem` are set from the loop."""

    def __init__(self, config: TaskConfig, loop: Loop, say: Callable[[str], None]) -> None:
        self.finished = False
        self.problem = ""
        self._config = config
        self._loop = loop
        self._say = say
        self._lines: list[str] = []
        self._result: list[str] = []
        self._told, self._tell = os.pipe()
        loop.on_fd(self._told, select.POLLIN, self._heard)
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        problem = ""
        try:
            self._prepare()
        except ConfigError as error:
            problem = str(error)
        except Exception as error:  # the task must end with a reason, never wait on
            problem = f"cannot prepare the task: {error!r}"
        self._result.append(problem)
        os.write(self._tell, b".")

    def _heard(self) -> None:
        os.read(self._told, 512)
        while self._lines:
            self._say(self._lines.pop(0))
        if self._result:
            self._loop.off_fd(self._told)
            self.problem, self.finished = self._result[0], True

    def _later(self, text: str) -> None:
        self._lines.append(text)
        os.write(self._tell, b".")

    def _prepare(self) -> None:
        config = self._config
        patience = float(os.environ.get("TFCLUSTER_PATIENCE") or PATIENCE)
        try:
            os.makedirs(config.output_dir, exist_ok=True)
        except OSError as error:
            problem = f"cannot make the output folder {config.output_dir}: {error.strerror}"
            raise ConfigError(problem) from None
        wait_for_names(config.hosts, patience, self._later)
        if config.resume_from and not config.in_graph:
            if config.copies_checkpoints:
                copy_checkpoints(config.resume_from, config.output_dir, self._later)
            else:
                wait_for_copy(config.output_dir, patience)


def wait_for_names(hosts: list[str], patience: float, say: Callable[[str], None]) -> None:
    """Return once every host has an address. Raises ConfigError naming those that have none."""
    missing = [host for host in hosts if not _is_address(host)]
    if not missing:
        return
    import socket

    def has_address(name: str) -> bool:
        try:
            return bool(socket.getaddrinfo(name, None))
        except OSError:
            return False

    started, pause, told = time.monotonic(), 0.1, False
    while True:
        missing = [name for name in missing if not has_address(name)]
        if not missing:
            return
        shown = ", ".join(missing[:3])
        if len(missing) > 3:
            shown += f" and {len(missing) - 3} more"
        waited = time.monotonic() - started
        if waited > patience:
            raise ConfigError(f"after {waited:.0f} s there is no address for {shown}")
        if waited > QUIET_SECONDS and not told:
            say(f"waiting for the address of {shown}")
            told = True
        # A name server has no event to wait for.
        time.sleep(pause)
        pause = min(2.0, pause * 1.5)


def _is_address(host: str) -> bool:
    return host == "localhost" or ":" in host or host.replace(".", "").isdigit()
