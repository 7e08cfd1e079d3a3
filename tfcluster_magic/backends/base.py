"""The interface of a backend; `tests/unit/backends/test_contract*.py` tests every backend.

A backend stores runs, and starts and ends their tasks. It never interprets user input (the user
interfaces and the manager do that) and never decides what a failure means (`lifecycle/` does that).
All methods are synchronous and thread-safe, answer from the stored records rather than from this
process's memory, and raise only `TFClusterError`s.
"""

from __future__ import annotations

import abc
import difflib
import heapq
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, overload

from .. import paths, state_files
from ..errors import Conflict, NameTaken, NotFound, Problem
from ..i18n import _
from ..launch import LaunchRequest
from ..notifications import (
    MOST_RULES,
    Delivery,
    NotificationPolicy,
    NotificationRule,
    TestRequest,
)
from ..quota.ledger import HoursAccount
from ..quota.preflight import Limit, Options, Preflight
from ..schedules import Schedule
from ..spec import Annotations, Spec, Stop, TaskState, TFCluster, names

if TYPE_CHECKING:
    from ..kube.objects.policy import Policy  # imports PyYAML and Jinja, which few commands need

__all__ = [
    "Backend",
    "KubectlPlace",
    "Limit",
    "LogLine",
    "Notifications",
    "Options",
    "Preflight",
    "Removed",
    "Schedules",
    "SeenTask",
]

Counts = Callable[[Sequence[str]], Sequence[bool]]
"""A function that returns for each of a task's consecutive lines whether it counts towards the
requested number of last lines. The answer for a line may depend on up to `LOOK_BEHIND` lines before
it.
"""
LOOK_BEHIND = 500


def every_line(texts: Sequence[str]) -> Sequence[bool]:
    """Return True for each line: every line counts (see `Counts`)."""
    return [True] * len(texts)


@dataclass(frozen=True)
class LogLine:
    """A line that a task printed, without its newline. `at` is when the line was printed, in
    seconds since the epoch; None if unknown.
    """

    task: str
    text: str
    at: float | None = None


def in_time_order(logs: Iterable[Iterable[LogLine]]) -> Iterator[LogLine]:
    """Merge the lines of several tasks by the time of printing; `logs` has one iterable for each
    task. Lines of the same task are never reordered, not even if they have no time.
    """

    def stamped(place: int, lines: Iterable[LogLine]) -> Iterator[tuple[float, int, LogLine]]:
        at = 0.0
        for line in lines:
            at = max(at, line.at or 0.0)
            yield at, place, line

    merged = heapq.merge(*(stamped(place, lines) for place, lines in enumerate(logs)))
    return (line for _at, _place, line in merged)


def check_output_removable(cluster: TFCluster, folder: Path) -> None:
    """Raise Conflict if a run's output in `folder` cannot be removed by this account."""
    if os.path.lexists(folder) and not os.access(folder.parent, os.W_OK | os.X_OK):
        raise Conflict(
            _(
                "the output of {name} in {folder} cannot be removed: you may not write in "
                "{parent}. Remove it where you may, or keep it: `tfcluster delete {name}`"
            ).format(name=cluster.metadata.name, folder=folder, parent=folder.parent)
        )


def remove_output(cluster: TFCluster, folder: Path) -> None:
    """Remove a run's output in `folder`. Raises Conflict if part of the output is left."""
    if (left := state_files.remove_tree(folder)) is not None:
        raise Conflict(
            _(
                "{left} could not be removed. Remove it by hand and delete {name} again, or keep "
                "what is left of its output: `tfcluster delete {name}`"
            ).format(left=left, name=cluster.metadata.name)
        )


@dataclass(frozen=True)
class SeenTask:
    """Facts about one task that are observed now and are not in its run's record.

    `node` is the machine that the task is or was on, `state` its observed state, `since` when that
    state began (seconds since 1970), and `line` the last line that it printed. A field is empty or
    None if it could not be observed.
    """

    name: str
    node: str = ""
    state: TaskState | None = None
    since: float | None = None
    line: LogLine | None = None


