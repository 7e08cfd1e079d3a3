"""Starts the supervisor of a run as a process of its own, and waits until it has taken over.

Promises that the supervisor survives the kernel, the terminal and the notebook server, that the
run's lock goes over to it without a moment in which nobody holds it, and that an error in its start
is told with its last words. It never writes into the run's folder but the supervisor's log.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import msgspec

from ...errors import BackendUnavailable
from ...i18n import VARIABLE, _, asked
from .repair import last_words
from .store import RunFolder
from .tasks import scrub

PATIENCE = 30.0
"""Seconds to wait for a supervisor to say that it is up; a slow one is left alone then, its lock
tells.
"""
_BOOTSTRAP = Path(__file__).with_name("__main__.py")


def interpreter() -> str:
    """The Python that runs supervisors and tasks: the one that launches.

    Raises:
        BackendUnavailable: this Python does not know its own executable.
    """
    if not sys.executable:
        raise BackendUnavailable(
            _("this Python does not know its own executable: start it by its full path")
        )
    return sys.executable


def start(folder: RunFolder, lock_fd: int) -> None:
    """Start the supervisor of `folder`, which inherits `lock_fd`.

    Raises:
        BackendUnavailable: it could not be started, or ended at once.
    """
    ready, tell = os.pipe()
    try:
        with open(folder.supervisor_log, "ab") as log:
            process = subprocess.Popen(
                [
                    interpreter(),
                    "-I",
                    "-S",
                    str(_BOOTSTRAP),
                    str(folder.path),
                    str(lock_fd),
                    str(tell),
                    *_import_path(),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={**scrub(os.environ), **_language()},
                pass_fds=(lock_fd, tell),
                start_new_session=True,
            )
        os.close(tell)
        tell = -1
        process.wait()  # the first of the two forks; it ends at once
        if _says_something(ready) and not os.read(ready, 1):
            words = last_words(folder, lines=1)
            raise BackendUnavailable(
                _("the supervisor of this run could not start: {why}").format(why=words)
            )
    except OSError as error:
        raise BackendUnavailable(
            _("the supervisor of this run could not start: {why}").format(why=error)
        ) from None
    finally:
        os.close(ready)
        if tell >= 0:
            os.close(tell)


def _language() -> dict[str, str]:
    """The supervisor's sentences are in the language of who launches: of a request, say."""
    wanted = asked()
    return {} if wanted is None else {VARIABLE: wanted}


def _says_something(ready: int) -> bool:
    """Whether there is something to read, or an end, within PATIENCE."""
    poll = select.poll()  # unlike select(), it takes the high descriptors of a busy kernel
    poll.register(ready, select.POLLIN)
    return bool(poll.poll(PATIENCE * 1000))


def _import_path() -> list[str]:
    """Where the supervisor finds this package and the one that it needs."""
    package = Path(__file__).resolve().parents[3]
    return list(dict.fromkeys([str(package), str(Path(msgspec.__file__).resolve().parents[1])]))
