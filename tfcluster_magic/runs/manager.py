"""ClusterManager: the only door to clusters. A verb is a method here, a command, a magic, a route.

Promises the same meaning and the same messages to every face, and errors that are
`TFClusterError`s. Owns what each verb is made of. Never touches processes or files of a run: the
backend does. Never prints.

    manager = ClusterManager()
    run = manager.launch("train.py", ["--epochs", "3"], workers=2, ps=1)
    manager.wait(run.metadata.name)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from traitlets import Enum, Unicode
from traitlets.config import LoggingConfigurable

from ..backends.base import Backend, Counts, LogLine, Options, every_line
from ..backends.run_names import newest as newest  # noqa: PLC0414 - faces ask for it here
from ..backends.selection import BACKENDS, make
from ..errors import ClientUnsupported
from ..i18n import _
from ..launch import LaunchRequest
from ..quota import ledger
from ..spec import Stop, TFCluster
from ..terminal_text import clean
from .waiting import Until, wait, wait_reachable

if TYPE_CHECKING:
    from ..client import Client
    from ..launch.planning import Plan
    from ..launch.sketching import Sketch
    from ..progress.run_progress import Progress
    from ..progress.summary import Observer
    from ..tensorboard.boards import Boards
    from ..tensorboard.registry import Board

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
            self._backend = make(self.backend_name, folders, self.context, self.namespace)
        return self._backend

    # -- launching ---------------------------------------------------------------------------------

    def plan(self, *words: Any, **options: Any) -> Plan:
        """What `launch` with the same words would create. Creates nothing; raises as `launch`."""
        from ..launch.planning import request_launch
        from ..program import workspace

        with workspace.scratch() as folder:
            return self._plan(request_launch(folder, *words, **options))

    def sketch(self, *words: Any, **options: Any) -> Sketch:
        """`plan` for a form that is being filled in: it says what is wrong instead of raising."""
        from ..launch.sketching import sketch
        from ..program import workspace

        with workspace.scratch() as folder:
            return sketch(folder, *words, **options).placed(self.backend)

    def launch(
        self,
        program: str | None = None,
        arguments: Sequence[str] = (),
        *,
        cell: str | None = None,
        name: str | None = None,
        sha256: str | None = None,
        file: str | None = None,
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
            file: a cluster file in YAML; `options` go before what it says.
            folder: where the person works, and the program runs; without it this process's.
            options: as on the command line, `worker_cpu=2` for `--worker-cpu 2`; `request.OPTIONS`.

        Raises:
            InvalidRequest: something is wrong with what was asked for; all of it is named.
            PreflightRefused: there is no room; the numbers that fit are named.
            NameTaken: a run of this name is active.
        """
        from ..launch.planning import request_launch
        from ..program import workspace

        with workspace.scratch() as scratch:
            said: dict[str, Any] = {"cell": cell, "name": name, "sha256": sha256, **options}
            request = request_launch(scratch, program, arguments, file=file, folder=folder, **said)
            with workspace.kept(request.spec.program, scratch, self.backend.workspace):
                return self.backend.create(request)

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
        from ..launch.planning import foresee

        return foresee(request, self.backend.list(), self.backend.preflight(request.spec))

    # -- looking -----------------------------------------------------------------------------------

    def options(self) -> Options:
        """What can be asked for, and what fits now."""
        return self.backend.options()

    def hours(self) -> ledger.Account:
        """CPU- and GPU-hours of this user until now, of deleted runs too, and what is allowed."""
        return self.backend.hours()

    def left(self) -> tuple[str, ...]:
        """What is left of this user's budget of hours, in sentences."""
        return ledger.left(self.backend.bounded() or ledger.Account(), time.time())

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

    def status(self, ref: str) -> TFCluster:
        """The run `digits-2`, or the newest run of `digits`. Raises NotFound."""
        return self.backend.get(ref)

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
        return wait(self.backend, self.status(ref).metadata.name, until, timeout, on_change)

    # -- ending ------------------------------------------------------------------------------------

    def stop(self, ref: str, reason: str | None = None, *, by: str = "") -> TFCluster:
        """Ask for the end of a run; return at once. What an ended run still holds is given back."""
        text = clean(reason or "").encode("utf-8", "replace").decode()  # the record is UTF-8
        stop = Stop(reason=text, by=by, at=time.time())
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
        return wait_reachable(self.backend, self.status(ref), timeout)

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
    def boards(self) -> Boards:
        """TensorBoards on runs and folders: what they show, starting and ending them."""
        from ..tensorboard.boards import Boards

        return Boards(self.backend, self.state_dir or None)

    def tensorboard(self, *refs: str) -> Board:
        """TensorBoard on these runs, beside each other, or on all runs. Raises as `Boards.view`."""
        return self.boards.open(self.boards.view(*refs))

    def render(self, cluster: TFCluster) -> str:
        """The record of a run (or of a plan) and each of its tasks as this machine runs them."""
        from .render import place_of, render

        here = self.options()
        python = cluster.spec.interpreter or here.interpreter or "python"
        place = place_of(cluster, python, here.data_dir, here.log_dir, int(here.cpu.total))
        return render(cluster, place)

    def progress(self, cluster: TFCluster) -> Progress | None:
        """How far the program of a run is; None when nothing is known."""
        return self._observer.progress(cluster)

    def notes(self, cluster: TFCluster) -> Sequence[str]:
        """Return what can be said about a run beside its record: its progress, and `beside`."""
        from ..progress.run_progress import told

        return told(self.progress(cluster), self.beside(cluster))

    def beside(self, cluster: TFCluster) -> Sequence[str]:
        """Say that nobody answers for a run, and which of its running programs are silent."""
        away = self.backend.outage() if cluster.status.released_at is None else ""
        silent = self._observer.silence(cluster, time.time())
        return [text for text in (away, silent) if text]

    def outage(self, clusters: Iterable[TFCluster]) -> str:
        """Return why nobody carries out requests for these runs; empty while somebody does, or if
        all of them are over.
        """
        waits = any(cluster.status.released_at is None for cluster in clusters)
        return self.backend.outage() if waits else ""

    @cached_property
    def _observer(self) -> Observer:
        from ..progress.summary import Observer

        return Observer(self.backend.unseen)