@dataclass(frozen=True)
class KubectlPlace:
    """A namespace in which kubectl creates a run's objects, without the operator.

    `policy` is the operator's policy for the namespace. Each sentence in `missing` says what would
    keep a run's objects in this namespace from working.
    """

    namespace: str
    policy: Policy
    missing: tuple[str, ...] = ()


class ClockService(NamedTuple):
    """The service that starts, on this machine, the clock process that launches the runs of
    schedules.
    """

    file: Path
    """The service's unit file."""
    lingers: bool
    """Whether the service starts with the machine; if not, it starts when its user logs in."""


class Schedules(abc.ABC):
    """The schedules of one user."""

    @abc.abstractmethod
    def list(self) -> list[Schedule]:
        """Return all schedules, sorted by name."""

    @abc.abstractmethod
    def get(self, name: str) -> Schedule:
        """Return the schedule of this name. Raises NotFound, which suggests similar names."""

    @abc.abstractmethod
    def create(self, schedule: Schedule) -> Schedule:
        """Store a new schedule. It takes effect at once.

        Raises:
            NameTaken: there is a schedule of this name.
        """

    @abc.abstractmethod
    def change(self, name: str, change: Callable[[Schedule], Schedule]) -> Schedule:
        """Call the function `change` with a schedule, and store the schedule that it returns.
        Concurrent changes are not lost. Exceptions that the function raises are passed on.

        Raises:
            NotFound: there is no such schedule.
        """

    @abc.abstractmethod
    def delete(self, name: str) -> None:
        """Remove a schedule with its history. The runs that it launched stay. Raises NotFound."""

    def track_problem(self) -> Problem | None:
        """Return why schedules of this backend cannot have the option `track`; None if they can
        have it. With this option, a schedule reads its program again at each due time.
        """
        return None

    @staticmethod
    def taken(name: str) -> NameTaken:
        """Return the error for a name that another schedule has already."""
        text = _(
            "there is a schedule {name}: choose another name, or change it with "
            "`tfcluster schedule update {name}`"
        )
        return NameTaken(text.format(name=name))


class Notifications(abc.ABC):
    """The notification rules of one user, and their deliveries."""

    @abc.abstractmethod
    def rules(self) -> list[NotificationRule]:
        """Return all rules with their secrets, the oldest first."""

    @abc.abstractmethod
    def change(self, change: Callable[[list[NotificationRule]], list[NotificationRule]]) -> None:
        """Call the function `change` with all rules, and store the rules that it returns.
        Concurrent changes are not lost. Exceptions that the function raises are passed on.
        """

    @abc.abstractmethod
    def policy(self) -> NotificationPolicy:
        """Return the administrator's policy, which limits the receivers of messages. Raises
        TFClusterError if it cannot be read.
        """

    def policy_place(self) -> str:
        """Return the name of the place at which the administrator's policy is written, for messages
        to the user.
        """
        return _("section notifications of your administrator's policy")

    @abc.abstractmethod
    def deliveries(self) -> Sequence[Delivery]:
        """Return all stored deliveries."""

    @abc.abstractmethod
    def test(self, rule: NotificationRule, request: TestRequest) -> None:
        """Send a test message once, and wait for the receiver's answer. Raises NotDelivered."""

    def get(self, name: str) -> NotificationRule:
        """Return the rule of this name. Raises NotFound, which suggests a similar name."""
        return _rule_of(name, self.rules())

    def add(self, rule: NotificationRule) -> None:
        """Store a rule. It takes effect at once.

        Raises:
            NameTaken: there is a rule of this name.
            Conflict: the user has the maximum number of rules.
        """

        def more(before: list[NotificationRule]) -> list[NotificationRule]:
            if any(each.name == rule.name for each in before):
                text = _("there is a rule {name}: choose another name, or remove it first")
                raise NameTaken(text.format(name=rule.name))
            if len(before) >= MOST_RULES:
                text = _("you have {most} rules, the maximum: remove one first")
                raise Conflict(text.format(most=MOST_RULES))
            return [*before, rule]

        self.change(more)

    def remove(self, name: str) -> None:
        """Remove a rule and cancel its pending messages. Raises NotFound."""

        def fewer(before: list[NotificationRule]) -> list[NotificationRule]:
            gone = _rule_of(name, before)
            return [each for each in before if each is not gone]

        self.change(fewer)

    def history(self, about: str | None = None) -> list[Delivery]:
        """Return the deliveries, newest first. With `about`, return only the deliveries about the
        run of this name; for a name without a number, those about the schedule and all runs of this
        name.
        """
        found = [
            each
            for each in self.deliveries()
            if about in (None, each.about, names.parse_ref(each.about)[0])
        ]
        return sorted(found, key=lambda each: (each.noted_at, each.about), reverse=True)


