"""The handle of one run in Python: the value of `cluster = %tfcluster launch …`.

A handle reads the record on each access, so it stays valid after a restart of the kernel or a
rerun. The run continues when its handle is gone.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import TFClusterError, WaitInterrupted
from ..i18n import _
from ..output import report
from ..output.report import ready_count
from ..output.run_card import run_bundle
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
        manager: the manager to use; `None` creates one with the defaults of the environment.
    """

    def __init__(self, name: str, manager: ClusterManager | None = None) -> None:
        self.name = name
        self._manager = manager or ClusterManager()
        self._shown: object = None
        self._display_id: str | None = None

    def __repr__(self) -> str:
        try:
            record = self.record
        except TFClusterError as gone:  # if raised, IPython would show three tracebacks
            return f"<Cluster {self.name}: {gone}>"
        return f"<Cluster {self.name} {record.status.phase.value} {ready_count(record)}>"

    def __format__(self, spec: str) -> str:
        """Return the run's name, so that `{cluster}` and `$cluster` in a magic name the run."""
        return format(self.name, spec)

    @property
    def record(self) -> TFCluster:
        """The current record of the run. Raises NotFound if the run was deleted."""
        return self._manager.status(self.name)

    @property
    def status(self) -> Status:
        """The current status of the run: phase, reason, message, counts."""
        return self.record.status

    def wait(self, timeout: float | None = None) -> Cluster:
        """Wait for the end of the run; `timeout` in seconds. In a notebook a card shows the
        progress.

        Raises:
            ClusterFailed: the run ended without success.
            WaitTimeout: the run has not ended in time; it continues.
            WaitInterrupted: the wait was interrupted; the run continues.
        """
        return self._wait(timeout, Until.END)

    def wait_ready(self, timeout: float | None = None) -> Cluster:
        """Wait until all tasks are up. Raises the errors of `wait`."""
        return self._wait(timeout, Until.READY)

    def _wait(self, timeout: float | None, until: Until) -> Cluster:
        try:
            self._manager.wait(self.name, timeout, until=until, on_change=self._show_change())
        except KeyboardInterrupt:
            raise WaitInterrupted(detached(self.name)) from None
        return self

    def logs(self, *tasks: str, tail: int | None = None) -> str:
        """Return the last `tail` lines (all if None) of each of these tasks (all if empty)."""
        show = Prefixer(tasks or task_names(self.record), PLAIN, prefix=len(tasks) != 1)
        lines = self._manager.logs(self.name, tasks, tail=tail)
        return "\n".join(show(line) for line in lines if line is not None)

    def stop(self, reason: str | None = None) -> Cluster:
        """Stop the run and wait until no task is left; the record stays."""
        self._manager.stop(self.name, reason)
        self._manager.wait(self.name, until=Until.RELEASED)
        return self

    def tensorboard(self) -> Board:
        """Open TensorBoard on the run's output."""
        return self._manager.tensorboard(self.name)

    # -- in-graph: this process is the client ------------------------------------------------------

    @cached_property
    def client(self) -> Client:
        """The In-Graph client; waits for the servers. Raises the errors of
        `ClusterManager.connect`.
        """
        return self._manager.connect(self.name)

    @property
    def target(self) -> str:
        """The address for a TensorFlow 1 session, `grpc://127.0.0.1:4001`."""
        return self.client.target

    def session(self, graph: Any = None, config: Any = None) -> Any:
        """Return a `tf.compat.v1.Session` on the cluster. Raises the errors of `Client.session`."""
        return self.client.session(graph, config)

    def strategy(self, variable_partitioner: Any = None) -> Any:
        """Return the `ParameterServerStrategy`. Raises the errors of `Client.strategy`."""
        return self.client.strategy(variable_partitioner)

    def coordinator(self) -> Any:
        """Return the `ClusterCoordinator` of `strategy()`."""
        return self.client.coordinator()

    def resolver(self) -> Any:
        """Return a `SimpleClusterResolver` of the cluster."""
        return self.client.resolver()

    # -- in a notebook -----------------------------------------------------------------------------

    def shown_in(self, cell: object, display_id: str | None = None) -> Cluster:
        """Record that `cell` shows this run already, so that the run is not shown twice below the
        cell.
        """
        self._shown, self._display_id = cell, display_id
        return self

    def _show_change(self) -> Callable[[TFCluster], None] | None:
        """Show the run below the running cell, unless it is shown there already; return the
        function that updates the view. Return None outside of notebooks: in a program, a console or
        a shell.
        """
        shell = _notebook_shell()
        if shell is None:
            return None
        from IPython.display import display

        again = self._shown == shell.execution_count and self._display_id is not None
        if not again:
            self.shown_in(shell.execution_count, secrets.token_hex(8))

        def show(record: TFCluster) -> None:
            nonlocal again
            display(self._bundle(record), raw=True, display_id=self._display_id, update=again)
            again = True

        return show

    def _bundle(self, record: TFCluster, text: str | None = None) -> dict[str, Any]:
        progress, beside = self._manager.progress(record), self._manager.beside(record)
        return run_bundle(record, progress, beside, text, used=self._manager.used(record))

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        try:
            record = self.record
        except TFClusterError:
            return {"text/plain": repr(self)}
        return self._bundle(record, report.headline(record))

    def _ipython_display_(self) -> None:
        from IPython import get_ipython
        from IPython.display import display

        shell = get_ipython()
        cell, self._shown = self._shown, None
        if cell is None or shell is None or cell != shell.execution_count:
            display(self._repr_mimebundle_(), raw=True)


def detached(name: str, then: str = "") -> str:
    """Return a line for a user who has stopped watching a run: it says that the run continues.
    `then` replaces the part that says how the run can be watched and stopped.
    """
    goes_on = _(
        "{name} goes on: `tfcluster logs -f {name}` shows its output, "
        "`tfcluster stop {name}` ends it"
    ).format(name=name)
    return _("detached; {then}").format(then=then or goes_on)


def _notebook_shell() -> Any:
    """Return the IPython shell of this kernel; None if this process is no kernel."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython

    shell = get_ipython()
    return shell if hasattr(shell, "kernel") else None
