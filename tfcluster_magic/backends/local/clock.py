"""The clock process of an account, which launches the runs of schedules at their due times and
sleeps in between.

A lock allows only one clock process. The process survives the shell that started it, and ends when
there is neither a schedule nor a notification rule. The process also sends the notifications
(`notification_work`). Before each launch, it writes the due time and the name of the run into the
schedule's status. A later clock process that finds an unfinished launch in a status continues the
launch. If a run with this name and due time exists, the launch counts as done. Launches happen in
forked children, one at a time for each schedule, so that the modules that a launch imports do not
stay in the memory of this process. If a schedule applies advice about resources (`advised`), the
children also evaluate the usage of the last run. If the advice would prevent a launch, the launch
happens without the advice.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ... import state_files
from ...errors import (
    InvalidRequest,
    NameTaken,
    NotFound,
    PreflightRefused,
    SetupRefused,
    TFClusterError,
    one_line,
)
from ...launch import LaunchRequest
from ...schedules import (
    Occurrence,
    OccurrenceState,
    Schedule,
    ScheduledLaunch,
    ScheduleStatus,
    placeholders,
)
from ...schedules.cron import CronTimes
from ...schedules.due import (
    RunOutcome,
    ScheduleTurn,
    due,
    failed,
    launched,
    no_room,
    previous_success,
    run_to_judge,
    settle,
)
from ...spec import AdvisedOption, Message, ScheduledRun, Stop, names
from . import lost_supervisor, notification_work, schedule_store, supervisor_events
from .notification_store import has_rules
from .run_store import RunFolder, Store
from .schedule_store import LocalSchedules, with_status
from .supervisor_events import SupervisorEvents

if TYPE_CHECKING:
    from .backend import LocalBackend

LOOK_INTERVAL = 1.0
"""Seconds between two checks of active runs."""
LONGEST_SLEEP = 60.0
"""Maximum seconds until the clock process reads the machine's clock again, because the clock may
have been set.
"""
_PATIENCE = 5.0
"""Maximum seconds between two readings of a run's files. They are read even if none has changed,
because the run's supervisor may have died.
"""
_MOST_NAMES = 1000

Now = Callable[[], float]


class Clock:
    """The work of the clock process, for one state folder.

    Args:
        state_dir: the folder of records.
        now: returns the time; tests use a faster clock.
    """

    def __init__(self, state_dir: Path, now: Now = time.time) -> None:
        self._state_dir = state_dir
        self._now = now
        self._schedules = LocalSchedules(state_dir, knocks=False)
        self._runs = Store(state_dir)
        self._children: dict[int, str] = {}
        self._seen: dict[str, tuple[object, float, RunOutcome]] = {}
        self._judged: dict[str, str] = {}
        """By schedule: the run that a child was last asked to look at."""
        self._events = SupervisorEvents(schedule_store.control_file(state_dir))
        self._notices = notification_work.NotificationWatch(state_dir, now)
        self.lock_fd = -1
        self.was_ended = False
        self._notice_problem = ""

    def run(self) -> None:
        """Work until no schedule and no notification rule is left, or until SIGTERM arrives."""
        while True:
            wake_at = self.look()
            if wake_at is None and not self._children:
                return
            until = supervisor_events.steady_now() + min(
                LONGEST_SLEEP,
                max(0.0, (float("inf") if wake_at is None else wake_at) - self._now()),
            )
            woken = self._events.wait(until)
            if woken.terminate:
                self.was_ended = True
                return
            if woken.children:
                self._reap()
            self._events.renew()

    def look(self) -> float | None:
        """Do the work that is due for each schedule and for notifications. Return the time of the
        next check; None if there are no schedules and no notification rules.
        """
        wakes, schedules = [], []
        for folder in self._schedules.folders():
            schedule = folder.load()
            if schedule is None:
                continue
            wakes.append(float("inf"))
            schedules.append(schedule)
            if schedule.status.problem and schedule.status.cursor > self._now() + 1e9:
                continue
            with contextlib.suppress(NotFound):
                wakes.append(self._turn(schedule))
        wakes += self._notify(schedules)
        return min(wakes, default=None)

    def _notify(self, schedules: list[Schedule]) -> list[float]:
        """Start sending the due messages. Return a list with the time of the next check; empty if
        there are no rules. Errors are only logged, so that the work on schedules continues.
        """
        try:
            rules, wake_at = self._notices.look(schedules)
            for rule in rules:
                self._send(rule)
        except Exception as error:  # noqa: BLE001 - the traceback is in clock.log
            if repr(error) != self._notice_problem:
                traceback.print_exc(file=sys.stdout)
                sys.stdout.flush()
            self._notice_problem = repr(error)
            return [self._now() + LONGEST_SLEEP]
        self._notice_problem = ""
        return [] if wake_at is None else [wake_at]

    def _send(self, rule: str) -> None:
        """Start a child that sends the due messages of a rule, unless such a child is running."""
        label = f"notify {rule}"
        if label not in self._children.values():
            self._notices.begins(rule)
            state_dir, now = self._state_dir, self._now
            self._fork(label, lambda: notification_work.send_due(state_dir, rule, now))

    def _turn(self, schedule: Schedule) -> float:
        """Handle one schedule; return the time of its next check."""
        now, turns = self._now(), list[ScheduleTurn]()
        busy = schedule.name in self._children.values()

        def decide(before: Schedule) -> Schedule:
            outcomes = {
                each.run: self._outcome(each)
                for each in before.status.occurrences
                if each.state is OccurrenceState.RUNNING
            }
            status = settle(before.rules, before.status, outcomes, now)
            turns[:] = [due(before.rules, status, now, self._schedules.find)]
            return with_status(before, replace(turns[0].status, problem=""))

        try:
            if decide(schedule) != schedule:
                schedule = self._schedules.change(schedule.name, decide)
        except InvalidRequest as error:  # a time zone that the system no longer has
            problem = str(error)
            if schedule.status.problem != problem:
                self._schedules.change(schedule.name, lambda before: _with_problem(before, problem))
            return float("inf")
        (turn,) = turns
        judging = run_to_judge(schedule.rules, schedule.status)
        is_new = bool(judging) and self._judged.get(schedule.name) != judging
        if (turn.launch or turn.stop or is_new) and not busy:
            name, stop = schedule.name, turn.stop
            self._judged[name] = judging
            self._fork(name, lambda: carry_out(self._schedules, name, stop, self._now))
        wakes = [turn.wake_at] if turn.wake_at is not None else []
        if turn.awaits or any(
            each.state is OccurrenceState.RUNNING for each in schedule.status.occurrences
        ):
            wakes.append(self._now() + LOOK_INTERVAL)
        return min(wakes, default=float("inf"))

    def _outcome(self, occurrence: Occurrence) -> RunOutcome:
        """Return the outcome of the run that was launched for a due time. The outcome may change
        while the run is active.
        """
        cluster, number = names.parse_ref(occurrence.run)
        folder = self._runs.folder(cluster, number or 0)
        stamp, at = _stamps(folder), time.monotonic()
        known = self._seen.get(occurrence.run)
        if known is not None and known[0] == stamp and at - known[1] < _PATIENCE:
            return known[2]
        found = lost_supervisor.load_run(folder)
        if found is None:
            gone = state_files.is_gone(folder.record_file)
            outcome = RunOutcome(None) if gone or known is None else known[2]
        elif found.status.phase.is_final:
            began = not lost_supervisor.is_interrupted_launch(found.status)
            outcome = RunOutcome.ended(occurrence.run, found.status, began=began)
        else:
            outcome = RunOutcome(found.status.phase)
        self._seen = {name: each for name, each in self._seen.items() if at - each[1] < 3600}
        self._seen[occurrence.run] = (stamp, at, outcome)
        return outcome

    def _fork(self, label: str, work: Callable[[], None]) -> None:
        pid = os.fork()
        if pid:
            self._children[pid] = label
            return
        code = 1
        try:
            self._become_child()
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - the child must not continue as a second clock
            with contextlib.suppress(OSError):
                traceback.print_exc(file=sys.stdout)
                sys.stdout.flush()
        finally:
            os._exit(code)

    def _become_child(self) -> None:
        """Release the clock's lock and signal handlers in a forked child."""
        if self.lock_fd >= 0:
            os.close(self.lock_fd)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, _status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                self._children.pop(pid, None)


