"""What has to be true before the child starts: the folder is there, names resolve, checkpoints too.

Runs in a thread, because a volume or a name server may hang and SIGTERM must be answered still.
Standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

import _thread
import errno
import os
import random
import select
import time

from checkpoints import copy_checkpoints, wait_for_copy
from host_names import exists
from ownership import take
from task_config import ConfigError, TaskConfig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from loop import Loop

# How long names may stay unresolved and the copy of checkpoints unfinished, in seconds.
PATIENCE = 600.0
# And names that may belong to tasks that have ended already: then the program starts all the same.
GO_ON = 30.0
QUIET_SECONDS = 2.0
# On Kubernetes names come when the last task has an address, at the latest ten seconds after the
# first (`operator/addressing.py`): what is usual is no news.
NAMES_QUIET_SECONDS = 12.0
SAMPLE = 32
"""Names that have to exist before all are asked for together; of few these are all."""
# How long a volume may answer with what it says while it recovers: GlusterFS, for one, gives a
# server that does not answer 42 s before it goes on without. What is left then, stays.
VOLUME_PATIENCE = 60.0
RECOVERING = {
    errno.EAGAIN,
    errno.EBUSY,
    errno.EEXIST,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.EIO,
    errno.ENOENT,
    errno.ENOTCONN,
    errno.ESTALE,
    errno.ETIMEDOUT,
}


class Preparation:
    """The thread's work and what it says; `finished` and `problem` are set from the loop."""

    def __init__(self, config: TaskConfig, loop: Loop, say: Callable[[str], None]) -> None:
        self.finished = False
        self.problem = ""
        self.owns_folder = False
        """Whether the output folder is there, and this run's."""
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
        make_folder(config.output_dir, config.owner, min(VOLUME_PATIENCE, patience), self._later)
        self.owns_folder = True
        hold_off = config.hold_off(dict(os.environ))
        if hold_off:
            self._later(f"waiting {hold_off:g} s: all workers start again together, or none")
            time.sleep(hold_off)
        needed = [host for host in config.hosts if config.needs(host, dict(os.environ))]
        wait_for_names(config.hosts, needed, patience, self._later)
        if config.resume_from and not config.in_graph:
            if config.copies_checkpoints:
                copy_checkpoints(config.resume_from, config.output_dir, self._later)
            else:
                wait_for_copy(config.output_dir, patience)


def make_folder(folder: str, owner: str, patience: float, say: Callable[[str], None]) -> None:
    """Make the output folder, for the run whose uid `owner` is. Raises ConfigError saying why not.

    Under load a network volume fails a call that it takes a moment later, so what may be over soon
    is tried again for `patience` seconds.
    """
    started, pause, told = time.monotonic(), 0.1, ""
    while True:
        try:
            os.makedirs(folder, exist_ok=True)
            if owner:
                take(folder, owner)
            return
        except OSError as error:
            why = f"{folder}: {error.strerror}"
            waited = time.monotonic() - started
            if error.errno not in RECOVERING or waited > patience:
                raise ConfigError(f"cannot make the output folder {why}") from None
            if waited > min(QUIET_SECONDS, patience / 2) and why != told:
                say(f"waiting for the output folder {why}")
                told = why
        time.sleep(pause)
        pause = min(2.0, pause * 1.5)


def wait_for_names(
    hosts: list[str], needed: list[str], patience: float, say: Callable[[str], None]
) -> None:
    """Return once every host has an address, or after GO_ON seconds those that are needed, if any
    has: while none has, nobody has given them names yet.

    Raises ConfigError naming those that have none.
    """
    names = Names([host for host in hosts if not _is_address(host)], needed)
    if not names.missing:
        return
    started, told = time.monotonic(), False
    while True:
        waited = time.monotonic() - started
        tells = waited > min(NAMES_QUIET_SECONDS, patience / 2) and not told
        late = waited > min(GO_ON, patience)
        names.ask(singly=late, every=tells)
        ends = names.missing and (
            waited > patience or (late and not names.lacks_needed and names.given)
        )
        if ends:
            names.ask(singly=True, every=True)  # to name those that have none
        if not names.missing:
            if told:
                say("every address is there")
            return
        if waited > patience and names.lacks_needed:
            raise ConfigError(f"after {waited:.0f} s there is no address for {names.shown}")
        if ends and not names.lacks_needed:
            say(f"going on without the address of {names.shown}: it has ended, or is not there yet")
            return
        if tells:
            say(f"waiting for the address of {names.shown}")
            told = True
        # A name server has no event to wait for.
        time.sleep(min(2.0, max(0.1, waited / 5)))


class Names:
    """Names without an address yet. 600 tasks that ask for 600 names each are too many questions:
    the name that all are below (of a headless Service) has an address for each of them, so one
    answer tells that all are there; until then the first that is missing tells enough. An answer
    that lacks some may be kept as long as none: so it is asked for once a SAMPLE of them exists.
    """

    def __init__(self, names: list[str], needed: list[str]) -> None:
        self._needed = set(needed)
        self._count = len(names)
        above = {name.partition(".")[2] for name in names}
        self._above = above.pop() if len(above) == 1 else ""
        self.missing = sorted(names, key=lambda name: name not in self._needed)
        self._sample = random.sample(names, min(SAMPLE, len(names)))

    @property
    def lacks_needed(self) -> bool:
        """Whether one is missing that is needed; these are asked for first."""
        return bool(self.missing) and self.missing[0] in self._needed

    @property
    def shown(self) -> str:
        """The first three, for a message."""
        more = f" and {len(self.missing) - 3} more" if len(self.missing) > 3 else ""
        return ", ".join(self.missing[:3]) + more

    @property
    def given(self) -> bool:
        """Whether the name that all are below is there, as far as anybody says."""
        return not self._above or exists(self._above) is not False

    def ask(self, singly: bool, every: bool) -> None:
        """Ask for all together, then `singly` or where that tells nothing for one after the other:
        until the first that has no address, or for `every` one.
        """
        together = 0
        if self._above and self._count > 1:
            if self._sampled():
                together = _addresses(self._above)
            elif not singly and not every:
                return
        if together >= self._count:
            self.missing = []
        elif singly or every or not together:
            left = []
            for place, name in enumerate(self.missing):
                if exists(name) is not False and _addresses(name):
                    continue
                left.append(name)
                if not every:
                    left += self.missing[place + 1 :]
                    break
            self.missing = left

    def _sampled(self) -> bool:
        while self._sample and exists(self._sample[-1]) is not False:
            self._sample.pop()
        return not self._sample


def _addresses(name: str) -> int:
    """How many addresses a name has, of the kind of which it has more."""
    import socket

    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return 0
    kinds = (socket.AF_INET, socket.AF_INET6)
    return max(len({each[4][0] for each in found if each[0] == kind}) for kind in kinds)


def _is_address(host: str) -> bool:
    return host == "localhost" or ":" in host or host.replace(".", "").isdigit()
