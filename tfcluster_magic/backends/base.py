"""The few verbs that touch a world. Every backend passes `tests/unit/backends/test_contract*.py`
unchanged.

A backend stores runs and makes the world match them; it never interprets a user's words (the faces
and the manager do) and never decides what a failure means (`lifecycle/` does). All methods are
synchronous, safe to call from several threads, answer from the record (never from memory of this
process), and raise only `TFClusterError`s.
"""

from __future__ import annotations

import abc
import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, overload

from .. import paths
from ..i18n import _
from ..launch import LaunchRequest
from ..quota.ledger import HoursAccount
from ..quota.preflight import Limit, Options, Preflight
from ..spec import Spec, Stop, TFCluster

if TYPE_CHECKING:
    from ..kube.objects.policy import Policy  # with PyYAML and Jinja, which few verbs need

__all__ = ["Backend", "KubectlPlace", "Limit", "LogLine", "Options", "Preflight", "Removed"]

Counts = Callable[[str], bool]
"""Whether a line of a log is one of the last ones that are asked for."""


def every_line(_text: str) -> bool:
    """Each line counts."""
    return True


@dataclass(frozen=True)
class LogLine:
    """One line of one task, without its newline; `at` is when it was printed, in seconds since
    1970, None if nobody noted it.
    """

    task: str
    text: str
    at: float | None = None


def in_time_order(logs: Iterable[Iterable[LogLine]]) -> Iterator[LogLine]:
    """Merge the lines of tasks, an iterable each, by when they were printed.

    A line without a time stands where its task was; the order within a task stays.
    """

    def stamped(place: int, lines: Iterable[LogLine]) -> Iterator[tuple[float, int, LogLine]]:
        at = 0.0
        for line in lines:
            at = max(at, line.at or 0.0)
            yield at, place, line

    merged = heapq.merge(*(stamped(place, lines) for place, lines in enumerate(logs)))
    return (line for _at, _place, line in merged)


@dataclass(frozen=True)
class KubectlPlace:
    """A namespace as it is for objects that kubectl applies, without the operator.

    `policy` is the one that the operator has for it; `missing` are sentences about what keeps a
    run's objects from working there.
    """

    namespace: str
    policy: Policy
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Removed:
    """A run that is on record no more; told where all runs are watched."""

    name: str


class Backend(abc.ABC):
    """One world in which clusters run."""

    name: str
    is_here = False
    """Whether tasks run on this machine, and so with its Pythons."""

    def workspace(self) -> Path:
        """The folder of the user that tasks see, too: programs that are too large for a record lie
        there.

        Raises:
            InvalidRequest: tasks see no folder of this machine.
        """
        return paths.home_dir()

    def unseen(self, folder: str) -> str | None:  # noqa: ARG002 - of some backends
        """Why the files of a folder of runs' output cannot be read here; None when they can."""
        return None

    def outage(self) -> str:
        """Return why nobody carries out requests at the moment, as a sentence; empty while somebody
        does, and where that cannot be known.
        """
        return ""

    def why_it_lingers(self, cluster: TFCluster) -> str:
        """Why a run that was asked to end may still hold tasks, for a message."""
        return _(
            "what supervises it does not answer (it was stopped, or the volume with {files} hangs)"
        ).format(files=cluster.status.paths.get("logs", _("its records")))

    def out_of_reach(self, cluster: TFCluster) -> str | None:  # noqa: ARG002 - of some backends
        """Why this process cannot connect to the servers of an In-Graph run; None when it can."""
        return None

    @abc.abstractmethod
    def options(self) -> Options:
        """What can be asked for here, and what fits now."""

    @abc.abstractmethod
    def preflight(self, spec: Spec) -> Preflight:
        """Everything that stands against `spec` now. Creates nothing."""

    def kubectl_place(self, spec: Spec) -> KubectlPlace | None:  # noqa: ARG002 - for those with one
        """The namespace for the objects of `spec`; None where tasks are no pods."""
        return None

    @abc.abstractmethod
    def hours(self) -> HoursAccount:
        """CPU- and GPU-hours of this user until now, of deleted runs too, and what is allowed."""

    @abc.abstractmethod
    def bounded(self) -> HoursAccount | None:
        """The same where hours are bounded; None: they are not."""

    @abc.abstractmethod
    def create(self, request: LaunchRequest) -> TFCluster:
        """Preflight again, reserve name, run number and room in one step, and start.

        Returns as soon as the record exists; the run is then Queued or Starting.

        Raises:
            NameTaken: a run of this (given) name is active.
            PreflightRefused: there is no room.
        """

    @abc.abstractmethod
    def next_number(self, cluster: str) -> int:
        """The number that the next run of this name gets: none that another one has, or had before
        it was deleted.
        """

    @abc.abstractmethod
    def list(self) -> list[TFCluster]:
        """All runs that have a record, newest first."""

    @abc.abstractmethod
    def get(self, ref: str) -> TFCluster:
        """The run `digits-2`, or the newest run of `digits`. Raises NotFound (with names that are
        close).
        """

    @abc.abstractmethod
    def stop(self, ref: str, stop: Stop) -> TFCluster:
        """Ask for the end of a run; returns at once. A run that has already ended stays as it is,
        except that what it still holds (parameter servers) is given back now.
        """

    @abc.abstractmethod
    def note(self, ref: str, text: str) -> TFCluster:
        """Replace the note of a run, in any phase; an empty text removes it."""

    @abc.abstractmethod
    def delete(self, ref: str, with_logs: bool = False) -> None:
        """Remove an ended run's record, and with `with_logs` its folder of logs and checkpoints.

        Raises:
            Conflict: the run still has tasks.
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
        """Lines of these tasks (all when empty), the last `tail` of each first, in the order in
        which they were printed; those of one task never change their order.

        A line of which `counts` is false is none of these `tail`, though it is given.

        With `follow` it goes on until the run has ended and every line from before its end was
        given; parameter servers that outlive it are not waited for. It yields None at least every
        0.5 s, so that a caller can show what came, do other things, or leave. What is known to be
        missing is told by lines that begin with `tfcluster: `.
        Raises NotFound for an unknown task, naming those that exist.
        """

    @overload
    def watch(self, ref: str) -> Iterator[TFCluster | None]: ...

    @overload
    def watch(self, ref: None = None) -> Iterator[TFCluster | Removed | None]: ...

    @abc.abstractmethod
    def watch(self, ref: str | None = None) -> Iterator[TFCluster | Removed | None]:
        """The run (or all runs) now, then each change within 0.5 s; None at least every 0.5 s
        between changes.

        Never ends by itself when watching all, and tells then of runs that are removed; ends for
        one run after its `releasedAt`, or when it is deleted.
        """
