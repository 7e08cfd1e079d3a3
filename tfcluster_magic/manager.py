"""ClusterManager: the only door to clusters. A verb is a method here, a command, a magic, a route.

Promises the same meaning and the same messages to every face, and errors that are
`TFClusterError`s. Owns what each verb is made of. Never touches processes or files of a run: the
backend does. Never prints.

    from tfcluster_magic import ClusterManager
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

from . import workspace
from .backends.base import Backend, LaunchRequest, LogLine, Options
from .errors import NotFound
from .models import Stop, TFCluster
from .waiting import Until, wait, wait_reachable

if TYPE_CHECKING:
    from .client import Client
    from .observing import Observer
    from .planning import Plan
    from .progress import Progress
    from .tensorboard_registry import Board

BACKENDS = ("local",)
Clusters = list[TFCluster]


def newest(clusters: Sequence[TFCluster]) -> Clusters:
    """The newest run of each name, and those that have not ended, in the given order."""
    last: dict[str, int] = {}
    for c in clusters:
        last[c.metadata.cluster] = max(c.metadata.run, last.get(c.metadata.cluster, 0))
    return [c for c in clusters if c.active or c.metadata.run == last[c.metadata.cluster]]


class ClusterManager(LoggingConfigurable):
    """Launch, watch and end clusters through one backend.

    Args:
        backend: an object to use; without it the one that `backend_name` names is made when needed.
    """

    backend_name = Enum(BACKENDS, "local", help="where clusters run").tag(config=True)
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
            from .backends.local.backend import LocalBackend

            given = {key: getattr(self, key) for key in ("state_dir", "data_dir", "log_dir")}
            self._backend = LocalBackend(**{k: Path(v).absolute() for k, v in given.items() if v})
        return self._backend

    # -- launching ---------------------------------------------------------------------------------

    def plan(self, *words: Any, **options: Any) -> Plan:
        """What `launch` with the same words would create. Creates nothing; raises as `launch`."""
        from .planning import request_launch

        with workspace.scratch() as folder:
            return self._plan(request_launch(folder, *words, **options))

    def launch(
        self,
        program: str | None = None,
        arguments: Sequence[str] = (),
        *,
        cell: str | None = None,
        name: str | None = None,
        sha256: str | None = None,
        file: str | None = None,
        **options: object,
    ) -> TFCluster:
        """Start a run and return at once.

        Args:
            program: a file, a folder with `run.sh`, or a URL. None for in-graph.
            arguments: the program's own arguments.
            cell: the program's text, instead of `program`.
            name: name of the cluster; without one it is derived from the program.
            sha256: checksum that a program from a URL must have.
            file: a cluster file in YAML; `options` go before what it says.
            options: as on the command line, `worker_cpu=2` for `--worker-cpu 2`; `request.OPTIONS`.

        Raises:
            InvalidRequest: something is wrong with what was asked for; all of it is named.
            PreflightRefused: there is no room; the numbers that fit are named.
            NameTaken: a run of this name is active.
        """
        from .planning import request_launch

        with workspace.scratch() as folder:
            given: dict[str, Any] = {
                "cell": cell,
                "name": name,
                "sha256": sha256,
                "file": file,
                **options,
            }
            request = request_launch(folder, program, arguments, **given)
            with workspace.kept(request.spec.program, folder):
                return self.backend.create(request)

    def plan_rerun(self, ref: str, **words: Any) -> Plan:
        """What `rerun` with the same words would create. Creates nothing; raises as `rerun`."""
        from .planning import request_rerun

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
        from .planning import request_rerun

        wish: dict[str, Any] = {"resume": resume, "name": name, "arguments": arguments, **options}
        return self.backend.create(request_rerun(self.status(ref), **wish))

    def _plan(self, request: LaunchRequest) -> Plan:
        from .planning import foresee

        return foresee(request, self.backend.list(), self.backend.preflight(request.spec))

    # -- looking -----------------------------------------------------------------------------------

    def options(self) -> Options:
        """What can be asked for, and what fits now."""
        return self.backend.options()

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
        self, ref: str, tasks: Sequence[str] = (), *, follow: bool = False, tail: int | None = None
    ) -> Iterator[LogLine | None]:
        """Lines of these tasks (all when empty); with `follow` until the run has ended.

        None comes at least every 0.5 s while there is nothing new. Parameter servers that outlive
        the end are not waited for.
        """
        name = self.status(ref).metadata.name
        ended = 0
        for line in self.backend.logs(name, tasks, follow=follow, tail=tail):
            yield line
            if line is None and not self.status(name).active:
                ended += 1
                if ended > 1:  # a look after the end found nothing new, so every line was given
                    return

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
        text = (reason or "").encode("utf-8", "replace").decode()  # the record is UTF-8
        stop = Stop(reason=text, by=by, at=time.time())
        return self.backend.stop(self.status(ref).metadata.name, stop)

    def delete(self, ref: str, *, with_logs: bool = False) -> None:
        """Remove a run's record, `with_logs` its output too; one with tasks is stopped first."""
        cluster = self.status(ref)
        name = cluster.metadata.name
        if cluster.status.released_at is None:
            self.stop(name, "it is being deleted")
            self.wait(name, until=Until.RELEASED)
        self.backend.delete(name, with_logs=with_logs)

    # -- reaching ----------------------------------------------------------------------------------

    def reachable(self, ref: str, timeout: float = 60.0) -> TFCluster:
        """The In-Graph run `ref` once its servers accept connections; `timeout` in seconds.

        Raises:
            Conflict: it runs programs, or has ended.
            WaitTimeout: it is not up in time.
        """
        return wait_reachable(self.backend, self.status(ref), timeout)

    def connect(self, ref: str, timeout: float = 60.0) -> Client:
        """A client for the In-Graph run `ref`. Raises as `reachable`."""
        from .client import connect

        cluster = self.reachable(ref, timeout)
        return connect(
            cluster.status.addresses,
            name=cluster.metadata.name,
            server=cluster.spec.server,
            timeout=timeout,
        )

    def tensorboard(self, ref: str | None = None) -> Board:
        """TensorBoard on the output of run `ref`, or on all runs.

        Raises:
            NotFound: the run has no output folder.
        """
        from . import tensorboard

        folder = self.status(ref).status.paths.get("output") if ref else self.options().log_dir
        if not folder:
            raise NotFound(f"{ref} has no output folder yet")
        return tensorboard.open(folder, state_dir=self.state_dir or None)

    def render(self, cluster: TFCluster) -> str:
        """The record of a run (or of a plan) and each of its tasks as they are run, as YAML."""
        from .render import place_of, render

        here = self.options()
        place = place_of(
            cluster, here.interpreter or "python", here.data_dir, here.log_dir, int(here.cpu.total)
        )
        return render(cluster, place)

    def progress(self, cluster: TFCluster) -> Progress | None:
        """How far the program of a run is; None when nothing is known."""
        return self._observer.progress(cluster)

    def notes(self, cluster: TFCluster) -> Sequence[str]:
        """What can be told about a run beside its record: its progress, and who is silent."""
        return self._observer.notes(cluster)

    @cached_property
    def _observer(self) -> Observer:
        from .observing import Observer

        return Observer()
