"""The supervisor of one run: feeds what it sees to the lifecycle and carries out what that decides.

Promises to be the only writer of `status.json`, to hold the run's lock as long as it lives, to take
every task with it when it dies, and to leave nothing behind when the run is over. It sleeps until
something happens or a time that was asked for has come. It never runs the user's code and decides
nothing itself.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ... import state_files
from ...i18n import _, mark
from ...lifecycle import Decision, Observation, decide
from ...progress.checkpoint_state import newest_checkpoint
from ...spec import Spec, Status, Stop
from . import clock, ports
from .crew import Crew
from .presence import Presence
from .publisher import Publisher
from .recorder import Recorder
from .store import RunFolder
from .wakeups import Wakeups

TERMINATED = mark(
    "its supervisor was asked to end (SIGTERM: the machine shuts down, or somebody sent it)"
)
REMOVED = mark("its record was removed")
PATROL = 5.0
"""Seconds after which it looks round although nothing happened: nobody tells when its folder is
removed, or that a client wrote a stop and died, and the kernel takes no sleep of weeks.
"""


class Supervisor:
    """One run, from its first task to its last."""

    def __init__(self, folder: RunFolder, lock_fd: int) -> None:
        """Reserve the ports and publish them. Raises OSError."""
        cluster = folder.load()
        # A launch that was interrupted is undone, and the next one may have the folder by now.
        folder.load_record()
        if cluster is None or not os.path.samestat(os.stat(folder.lock_file), os.fstat(lock_fd)):
            raise RuntimeError(f"{folder.record_file} is not the record of this run")
        self._folder, self._name = folder, cluster.metadata.name
        self._integrity = Presence(folder, cluster.metadata.uid, lock_fd)
        self._spec: Spec = cluster.spec
        self._wakeups = Wakeups(folder.control)
        addresses, self._held_ports = ports.reserve(self._spec.replicas.counts)
        described = state_files.load(folder.task_file, dict[str, object])
        text = msgspec.json.encode({**described, "addresses": addresses})
        state_files.write(folder.task_file, text)
        self._integrity.remember(folder.task_file, text)
        with contextlib.suppress(FileNotFoundError):  # there are no GPUs
            self._integrity.remember(folder.gpus_file, state_files.content(folder.gpus_file))
        self._status: Status = replace(cluster.status, addresses=addresses)
        self._output = Path(self._status.paths["output"])
        self._task_group = Crew(
            folder, cluster.metadata.uid, self._spec, self._output, self._wakeups.report_fd
        )
        self._publisher = Publisher(folder, self._integrity)
        self._recorder = Recorder(folder, self._name, self._spec, self._status)
        self._integrity.remember(folder.status_file, folder.write_status(self._status))

    def run(self) -> None:
        """Work until the run is over and everything is given back."""
        self._take_stop(None)
        while True:
            decision = self._turn()
            if decision.done:
                self._task_group.clean_up()
            self._publisher.put(self._status, urgent=decision.done)
            if decision.done and self._publisher.settled:
                if not self._integrity.is_lost:
                    self._folder.clear()
                return
            self._sleep(decision.wake_at)

    def _turn(self) -> Decision:
        """Decide, and do it; again at once when that started something."""
        while True:
            checkpoint = newest_checkpoint(self._output) if self._task_group.has_failures else None
            seen = Observation(
                tasks=self._task_group.observe(),
                checkpoint=checkpoint,
                cores=self._task_group.cores,
                used=self._task_group.used,
            )
            now = clock.now()
            decision = decide(self._spec, self._name, self._status, seen, now)
            self._recorder.note(now, seen, self._spec.stop, decision)
            self._status = decision.status
            self._task_group.end(decision.stop)
            for wanted in decision.start:
                self._task_group.start(wanted)
            if not decision.start:
                return decision

    def _sleep(self, wake_at: float | None) -> None:
        due = (clock.now() + PATROL, wake_at, self._task_group.due, self._publisher.due)
        woken = self._wakeups.wait(min(at for at in due if at is not None))
        self._task_group.take_reports(woken.reports)
        if woken.children:
            self._task_group.reap()
        self._task_group.enforce_limits()
        self._integrity.restore()
        self._wakeups.renew()
        if woken.terminate:
            self._take_stop(Stop(reason=_(TERMINATED), by=_("this machine"), at=clock.now()))
        elif self._integrity.is_lost:
            self._take_stop(Stop(reason=_(REMOVED), by=_("this machine"), at=clock.now()))
        else:  # also without a knock: who wrote a stop may have died before it could knock
            self._take_stop(woken.stop)

    def _take_stop(self, asked: Stop | None) -> None:
        """Make a stop request, the written one first, part of the spec; the first one counts."""
        if self._spec.stop is not None:
            return
        stop = state_files.read(self._folder.stop_file, Stop) or asked
        if stop is not None:
            self._spec = replace(self._spec, stop=stop)


def main(path: str, lock_fd: int, ready_fd: int) -> None:
    """Supervise the run in `path`; `lock_fd` holds its lock, `ready_fd` is told when it is
    known.
    """
    os.set_inheritable(lock_fd, False)
    os.set_inheritable(ready_fd, False)
    try:
        supervisor = Supervisor(RunFolder(Path(path)), lock_fd)
        with contextlib.suppress(BrokenPipeError):  # the launcher has left
            os.write(ready_fd, b"1")
        os.close(ready_fd)
        supervisor.run()
    except BaseException:  # noqa: BLE001 - readers look for the last words in supervisor.log
        with contextlib.suppress(OSError):
            traceback.print_exc(file=sys.stdout)
            sys.stdout.flush()
        os._exit(1)
    os._exit(0)  # nothing is left to finalise, and that would cost time