def _with_problem(schedule: Schedule, problem: str) -> Schedule:
    return with_status(schedule, replace(schedule.status, problem=problem))


def _stamps(folder: RunFolder) -> tuple[state_files.Stamp | None, ...]:
    return state_files.stamp(folder.record_file), state_files.stamp(folder.status_file)


# -- launching -------------------------------------------------------------------------------------


def carry_out(schedules: LocalSchedules, name: str, stop: tuple[str, ...], now: Now) -> None:
    """Do the pending work of the schedule `name`: stop the runs in `stop`, evaluate the usage of
    the last run, and launch the runs of all due times whose state in the schedule's status is
    LAUNCHING. Only one process at a time does this for a schedule.
    """
    from .backend import LocalBackend  # a launch imports much that the clock process does not need

    folder = schedules.folder(name)
    with state_files.locked(folder.launch_lock):
        schedule = schedules.get(name)
        places = (schedule.launch.data_dir, schedule.launch.log_dir)
        data_dir, log_dir = (Path(place) if place else None for place in places)
        backend = LocalBackend(schedules.state_dir, data_dir, log_dir)
        for run in stop:
            with contextlib.suppress(NotFound):
                backend.stop(run, Stop(reason=_REPLACED, by=f"schedule {name}", at=time.time()))
        if run := run_to_judge(schedule.rules, schedule.status):
            schedule = _judge(schedules, backend, schedule, run)
        for each in schedule.status.occurrences:
            if each.state is OccurrenceState.LAUNCHING:
                _launch(schedules, backend, schedule, each, now)