def _rule_of(name: str, there: Sequence[NotificationRule]) -> NotificationRule:
    for rule in there:
        if rule.name == name:
            return rule
    if close := difflib.get_close_matches(name, [each.name for each in there], 1):
        text = _("there is no rule {name}; did you mean {close}?")
        raise NotFound(text.format(name=name, close=close[0]))
    text = _("there is no rule {name}; `tfcluster notify list` shows all rules")
    raise NotFound(text.format(name=name))


@dataclass(frozen=True)
class Removed:
    """A run whose record was deleted; `Backend.watch` yields this object in a watch of all runs."""

    name: str


class Backend(abc.ABC):
    """A place in which clusters run, such as this machine or a Kubernetes namespace."""

    name: str
    is_here = False
    """Whether tasks run on this machine. If so, each task uses a Python that is installed here."""

    def workspace(self) -> Path:
        """Return a folder of the user that tasks can read at the same path. A program that is too
        large for a record is copied there.

        Raises:
            InvalidRequest: tasks see no folder of this machine.
        """
        return paths.home_dir()

    def unseen(self, folder: str) -> str | None:  # noqa: ARG002 - some backends use it
        """Return the reason why this process cannot read the output files of runs in `folder`; None
        if it can read them.
        """
        return None

    def graphs_url(self) -> str:
        """Return the address of the dashboard with graphs of all runs of this backend; empty if
        there is none.

        Raises:
            TFClusterError: the address cannot be read now.
        """
        return ""

    def outage(self) -> str:
        """Return a sentence that says why requests, such as launches and stops, are not carried out
        now; empty if they are carried out, or if this is unknown.
        """
        return ""

    def why_it_lingers(self, cluster: TFCluster) -> str:
        """Return the part of a message that says why a run that was asked to end may still have
        tasks.
        """
        return _(
            "its supervisor does not answer: it was stopped, or the volume with {files} hangs"
        ).format(files=cluster.status.paths.get("logs", _("its records")))

    def out_of_reach(self, cluster: TFCluster) -> str | None:  # noqa: ARG002 - some backends use it
        """Return the reason why this process cannot connect to the servers of an In-Graph run; None
        if it can connect.
        """
        return None

    def keep_time(self) -> None:  # noqa: B027 - only some backends need it
        """If there are schedules, make sure that a process is running that launches their due runs.
        Never raises.
        """

    @abc.abstractmethod
    def schedules(self) -> Schedules:
        """Return the schedules of the user. Raises BackendUnavailable."""

    def install_clock(self, remove: bool = False) -> ClockService | None:  # noqa: ARG002 - some backends use it
        """Install a service with which the system's service manager starts the clock process. With
        `remove`, delete the service.

        Returns:
            The service that was written or deleted; None if there was nothing to delete.

        Raises:
            Conflict: this backend needs no service, or this machine has no service manager.
            BackendUnavailable: the service manager refused.
        """
        raise Conflict(
            _(
                "on Kubernetes the operator launches what is due: nothing needs to be installed. "
                "For schedules on this machine use `--backend local`"
            )
        )

    @abc.abstractmethod
    def notifications(self) -> Notifications:
        """Return the notifications of the user."""

    @abc.abstractmethod
    def options(self) -> Options:
        """Return what a launch may request, and which resources are free now."""

    @abc.abstractmethod
    def preflight(self, spec: Spec) -> Preflight:
        """Return everything that now prevents a launch of `spec`. Creates nothing."""

    def kubectl_place(self, spec: Spec) -> KubectlPlace | None:  # noqa: ARG002 - some backends use it
        """Return the namespace in which kubectl would create the objects of a run of `spec`; None
        if this backend's tasks are not pods.
        """
        return None

    @abc.abstractmethod
    def hours(self) -> HoursAccount:
        """Return the budget of the user, and the CPU-hours and GPU-hours that the user's runs have
        reserved until now. The hours of deleted runs are included.
        """

    @abc.abstractmethod
    def bounded(self) -> HoursAccount | None:
        """If the user has a budget, return the same account as `hours`; otherwise return None."""

    @abc.abstractmethod
    def create(self, request: LaunchRequest) -> TFCluster:
        """Run preflight again, reserve name, run number and resources in one step, and start the
        run.

        Returns as soon as the record exists; the run is then Queued or Starting.

        Raises:
            NameTaken: the user chose the name, and a run of this name is active.
            PreflightRefused: there is no room for the run, or something that it needs is missing.
        """

    @abc.abstractmethod
    def next_number(self, cluster: str) -> int:
        """Return the number of the next run of this name. The number was never used, not even by a
        deleted run.
        """

    @abc.abstractmethod
    def list(self) -> list[TFCluster]:
        """Return all runs that have a record, newest first."""

    @abc.abstractmethod
    def get(self, ref: str) -> TFCluster:
        """Return the run `digits-2`, or the newest run of `digits`. Raises NotFound, which suggests
        similar names.
        """

    @abc.abstractmethod
    def stop(self, ref: str, stop: Stop) -> TFCluster:
        """Ask a run to end; return at once. A run that has ended does not change, except that its
        remaining parameter servers are ended now.
        """

    @abc.abstractmethod
    def annotate(self, ref: str, change: Callable[[Annotations], Annotations]) -> TFCluster:
        """Change the annotations of a run, in any phase. Concurrent changes are not lost.

        Args:
            ref: the run.
            change: makes the new annotations from the current ones. It is called again if another
                process wrote in the meantime; exceptions that it raises are passed on.
        """

    @abc.abstractmethod
    def check_delete(self, cluster: TFCluster, with_logs: bool) -> None:
        """Check, before a run is stopped, whether it could be deleted afterwards. Some obstacles
        cannot be known before the stop.

        Raises:
            Conflict: `delete` with the same `with_logs` would be refused.
        """

    @abc.abstractmethod
    def delete(self, ref: str, with_logs: bool = False) -> None:
        """Remove the record of an ended run, and with `with_logs` also the run's folder of logs and
        checkpoints. The folder is removed first, so that the deletion can be repeated if removing
        the folder failed.

        Raises:
            Conflict: the run still has tasks, or its output cannot be removed.
        """

    @abc.abstractmethod
    def logs(
        self,
        ref: str,
        tasks: Sequence[str] = (),
        follow: bool = False,
        tail: int | None = None,
        counts: Counts = every_line,
    ) -> Iterator[LogLine | None]:
        """Yield lines of these tasks (of all tasks if `tasks` is empty), starting with the last
        `tail` lines of each task.

        Lines of one task come in the order of printing. Lines of different tasks are also in this
        order if the backend knows when each line was printed. A line for which `counts` is false
        does not count towards `tail`, but is yielded.

        With `follow`, the iterator continues until the run has ended and every line that was
        printed before that was yielded. It does not wait for parameter servers that outlive the
        run. It yields `None` at least every 0.5 s, so that a caller can display lines, do other
        things, or stop. Lines about missing output begin with `tfcluster: `. Raises NotFound for an
        unknown task; the error names the existing tasks.
        """

    @abc.abstractmethod
    def observe_tasks(self, cluster: TFCluster, counts: Counts = every_line) -> Sequence[SeenTask]:
        """Return all tasks of a run as observed now, in the order of the record. `SeenTask.line` is
        a task's last line for which `counts` is true. Its text is empty if there is no such line.
        """

    @overload
    def watch(self, ref: str) -> Iterator[TFCluster | None]: ...

    @overload
    def watch(self, ref: None = None) -> Iterator[TFCluster | Removed | None]: ...

    @abc.abstractmethod
    def watch(self, ref: str | None = None) -> Iterator[TFCluster | Removed | None]:
        """Yield the run `ref` (without `ref`, every run) as it is now, and yield it again at most
        0.5 s after each change. In between, yield `None` at least every 0.5 s.

        A watch of all runs never ends and yields `Removed` for deleted runs. A watch of one run
        ends when the run is deleted, or when it has ended and released its resources.
        """
