"""ClusterManager: the only door to clusters. A verb is a method here, a command, a magic, a route.

The meaning and the messages are the same for every interface, and errors are `TFClusterError`s. The
manager never touches processes or files of a run: the backend does. It never prints. Waiting never
polls: the backend's `watch` says when there is something new.

    manager = ClusterManager()
    run = manager.launch("train.py", ["--epochs", "3"], workers=2, ps=1)
    manager.wait(run.metadata.name)
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traitlets import Enum, Unicode
from traitlets.config import LoggingConfigurable

from ..backends.base import Backend, Counts, LogLine, Options, every_line
from ..backends.run_names import newest as newest  # noqa: PLC0414 - faces ask for it here
from ..backends.selection import BACKENDS, make_backend
from ..errors import (
    ClientUnsupported,
    ClusterFailed,
    Conflict,
    InvalidRequest,
    NotFound,
    Problem,
    WaitTimeout,
    one_line,
)
from ..i18n import _
from ..launch import LaunchRequest
from ..lifecycle.messages import shown
from ..quota import ledger
from ..spec import NOTE_LENGTH, Mode, Phase, Stop, TFCluster
from ..spec.message_table import format_duration
from ..spec.spec import ASKER_LENGTH, STOP_LENGTH

if TYPE_CHECKING:
    from ..client import Client
    from ..launch.cluster_file import ClusterFile
    from ..launch.planning import DryRun, Plan
    from ..progress.run_observation import Observer
    from ..progress.run_progress import Progress
    from ..tensorboard.process import Board
    from ..tensorboard.views import TensorBoards

ENDING_TIMEOUT = 30.0
"""Seconds beyond the grace period after which a run that was asked to end should be gone."""


class Until(enum.Enum):
    """What a wait is for."""

    READY = "all tasks are up"
    END = "the run has ended"
    RELEASED = "no task is left"


def wait_for_run(
    backend: Backend,
    name: str,
    until: Until,
    timeout: float | None,
    on_change: Callable[[TFCluster], None] | None,
) -> TFCluster:
    """Wait for the run `name`; see `ClusterManager.wait`."""
    cluster = backend.get(name)
    stops = cluster.spec.stop is not None or cluster.status.phase is Phase.STOPPING
    ends = until is Until.RELEASED and stops
    if ends and timeout is None:
        timeout = cluster.spec.lifecycle.grace + ENDING_TIMEOUT
    deadline, away = None if timeout is None else time.monotonic() + timeout, ""
    for change in backend.watch(name):
        before, away = away, away if change is not None else backend.outage()
        if change is not None or away != before:
            cluster = change or cluster
            if on_change is not None:
                on_change(cluster)
        if _is_reached(cluster, until):
            return cluster
        if deadline is not None and time.monotonic() >= deadline:
            break
    else:
        cluster = backend.get(name)  # NotFound when it was deleted meanwhile
        if _is_reached(cluster, until):
            return cluster
    if ends:
        raise WaitTimeout(
            _(
                "{name} was asked to end and still holds tasks after {time}: {why}. It ends as "
                "soon as it can"
            ).format(
                name=name,
                time=format_duration(timeout or 0),
                why=backend.why_it_lingers(cluster),
            )
        )
    raise WaitTimeout(
        _("{name} is still {phase} after {time}: {message} It goes on").format(
            name=name,
            phase=cluster.status.phase.value,
            time=format_duration(timeout or 0),
            message=backend.outage() or shown(cluster.status),
        )
    )


def wait_until_reachable(backend: Backend, cluster: TFCluster, timeout: float) -> TFCluster:
    """Wait until a notebook can connect; see `ClusterManager.reachable`."""
    name = cluster.metadata.name
    if cluster.spec.mode is not Mode.IN_GRAPH:
        raise Conflict(
            _(
                "{name} is between-graph: its tasks run a program and there is nothing to connect "
                "to; `tfcluster launch --mode in-graph` starts servers for a notebook"
            ).format(name=name)
        )
    if not cluster.active:
        raise Conflict(
            _(
                "{name} has ended ({phase}): `tfcluster rerun {name}` starts its servers again"
            ).format(name=name, phase=cluster.status.phase.value)
        )
    return wait_for_run(backend, name, Until.READY, timeout, None)


def _is_reached(cluster: TFCluster, until: Until) -> bool:
    """Whether the wait is over. Raises ClusterFailed when it cannot be any more."""
    state = cluster.status
    if until is Until.RELEASED:
        return state.released_at is not None
    if until is Until.READY and state.phase is Phase.RUNNING:
        return True
    if not state.phase.is_final:
        return False
    if state.phase is Phase.SUCCEEDED:
        return True
    how = _("{name} failed") if state.phase is Phase.FAILED else _("{name} was stopped")
    what = how.format(name=cluster.metadata.name)
    raise ClusterFailed(_("{what}: {problem}").format(what=what, problem=shown(state)))


# -- the manager -----------------------------------------------------------------------------------

Clusters = list[TFCluster]


class ClusterManager(LoggingConfigurable):
    """Launch, watch and end clusters through `backend`, else the one that `backend_name` names."""

    backend_name = Enum(BACKENDS, "auto", help="where clusters run").tag(config=True)
    context = Unicode("", help="context of the kubeconfig; empty: its current").tag(config=True)
    namespace = Unicode("", help="empty: TFCLUSTER_NAMESPACE, or the context's").tag(config=True)
    state_dir = Unicode("", help="folder of records; empty: the environment's").tag(config=True)
    data_dir = Unicode("", help="folder of data sets; empty: the environment's").tag(config=True)
    log_dir = Unicode("", help="folder of all output; empty: the environment's").tag(config=True)

    def __init__(self, backend: Backend | None = None, **traits: object) -> None:
        super().__init__(**traits)
        self._backend = backend

    @property
    def backend(self) -> Backend:
        """The world in which the clusters run."""
        if self._backend is None:
            given = {key: getattr(self, key) for key in ("state_dir", "data_dir", "log_dir")}
            folders = {key: Path(text).absolute() for key, text in given.items() if text}
            self._backend = make_backend(self.backend_name, folders, self.context, self.namespace)
        return self._backend

    # -- launching ---------------------------------------------------------------------------------

    def plan(self, *words: Any, **options: Any) -> Plan:
        """What `launch` with the same words would create. Creates nothing; raises as `launch`."""
        from ..launch.planning import request_launch
        from ..program import snapshots

        with snapshots.scratch_folder() as folder:
            beside = self._beside_bytes
            return self._plan(request_launch(folder, *words, beside_bytes=beside, **options))

    def sketch(self, *words: Any, **options: Any) -> DryRun:
        """`plan` for a form that is being filled in: it says what is wrong instead of raising."""
        from ..launch.planning import dry_run
        from ..program import snapshots

        with snapshots.scratch_folder() as folder:
            beside = self._beside_bytes
            made = dry_run(folder, *words, beside_bytes=beside, **options)
            return made.placed(self.backend)

    def launch(
        self,
        program: str | None = None,
        arguments: Sequence[str] = (),
        *,
        cell: str | None = None,
        name: str | None = None,
        sha256: str | None = None,
        file: str | ClusterFile | None = None,
        folder: Path | None = None,
        **options: Any,
    ) -> TFCluster:
        """Start a run and return at once.

        Args:
            program: a file, a folder with `run.sh`, or a URL. None for in-graph.
            arguments: the program's own arguments.
            cell: the program's text, instead of `program`.
            name: name of the cluster; without one it is derived from the program.
            sha256: checksum that a program from a URL must have.
            file: a cluster file in YAML, or what one says; `options` go before it.
            folder: where the person works, and the program runs; without it this process's.
            options: as on the command line, `worker_cpu=2` for `--worker-cpu 2`; `OPTIONS`.

        Raises:
            InvalidRequest: something is wrong with what was asked for; all of it is named.
            PreflightRefused: there is no room; the numbers that fit are named.
            NameTaken: a run of this name is active.
        """
        from ..launch.planning import request_launch
        from ..program import snapshots

        with snapshots.scratch_folder() as scratch:
            said: dict[str, Any] = {"cell": cell, "name": name, "sha256": sha256, **options}
            said["beside_bytes"] = self._beside_bytes
            request = request_launch(scratch, program, arguments, file=file, folder=folder, **said)
            with snapshots.keep_snapshot(request.spec.program, scratch, self.backend.workspace):
                return self.backend.create(request)

    @property
    def _beside_bytes(self) -> int | None:
        """How much a single file may have with the small files beside it, so that they never keep
        a launch from a backend that takes only what fits into a record.
        """
        from ..program import INLINE_BYTES

        try:
            self.backend.workspace()
        except InvalidRequest:
            return INLINE_BYTES
        return None

    def plan_rerun(self, ref: str, **words: Any) -> Plan:
        """What `rerun` with the same words would create. Creates nothing; raises as `rerun`."""
        from ..launch.planning import request_rerun

        return self._plan(request_rerun(self.status(ref), **words))

    def rerun(
        self,
        ref: str,
        *,
        resume: bool = False,
        name: str | None = None,
        arguments: Sequence[str] | None = None,
        **options: object,
    ) -> TFCluster:
        """Start a fresh run of the same snapshot and wish, changed by `options`.

        Args:
            ref: the run to repeat.
            resume: start from the checkpoints of `ref`.
            name: name of the new cluster, when it shall be another one.
            arguments: replace the program's arguments.
            options: as for `launch`.

        Raises: as `launch`, and NotFound.
        """
        from ..launch.planning import request_rerun

        wish: dict[str, Any] = {"resume": resume, "name": name, "arguments": arguments, **options}
        return self.backend.create(request_rerun(self.status(ref), **wish))

    def _plan(self, request: LaunchRequest) -> Plan:
        from ..launch.planning import plan_launch

        number = self.backend.next_number(request.cluster)
        return plan_launch(request, number, self.backend.preflight(request.spec))

    # -- looking -----------------------------------------------------------------------------------

    def options(self) -> Options:
        """What can be asked for, and what fits now."""
        return self.backend.options()

    def hours(self) -> ledger.HoursAccount:
        """CPU- and GPU-hours of this user until now, of deleted runs too, and what is allowed."""
        return self.backend.hours()

    def left(self) -> tuple[str, ...]:
        """What is left of this user's budget of hours, in sentences."""
        return ledger.remaining_budget(self.backend.bounded() or ledger.HoursAccount(), time.time())

    def list(self, wanted: Iterable[str] = (), *, all_runs: bool = False) -> Clusters:
        """The runs of these names (all when empty), newest first.

        Without `all_runs`, only the newest run of each name and those that have not ended.
        """
        wanted = set(wanted)
        clusters = [
            c
            for c in self.backend.list()
            if not wanted or c.metadata.name in wanted or c.metadata.cluster in wanted
        ]
        return clusters if all_runs else newest(clusters)

    def status(self, ref: str | None = None) -> TFCluster:
        """The run `digits-2`, the newest run of `digits`, or without a name the newest of all.

        Raises NotFound.
        """
        if ref is not None:
            return self.backend.get(ref)
        if not (runs := self.backend.list()):
            raise NotFound(_("there is no run yet; `tfcluster launch train.py` starts one"))
        return runs[0]

    def follow(self, ref: str) -> Iterator[TFCluster | None]:
        """The run now, then each change; None at least every 0.5 s; ends when no task is left."""
        return self.backend.watch(self.status(ref).metadata.name)

    def logs(
        self,
        ref: str,
        tasks: Sequence[str] = (),
        *,
        follow: bool = False,
        tail: int | None = None,
        counts: Counts = every_line,
    ) -> Iterator[LogLine | None]:
        """Lines of these tasks (all when empty); with `follow` until the run has ended, None at
        least every 0.5 s. `tail`, `counts` and what is waited for: see `Backend.logs`.
        """
        name = self.status(ref).metadata.name
        yield from self.backend.logs(name, tasks, follow, tail, counts)

    def wait(
        self,
        ref: str,
        timeout: float | None = None,
        *,
        until: Until = Until.END,
        on_change: Callable[[TFCluster], None] | None = None,
    ) -> TFCluster:
        """Wait for a run; `timeout` in seconds, none when None (but where one that was asked to end
        does not: half a minute beyond its grace period).

        Raises:
            ClusterFailed: it ended without success. Not when waiting for RELEASED.
            WaitTimeout: it did not get there in time. It goes on.
            NotFound: there is no such run, or it was deleted meanwhile.
        """
        return wait_for_run(self.backend, self.status(ref).metadata.name, until, timeout, on_change)

    def note(self, ref: str, text: str | None = None) -> TFCluster:
        """The run with its note, which becomes `text` unless that is None; empty: none.

        Raises:
            InvalidRequest: it has more than `NOTE_LENGTH` characters.
            NotFound: there is no such run.
        """
        cluster = self.status(ref)
        if text is None:
            return cluster
        note = one_line(text).encode("utf-8", "replace").decode().strip()
        if len(note) > NOTE_LENGTH:
            allowed = _("a note has at most {most} characters").format(most=NOTE_LENGTH)
            given = _("{count} characters").format(count=len(note))
            raise InvalidRequest([Problem("text", given, allowed)], _("the request was refused"))
        return self.backend.note(cluster.metadata.name, note)

    # -- ending ------------------------------------------------------------------------------------

    def stop(self, ref: str, reason: str | None = None, *, by: str = "") -> TFCluster:
        """Ask for the end of a run; return at once. What an ended run still holds is given back."""
        text = one_line(reason or "").encode("utf-8", "replace").decode()  # the record is UTF-8
        stop = Stop(reason=text[:STOP_LENGTH], by=by[:ASKER_LENGTH], at=time.time())
        return self.backend.stop(self.status(ref).metadata.name, stop)

    def delete(self, ref: str, *, with_logs: bool = False) -> None:
        """Remove a run's record, `with_logs` its output too; one with tasks is stopped first."""
        cluster = self.status(ref)
        name = cluster.metadata.name
        if cluster.status.released_at is None:
            self.stop(name, _("it is being deleted"))
            self.wait(name, until=Until.RELEASED)
        self.backend.delete(name, with_logs=with_logs)

    # -- reaching ----------------------------------------------------------------------------------

    def reachable(self, ref: str, timeout: float = 60.0) -> TFCluster:
        """The In-Graph run `ref` once its servers accept connections; `timeout` in seconds.

        Raises Conflict (it runs programs, or has ended), WaitTimeout.
        """
        return wait_until_reachable(self.backend, self.status(ref), timeout)

    def connect(self, ref: str, timeout: float = 60.0) -> Client:
        """A client for the In-Graph run `ref`. Raises as `reachable`, and ClientUnsupported."""
        from ..client import connect

        cluster = self.reachable(ref, timeout)
        if why := self.backend.out_of_reach(cluster):
            raise ClientUnsupported(why)
        return connect(
            cluster.status.addresses,
            name=cluster.metadata.name,
            server=cluster.spec.server,
            timeout=timeout,
        )

    @cached_property
    def boards(self) -> TensorBoards:
        """TensorBoards on runs and folders: what they show, starting and ending them."""
        from ..tensorboard.views import TensorBoards

        return TensorBoards(self.backend, self.state_dir or None)

    def tensorboard(self, *refs: str) -> Board:
        """TensorBoard on these runs side by side, or on all. Raises as `TensorBoards.view`."""
        return self.boards.open(self.boards.view(*refs))

    def render(self, cluster: TFCluster) -> str:
        """The record of a run (or of a plan) and each of its tasks as this machine runs them."""
        from .rendered_run import render_run, task_place

        here = self.options()
        python = cluster.spec.interpreter or here.interpreter or "python"
        place = task_place(cluster, python, here.data_dir, here.log_dir, int(here.cpu.total))
        return render_run(cluster, place)

    def progress(self, cluster: TFCluster) -> Progress | None:
        """How far the program of a run is; None when nothing is known."""
        return self._observer.progress(cluster)

    def notes(self, cluster: TFCluster) -> Sequence[str]:
        """Return what can be said about a run beside its record: its progress, and `beside`."""
        from ..progress.run_progress import note_lines

        return note_lines(self.progress(cluster), self.beside(cluster))

    def beside(self, cluster: TFCluster) -> Sequence[str]:
        """Say that nobody answers for a run, which of its running programs are silent, and what
        they write that will be lost.
        """
        away = self.backend.outage() if cluster.status.released_at is None else ""
        silent = self._observer.silence(cluster, time.time())
        return [text for text in (away, silent, self._observer.lost(cluster)) if text]

    def outage(self, clusters: Iterable[TFCluster]) -> str:
        """Return why nobody carries out requests for these runs; empty while somebody does, or if
        all of them are over.
        """
        waits = any(cluster.status.released_at is None for cluster in clusters)
        return self.backend.outage() if waits else ""

    @cached_property
    def _observer(self) -> Observer:
        from ..progress.run_observation import Observer

        return Observer(self.backend.unseen)