_REPLACED = "its schedule replaces it by the run of a later due time"


def _judge(
    schedules: LocalSchedules, backend: LocalBackend, schedule: Schedule, run: str
) -> Schedule:
    """Return the schedule with advice for its next runs, computed from the usage of the ended run
    `run`.
    """
    from ...usage import samples, schedule_advice

    found = None
    with contextlib.suppress(TFClusterError):  # the run's record is gone or damaged
        named = backend.get(run)
        origin = named.metadata.scheduled
        found = named if origin is not None and origin.uid == schedule.uid else None
    read: dict[str, list[samples.Attempt]] = {}
    if found is not None and (output := found.status.paths.get("output")):
        counts = found.spec.replicas.counts
        tasks = [names.task_name(kind, i) for kind in counts for i in range(counts[kind])]
        read = samples.read_samples(output, tasks)
    return schedules.change(
        schedule.name,
        lambda now: with_status(
            now, schedule_advice.judge(now.status, run, found, read, os.cpu_count())
        ),
    )


def _launch(
    schedules: LocalSchedules,
    backend: LocalBackend,
    schedule: Schedule,
    occurrence: Occurrence,
    now: Now,
) -> None:
    """Launch the run of one due time. The run's name is written into the schedule's status before
    the launch; a name that is already there is used again.
    """
    rules, cluster = schedule.rules, schedule.launch.cluster

    def note(change: Callable[[ScheduleStatus], ScheduleStatus]) -> None:
        schedules.change(schedule.name, lambda now: with_status(now, change(now.status)))

    def give_up(error: TFClusterError) -> None:
        why = Message("ScheduleNotLaunched", {"why": str(error)})
        if isinstance(error, PreflightRefused) and not isinstance(error, SetupRefused):
            note(lambda status: no_room(status, occurrence, why, now()))
        else:
            note(lambda status: failed(rules, status, occurrence, why, now()))

    run = occurrence.run
    for _name in range(_MOST_NAMES):
        if not run:
            run = names.run_name(cluster, backend.next_number(cluster))
            note(lambda status: launched(status, occurrence, run, now(), created=False))  # noqa: B023 - `note` calls the lambda before `run` changes
        try:
            occurrence = replace(occurrence, advice=_create(backend, schedule, occurrence, run))
        except NameTaken:  # another launch took the name first
            run = ""
        except TFClusterError as error:
            give_up(error)
            return
        else:
            note(lambda status: launched(status, occurrence, run, now(), created=True))  # noqa: B023
            return


