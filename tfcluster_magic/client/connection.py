"""`connect` and `Client`: the objects with which a notebook drives an In-Graph cluster.

Nothing here hangs without end: each object first waits until the tasks are ready, and what
TensorFlow does after that is bounded by a time-out. Owns no process and no file; closing a notebook
leaves the cluster as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import BackendUnavailable, ClientUnsupported
from ..i18n import _
from ..spec import ServerKind
from . import notebook
from .environment import load_tensorflow, prepare_channels
from .reach import own_address
from .readiness import by_task, closed_ports, enumerate_closed, wait_until_open
from .strategy import is_loopback, stay_on_loopback, strategy_for
from .tensorflow_errors import explain

_SERVERS = ("ps", "worker")


class Client:
    """A connection to the servers of one In-Graph cluster. Made by `connect`.

    Attributes:
        name: the run, `digits-2`.
        addresses: `host:port` of the parameter servers and workers, by task type.
        server: what the tasks run, native or python.
        timeout: seconds that each client object may wait for the tasks.
        operation_timeout: seconds that one call of a TensorFlow 1 session may take.
    """

    def __init__(
        self,
        addresses: Mapping[str, Sequence[str]],
        *,
        name: str,
        server: ServerKind,
        timeout: float,
        operation_timeout: float,
    ) -> None:
        self.name = name
        self.addresses = {kind: tuple(addresses[kind]) for kind in _SERVERS if addresses.get(kind)}
        self.server = server
        self.timeout = timeout
        self.operation_timeout = operation_timeout
        self._tasks = by_task(self.addresses)

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(hosts)} {kind}" for kind, hosts in self.addresses.items())
        return f"<Client of {self.name}: {counts}; target {self.target}>"

    @property
    def target(self) -> str:
        """What a TensorFlow 1 session connects to: `grpc://` and the address of worker-0."""
        return f"grpc://{self.addresses['worker'][0]}"

    def session_config(self, **fields: Any) -> Any:
        """A `tf.compat.v1.ConfigProto` for sessions on `target`; `fields` are further fields of it.

        Every call on the session, its creation included, then ends after `operation_timeout` with
        DeadlineExceededError. Without it a session waits for a lost task without end, deaf to
        interrupts.
        """
        fields.setdefault("operation_timeout_in_ms", int(self.operation_timeout * 1000))
        return load_tensorflow().compat.v1.ConfigProto(**fields)

    def session(self, graph: Any = None, config: Any = None) -> Any:
        """A `tf.compat.v1.Session` on the cluster, for `graph` or the default one.

        Raises:
            WaitTimeout: a task does not accept connections.
        """
        self._wait_until_open()
        tf = load_tensorflow()
        return tf.compat.v1.Session(
            self.target, graph=graph, config=config or self.session_config()
        )

    def resolver(self) -> Any:
        """A `tf.distribute.cluster_resolver.SimpleClusterResolver` of the cluster."""
        tf = load_tensorflow()
        stay_on_loopback(self._tasks)  # whoever asks makes a strategy of it, which listens here
        jobs = {kind: list(hosts) for kind, hosts in self.addresses.items()}
        if not is_loopback(self._tasks):
            jobs["chief"] = [own_address(self._tasks)]
        spec = tf.train.ClusterSpec(jobs)
        return tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")

    def strategy(self, variable_partitioner: Any = None) -> Any:
        """The `tf.distribute.ParameterServerStrategy` of this cluster.

        The same object again as long as the parameter servers live; a new one after one was
        restarted. Warns with `LegacyKerasNeeded` when `tf.keras` is Keras 3, whose `model.fit`
        cannot work on it.

        Args:
            variable_partitioner: as in TensorFlow; used when the strategy is made.

        Raises:
            WaitTimeout: a task does not accept connections, or TensorFlow does not connect.
            ClientUnsupported: no parameter server, or this process drives another cluster that
            still lives.
        """
        if "ps" not in self.addresses:
            raise ClientUnsupported(
                _(
                    "{name} has no parameter server, and ParameterServerStrategy needs at least "
                    "one: launch with `--ps 1`, or use a TensorFlow 1 session (cluster.session())"
                ).format(name=self.name)
            )
        self._wait_until_open()
        return strategy_for(
            self.name,
            self._tasks,
            self.resolver,
            timeout=self.timeout,
            partitioner=variable_partitioner,
        )

    def coordinator(self) -> Any:
        """The `tf.distribute.coordinator.ClusterCoordinator` of `strategy()`, one for each."""
        return load_tensorflow().distribute.coordinator.ClusterCoordinator(self.strategy())

    def explain(self, error: BaseException) -> str | None:
        """What an error of work on this cluster means and what to do; None if unknown."""
        known = explain(error)
        if known is None:
            return None
        gone = closed_ports(self._tasks) if known.lost else []
        if gone:
            return _(
                "{name} has lost {tasks}; `tfcluster status {name}` "
                "says why, and whether it is being restarted. {meaning}"
            ).format(name=self.name, tasks=enumerate_closed(gone), meaning=known.text)
        return known.text

    @contextmanager
    def explained(self) -> Iterator[None]:
        """In a script: an error of TensorFlow that we know becomes one that says what to do.

        A notebook needs no such thing: the explanation appears below the failed cell.

        Raises:
            ClientUnsupported: what was asked for cannot work here.
            BackendUnavailable: a task was lost, or gave no answer in time.
        """
        try:
            yield
        except Exception as error:  # any type may be one that we know; others go on unchanged
            known = explain(error)
            if known is None:
                raise
            kind = BackendUnavailable if known.lost else ClientUnsupported
            raise kind(self.explain(error)) from error

    def _wait_until_open(self) -> None:
        wait_until_open(self._tasks, name=self.name, timeout=self.timeout)


def connect(
    addresses: Mapping[str, Sequence[str]],
    *,
    name: str,
    server: ServerKind | str = ServerKind.NATIVE,
    timeout: float = 60.0,
    operation_timeout: float = 15.0,
) -> Client:
    """Wait until every task of an In-Graph cluster accepts connections, and give a client for it.

    TensorFlow is not imported: `target` needs none, and the client's objects import it when asked
    for.

    Args:
        addresses: `host:port` by task type.
        name: the run, for messages.
        server: what the tasks run.
        timeout: seconds to wait for the tasks, here and before each client object.
        operation_timeout: seconds that one call of a TensorFlow 1 session may take.

    Raises:
        ClientUnsupported: there is no worker to connect to.
        WaitTimeout: some tasks do not accept connections; they are named.
    """
    if not addresses.get("worker"):
        raise ClientUnsupported(
            _("{name} has no worker to connect to: launch it with `--workers 1` or more").format(
                name=name
            )
        )
    client = Client(
        addresses,
        name=name,
        server=ServerKind(server),
        timeout=timeout,
        operation_timeout=operation_timeout,
    )
    client._wait_until_open()
    prepare_channels()
    notebook.explain_failures_of(client)
    return client
