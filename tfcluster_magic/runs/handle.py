"""The handle of one run in Python: what `cluster = %tfcluster launch …` gives.

It answers from the record each time it is asked, so that a handle that was kept over a kernel's
restart or a rerun is never wrong. Owns nothing: the run goes on when the handle is gone.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import TFClusterError
from ..output import report
from ..output.report import run_bundle
from ..output.text import PLAIN, Prefixer, task_names
from ..spec import Status, TFCluster
from .manager import ClusterManager, Until

if TYPE_CHECKING:
    from ..client import Client
    from ..tensorboard.process import Board


class Cluster:
    """One run of a cluster.

    Args:
        name: the run, `digits-2`.
        manager: the door to it; a new one with the defaults of the environment when None.
    """

    def __init__(self, name: str, manager: ClusterManager | None = None) -> None:
        self.name = name
        self._manager = manager or ClusterManager()
        self._shown: object = None

    def __repr__(self) -> str:
        try:
            return report.headline(self.record)
        except TFClusterError as gone:  # deleted since: a repr that raises is shown three times
            return f"{self.name}: {gone}"

    @property
    def record(self) -> TFCluster:
        """The whole record as it is now. Raises NotFound once it is deleted."""
        return self._manager.status(self.name)

    @property
    def status(self) -> Status:
        """Phase, reason, message, counts as they are now."""
        return self.record.status

    def wait(self, timeout: float | None = None) -> Cluster:
        """Wait for the end of the run; `timeout` in seconds.

        Raises:
            ClusterFailed: it ended without success.
            WaitTimeout: it has not ended in time. It goes on.
        """
        self._manager.wait(self.name, timeout)
        return self

    def wait_ready(self, timeout: float | None = None) -> Cluster:
        """Wait until all tasks are up. Raises as `wait`."""
        self._manager.wait(self.name, timeout, until=Until.READY)
        return self

    def logs(self, *tasks: str, tail: int | None = None) -> str:
        """What these tasks printed (all when none is named), the last `tail` lines of each."""
        show = Prefixer(tasks or task_names(self.record), PLAIN, prefix=len(tasks) != 1)
        lines = self._manager.logs(self.name, tasks, tail=tail)
        return "\n".join(show(line) for line in lines if line is not None)

    def stop(self, reason: str | None = None) -> Cluster:
        """End the run and wait until no task is left; the record stays."""
        self._manager.stop(self.name, reason)
        self._manager.wait(self.name, until=Until.RELEASED)
        return self

    def tensorboard(self) -> Board:
        """TensorBoard on the run's output."""
        return self._manager.tensorboard(self.name)

    # -- in-graph: this process is the client ------------------------------------------------------

    @cached_property
    def client(self) -> Client:
        """The In-Graph client; waits for the servers. Raises as `ClusterManager.connect`."""
        return self._manager.connect(self.name)

    @property
    def target(self) -> str:
        """What a TensorFlow 1 session connects to, `grpc://127.0.0.1:4001`."""
        return self.client.target

    def session(self, graph: Any = None, config: Any = None) -> Any:
        """A `tf.compat.v1.Session` on the cluster. Raises as `Client.session`."""
        return self.client.session(graph, config)

    def strategy(self, variable_partitioner: Any = None) -> Any:
        """The `ParameterServerStrategy` of the cluster. Raises as `Client.strategy`."""
        return self.client.strategy(variable_partitioner)

    def coordinator(self) -> Any:
        """The `ClusterCoordinator` of `strategy()`."""
        return self.client.coordinator()

    def resolver(self) -> Any:
        """A `SimpleClusterResolver` of the cluster."""
        return self.client.resolver()

    # -- in a notebook -----------------------------------------------------------------------------

    def shown_in(self, cell: object) -> Cluster:
        """Note that `cell` shows this run already, so that it is not shown twice below it."""
        self._shown = cell
        return self

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        try:
            record = self.record
        except TFClusterError:
            return {"text/plain": repr(self)}
        progress, beside = self._manager.progress(record), self._manager.beside(record)
        return run_bundle(record, progress, beside, report.headline(record))

    def _ipython_display_(self) -> None:
        from IPython import get_ipython
        from IPython.display import display

        shell = get_ipython()
        cell, self._shown = self._shown, None
        if cell is None or shell is None or cell != shell.execution_count:
            display(self._repr_mimebundle_(), raw=True)