def _create(
    backend: LocalBackend, schedule: Schedule, occurrence: Occurrence, run: str
) -> Message | None:
    """Create the run for one due time of a schedule. If the launch is refused with the advice about
    resources, create the run without the advice. Return a message that lists the options that the
    advice has changed, or that says why the advice was not applied. Return None if there was
    nothing to change. Raises the errors of a launch.
    """
    from ...usage import schedule_advice

    with _own_launch(schedule) as own:
        takes = schedule.status.advised if schedule.rules.advised else ()
        advised = schedule_advice.in_force(own.spec, takes)
        try:
            changed = own
            if advised:
                changed = replace(own, spec=schedule_advice.with_advice(own.spec, advised))
            made = backend.create(_request(schedule, changed, occurrence, run, advised))
        except NameTaken:
            raise
        except TFClusterError as error:
            if not advised:
                raise
            told = schedule_advice.refusal(advised, one_line(str(error)))
            plain = replace(own, warnings=(*own.warnings, str(told)))
            backend.create(_request(schedule, plain, occurrence, run, ()))
            return told
    taken = made.metadata.scheduled.advised if made.metadata.scheduled else None
    return schedule_advice.changes(taken) if taken else None


@contextlib.contextmanager
def _own_launch(schedule: Schedule) -> Iterator[ScheduledLaunch]:
    """Yield what a schedule launches, without any advice about resources. If the schedule tracks
    its program (`track`), the program is read again from its current files. Otherwise the stored
    snapshot of the program is used.

    Raises:
        InvalidRequest: the current files can no longer be launched.
    """
    from ...launch.planning import request_launch
    from ...program import snapshots

    launch = schedule.launch
    if not launch.track:
        yield launch
        return
    with contextlib.ExitStack() as kept:
        scratch = kept.enter_context(snapshots.scratch_folder())
        words: dict[str, Any] = msgspec.structs.asdict(launch.words)
        options = words.pop("options")
        program, arguments = words.pop("program"), words.pop("arguments")
        words |= {"folder": Path(launch.words.folder), "name": launch.cluster, **options}
        made = request_launch(scratch, program, arguments, **words)
        kept.enter_context(snapshots.keep_snapshot(made.spec.program, scratch))
        yield replace(launch, spec=made.spec, warnings=made.warnings, inferred=made.inferred)


def _request(
    schedule: Schedule,
    launch: ScheduledLaunch,
    occurrence: Occurrence,
    run: str,
    advised: tuple[AdvisedOption, ...],
) -> LaunchRequest:
    """Return the request that launches the run `run` for one due time of a schedule.

    Raises:
        InvalidRequest: the launch is invalid after its placeholders were filled in.
    """
    from ...launch import validation

    local = CronTimes(schedule.rules.cron, schedule.rules.time_zone).local
    before = previous_success(schedule.status, occurrence.due)
    due_at = local(occurrence.due)
    scheduled = ScheduledRun(
        schedule=schedule.name,
        uid=schedule.uid,
        due=occurrence.due,
        attempt=occurrence.attempt,
        local=placeholders.iso_text(due_at),
        advised=advised if schedule.rules.advised else None,
    )
    spec = placeholders.fill_in(launch.spec, due_at, None if before is None else local(before))
    return LaunchRequest(
        cluster=launch.cluster,
        spec=validation.validate(msgspec.to_builtins(spec)),
        warnings=launch.warnings,
        inferred=launch.inferred,
        run=names.parse_ref(run)[1],
        scheduled=scheduled,
    )


# -- the process -----------------------------------------------------------------------------------


def main(path: str, now: Now = time.time) -> None:
    """Run as the clock process of the state folder `path`, unless one is running."""
    if os.fork():
        os._exit(0)
    state_dir = Path(path)
    try:
        while (fd := schedule_store.take_clock_lock(state_dir)) is not None:
            with contextlib.suppress(OSError):  # a full disk: go on without the pid
                os.ftruncate(fd, 0)
                os.pwrite(fd, str(os.getpid()).encode(), 0)
            clock = Clock(state_dir, now)
            clock.lock_fd = fd
            clock.run()
            os.close(fd)
            # A process that created a schedule just now may have found the lock taken, and then
            # started no clock process: check again.
            left = LocalSchedules(state_dir, knocks=False).list() or has_rules(state_dir)
            if clock.was_ended or not left:
                break
    except BaseException:  # noqa: BLE001 - the traceback is in clock.log
        with contextlib.suppress(OSError):
            traceback.print_exc(file=sys.stdout)
            sys.stdout.flush()
        os._exit(1)
    os._exit(0)
