"""The few verbs that touch a world. Every backend passes `tests/test_backend_contract.py`
unchanged.

A backend stores runs and makes the world match them; it never interprets a user's words (the faces
and the manager do) and never decides what a failure means (`lifecycle.py` does). All methods are
synchronous, safe to call from several threads, answer from the record (never from memory of this
process), and raise only `TFClusterError`s.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..models import Model, Spec, Stop, TFCluster
from ..preflight import Limit, Preflight

__all__ = ["Backend", "LaunchRequest", "Limit", "LogLine", "Options", "Preflight"]


@dataclass(frozen=True)
class LogLine:
    """One line of one task, without its newline."""

    task: str
    text: str


class Options(Model, frozen=True):
    """What can be asked for, and what fits now; forms are generated from it."""

    backend: str
    cpu: Limit
    memory: Limit
    gpu: Limit
    max_tasks: int = 1000
    images: tuple[str, ...] = ()
    interpreter: str | None = None
    data_dir: str = ""
    log_dir: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LaunchRequest:
    """A validated wish. `cluster` is the chosen name; `name_given` says that the user chose it, so
    a name in use is refused; a derived one gets the next free letter instead (`train`, `train-b`,
    ...).
    """

    cluster: str
    spec: Spec
    name_given: bool = True
    owner: str = ""
    warnings: tuple[str, ...] = field(default=())


class Backend(abc.ABC):
    """One world in which clusters run."""

    name: str

    @abc.abstractmethod
    def options(self) -> Options:
        """What can be asked for here, and what fits now."""

    @abc.abstractmethod
    def preflight(self, spec: Spec) -> Preflight:
        """Everything that stands against `spec` now. Creates nothing."""

    @abc.abstractmethod
    def create(self, request: LaunchRequest) -> TFCluster:
        """Preflight again, reserve name, run number and room in one step, and start.

        Returns as soon as the record exists; the run is then Queued or Starting.

        Raises:
            NameTaken: a run of this (given) name is active.
            PreflightRefused: there is no room.
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
    def delete(self, ref: str, with_logs: bool = False) -> None:
        """Remove an ended run's record, and with `with_logs` its folder of logs and checkpoints.

        Raises:
            Conflict: the run still has tasks.
        """

    @abc.abstractmethod
    def logs(
        self, ref: str, tasks: Sequence[str] = (), follow: bool = False, tail: int | None = None
    ) -> Iterator[LogLine | None]:
        """Lines of these tasks (all when empty), the last `tail` of each first.

        With `follow` it goes on until the run has no task left and every line was given, and yields
        None at least every 0.5 s while there is nothing new, so that a caller can do other things
        or leave.
        Raises NotFound for an unknown task, naming those that exist.
        """

    @abc.abstractmethod
    def watch(self, ref: str | None = None) -> Iterator[TFCluster | None]:
        """The run (or all runs) now, then each change within 0.5 s; None at least every 0.5 s
        between changes.

        Never ends by itself when watching all; ends for one run after its `releasedAt`, or when it
        is deleted.
        """
