"""`connect` and `Client`: the objects with which a notebook drives an In-Graph cluster.

Nothing blocks forever: each object first waits until the tasks are ready, and every call to
TensorFlow after that has a timeout. This module owns no process and no file; closing a notebook
does not change the cluster.

Servers in pods reach the notebook at `client_address`, for example when parameter servers write a
checkpoint. TensorFlow itself would name `localhost` to the servers as the address of their client.
A process has one such address, on a port that the NetworkPolicy of In-Graph runs opens for tasks.
"""

from __future__ import annotations

import errno
import socket
import sys
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import BackendUnavailable, ClientUnsupported
from ..i18n import _
from ..kube.api.labels import CLIENT_PORTS
from ..spec import ServerKind
from .readiness import addresses_by_task, closed_ports, enumerate_closed, wait_until_open
from .strategy import is_loopback, load_tensorflow, prepare_channels, stay_on_loopback, strategy_for
from .tensorflow_errors import explain

_client_addresses: dict[str, str] = {}


def client_address(tasks: Mapping[str, str]) -> str:
    """Return `host:port` at which the servers at `tasks` reach this process; the same for all
    clusters.

    Raises:
        ClientUnsupported: every port in CLIENT_PORTS is in use.
    """
    host = _host_towards(next(iter(tasks.values())))
    if host not in _client_addresses:
        _client_addresses[host] = f"{host}:{_free_port(host)}"
    return _client_addresses[host]


def _host_towards(address: str) -> str:
    """Return this machine's address on the route to `address`. Sends nothing."""
    host, _colon, port = address.rpartition(":")
    family, kind, _protocol, _name, where = socket.getaddrinfo(
        host.strip("[]"), int(port), type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind) as probe:
        probe.connect(where)
        found: str = probe.getsockname()[0]
    return f"[{found}]" if family == socket.AF_INET6 else found


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    first, last = CLIENT_PORTS
    for port in range(first, last + 1):
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((host.strip("[]"), port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return port
    raise ClientUnsupported(
        _(
            "{count} notebooks of this pod already use strategies: restart a kernel "
            "that no longer needs one"
        ).format(count=last - first + 1)
    )


# -- the client ------------------------------------------------------------------------------------

_SERVERS = ("ps", "worker")


class Client:
    """A connection to the servers of one In-Graph cluster, made by `connect`.

    Attributes:
        name: the name of the run, such as `digits-2`.
        addresses: `host:port` of the parameter servers and workers, by task type.
        server: the kind of server that the tasks run, `native` or `python`.
        timeout: seconds that each client object waits for the tasks.
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
        self._tasks = addresses_by_task(self.addresses)

    def __repr__(self) -> str:
        counts = ", ".join(f"{len(hosts)} {kind}" for kind, hosts in self.addresses.items())
        return f"<Client of {self.name}: {counts}; target {self.target}>"

    @property
    def target(self) -> str:
        """The target of a TensorFlow 1 session: `grpc://` and the address of worker-0."""
        return f"grpc://{self.addresses['worker'][0]}"

    def session_config(self, **fields: Any) -> Any:
        """Return a `tf.compat.v1.ConfigProto` for sessions on `target`, with further `fields`.

        Every call on the session, including its creation, then fails after `operation_timeout` with
        DeadlineExceededError. Without this setting a session waits forever for a lost task and
        cannot be interrupted.
        """
        fields.setdefault("operation_timeout_in_ms", int(self.operation_timeout * 1000))
        return load_tensorflow().compat.v1.ConfigProto(**fields)

    def session(self, graph: Any = None, config: Any = None) -> Any:
        """Return a `tf.compat.v1.Session` on the cluster, for `graph` or the default one.

        Raises:
            WaitTimeout: a task does not accept connections.
        """
        self._wait_until_open()
        tf = load_tensorflow()
        return tf.compat.v1.Session(
            self.target, graph=graph, config=config or self.session_config()
        )

    def resolver(self) -> Any:
        """Return a `tf.distribute.cluster_resolver.SimpleClusterResolver` of the cluster."""
        tf = load_tensorflow()
        stay_on_loopback(self._tasks)  # a strategy made from this resolver listens in this process
        jobs = {kind: list(hosts) for kind, hosts in self.addresses.items()}
        if not is_loopback(self._tasks):
            jobs["chief"] = [client_address(self._tasks)]
        spec = tf.train.ClusterSpec(jobs)
        return tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")

    def strategy(self, variable_partitioner: Any = None) -> Any:
        """Return the `tf.distribute.ParameterServerStrategy` of this cluster.

        Calls return the same object until a parameter server restarts. Warns with
        `LegacyKerasNeeded` if `tf.keras` is Keras 3, whose `model.fit` cannot use a strategy.

        Args:
            variable_partitioner: the argument of TensorFlow's ParameterServerStrategy; used only
                when a new strategy is made.

        Raises:
            WaitTimeout: a task does not accept connections, or TensorFlow does not connect.
            ClientUnsupported: the cluster has no parameter server, or this process drives another
                cluster that is still alive.
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
        """Return the `tf.distribute.coordinator.ClusterCoordinator` of `strategy()`."""
        return load_tensorflow().distribute.coordinator.ClusterCoordinator(self.strategy())

    def explain(self, error: BaseException) -> str | None:
        """Return an explanation of an error from work on this cluster, and what to do; None if
        unknown.
        """
        known = explain(error)
        if known is None:
            return None
        gone = closed_ports(self._tasks) if known.lost else []
        if gone:
            return _(
                "{name} has lost {tasks}; `tfcluster status {name}` "
                "says why, and whether the run restarts them. {meaning}"
            ).format(name=self.name, tasks=enumerate_closed(gone), meaning=known.text)
        return known.text

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn a known TensorFlow error in a script into an error that says what to do.

        A notebook shows the explanation below the failed cell without this call.

        Raises:
            ClientUnsupported: the operation cannot work here.
            BackendUnavailable: a task was lost, or did not answer in time.
        """
        try:
            yield
        # a known error may have any type; unknown errors are raised unchanged
        except Exception as error:
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
    """Wait until every task of an In-Graph cluster accepts connections, and return a client for it.

    `connect` does not import TensorFlow. The client imports it when a method makes a TensorFlow
    object, such as a session or a strategy; `target` works without TensorFlow.

    Args:
        addresses: `host:port` by task type.
        name: the name of the run, for messages.
        server: the kind of server that the tasks run, `native` or `python`.
        timeout: seconds to wait for the tasks, here and each time the client makes a session or
            strategy.
        operation_timeout: seconds that one call of a TensorFlow 1 session may take.

    Raises:
        ClientUnsupported: there is no worker to connect to.
        WaitTimeout: some tasks do not accept connections; the message names them.
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
    explain_cell_failures(client)
    return client


# -- in IPython ------------------------------------------------------------------------------------
#
# A known TensorFlow error is explained below the cell that failed. IPython's `post_run_cell`
# event is used, so that exceptions keep their type and their traceback; IPython is never
# imported.

_newest_client: weakref.ref[Client] | None = None


def explain_cell_failures(client: Client) -> None:
    """Explain errors in later cells as errors on this client's cluster."""
    global _newest_client
    _newest_client = weakref.ref(client)
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and _explain_cell_failure not in shell.events.callbacks["post_run_cell"]:
        shell.events.register("post_run_cell", _explain_cell_failure)


def _explain_cell_failure(result: Any) -> None:
    client = _newest_client() if _newest_client is not None else None
    error = result.error_in_exec
    if client is None or error is None:
        return
    text = client.explain(error)
    if text is not None:
        print(f"\nTFCluster: {text}", file=sys.stderr)
