"""The setup of TensorFlow in the client, and the ParameterServerStrategy of a cluster.

TensorFlow connects a process to one cluster at a time: a second strategy silently moves the first
one to the new cluster. This module remembers the connected cluster and refuses a second one while
the first is alive. The module connects only to a cluster whose ports it has found open.

This module sets environment variables that TensorFlow reads once. A value that the user has set
always takes precedence. TensorFlow is imported only when a client object is created. TensorFlow
reads `TF_CPP_MIN_LOG_LEVEL` during the import and `TF_GRPC_DEFAULT_OPTIONS` when it opens its first
channel. A client needs no setting for inter-op threads: only servers can run out of them
(`runtime/` gives servers at least 8).
"""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from ipaddress import ip_address
from typing import Any

from ..errors import ClientUnsupported, TFClusterError, WaitTimeout
from ..i18n import _, mark
from ..spec import task_file
from .readiness import closed_ports
from .tensorflow_errors import KERAS_3

GRPC_OPTIONS = "TF_GRPC_DEFAULT_OPTIONS"
LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"

_GRPC_DEFAULTS = {
    # With these two options, a lost node that closes no connection is noticed after 15 s.
    "grpc.keepalive_time_ms": "10000",
    "grpc.keepalive_timeout_ms": "5000",
    # otherwise `http_proxy` applies even to 127.0.0.1, and TensorFlow waits forever
    "grpc.enable_http_proxy": "0",
}


def merged_grpc_options(given: str) -> str:
    """Return the user's gRPC options, completed with our defaults."""
    options = [part for part in given.split(",") if part.strip()]
    named = {part.partition("=")[0].strip() for part in options}
    return ",".join(
        options + [f"{key}={value}" for key, value in _GRPC_DEFAULTS.items() if key not in named]
    )


def prepare_channels() -> None:
    """Set the gRPC options for future channels; warn if TensorFlow has already connected."""
    given = os.environ.get(GRPC_OPTIONS, "")
    wanted = merged_grpc_options(given)
    if wanted == given:
        return
    os.environ[GRPC_OPTIONS] = wanted
    if _is_already_connected():
        warnings.warn(
            _(
                "TensorFlow was connected to a cluster before this client was made and keeps its "
                "first gRPC options: this process may hang when a machine is lost, and it connects "
                "through http_proxy. To avoid that, restart the kernel and connect first, or set "
                "{variable}={wanted}"
            ).format(variable=GRPC_OPTIONS, wanted=wanted),
            RuntimeWarning,
            stacklevel=3,
        )


def load_tensorflow() -> Any:
    """Import TensorFlow and return it. Its C++ log shows only fatal errors unless the user chose a
    level.

    When a client attaches again, TensorFlow logs hundreds of harmless errors ("Failed to remove
    function remotely"). Every relevant error is raised in Python too.
    """
    if "tensorflow" in sys.modules:
        return sys.modules["tensorflow"]
    with _default_variable(LOG_LEVEL, "3"):
        return import_module("tensorflow")


def quieten_coordination(tensorflow: Any) -> None:
    """Undo the INFO level of TensorFlow's Python log in notebooks, at which `coordinator.join()`
    prints each line twice. A level that the user sets later stays.
    """
    logger = tensorflow.get_logger()
    if logger.level == logging.INFO:
        logger.setLevel(logging.WARNING)


@contextmanager
def _default_variable(name: str, value: str) -> Iterator[None]:
    """Within this context, give an environment variable a value if it has none. The variable is
    removed afterwards, because tasks that are launched later would inherit it.
    """
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def _is_already_connected() -> bool:
    """Return whether eager TensorFlow in this process is connected to a cluster. A TensorFlow 1
    session cannot be detected.
    """
    context = sys.modules.get("tensorflow.python.eager.context")
    return context is not None and context.context().get_server_def() is not None


# -- the strategy ----------------------------------------------------------------------------------

_PACKAGE = __name__.partition(".")[0]
# Seconds to wait for restarted parameter servers. A channel to the old process may seem alive until
# gRPC's keepalive notices that the process has ended. That takes as long as the two keepalive times
# above together.
_RECOVERY = 15.0


class LegacyKerasNeeded(UserWarning):
    """Warning: `tf.keras` is Keras 3, whose `model.fit` fails with ParameterServerStrategy."""


@dataclass(frozen=True)
class _AttachedCluster:
    """The cluster to which TensorFlow in this process is connected."""

    name: str
    tasks: Mapping[str, str]
    strategy: Any


_attached: _AttachedCluster | None = None
_lock = threading.Lock()


def strategy_for(
    name: str,
    tasks: Mapping[str, str],
    resolver: Callable[[], Any],
    *,
    timeout: float,
    partitioner: Any = None,
) -> Any:
    """Return the existing strategy of this process for this cluster, or a new one.

    A new strategy is made if none exists, or if a parameter server restarted and lost its
    variables.

    Raises:
        ClientUnsupported: the process is connected to another cluster that is still alive.
        WaitTimeout: TensorFlow did not connect in `timeout` seconds.
    """
    global _attached
    with _lock:
        _refuse_second(name, tasks)
        tf = load_tensorflow()
        if _attached and (_attached.name, _attached.tasks) == (name, tasks) and _alive(tf, tasks):
            return _attached.strategy
        stay_on_loopback(tasks)
        if _attached is None:
            quieten_coordination(tf)
        _warn_about_keras(tf)
        make = tf.distribute.ParameterServerStrategy
        strategy = _with_timeout(
            lambda: make(resolver(), variable_partitioner=partitioner), name, timeout
        )
        _attached = _AttachedCluster(name, dict(tasks), strategy)
        _wait_until_alive(tf, name, tasks)
        return strategy


def stay_on_loopback(tasks: Mapping[str, str]) -> None:
    """If all `tasks` listen on loopback, make servers in this process listen on loopback only. A
    strategy starts such a server.

    Call it after TensorFlow was imported. A guard library does the work, and it exists only for
    Linux: on other systems, neither the client nor a task is guarded.

    Raises:
        TFClusterError: the guard library cannot be used here.
    """
    if sys.platform == "linux" and is_loopback(tasks):
        guard_this_process()


_EXPOSED_WARNING = mark("TensorFlow in this process would listen on every network address")


def guard_this_process() -> int:
    """Make the loaded TensorFlow and gRPC libraries listen on loopback only.

    Call it after `import tensorflow` and before a server or strategy is made. Repeated calls are
    harmless.

    Returns:
        The number of call sites of bind(), listen() and accept() that the guard redirects; 0 if
            TensorFlow is not loaded and nothing is guarded.

    Raises:
        TFClusterError: the guard library is not built or cannot be loaded here.
    """
    if task_file.guard_path() is None:
        source = task_file.GUARD_LIBRARY.with_name("loopback_guard.c")
        raise TFClusterError(
            _(
                "{exposed}: the guard {library} is missing. Reinstall tfcluster-magic on Linux, or "
                "build it: cc -shared -fPIC -O2 -o {library} {source} -ldl"
            ).format(exposed=_(_EXPOSED_WARNING), library=task_file.GUARD_LIBRARY, source=source)
        )
    try:
        guard = ctypes.CDLL(str(task_file.GUARD_LIBRARY)).tfcluster_guard_loaded_libraries
    except (OSError, AttributeError) as error:
        raise TFClusterError(
            _(
                "{exposed}: the guard cannot be used here ({error}). Reinstall tfcluster-magic."
            ).format(exposed=_(_EXPOSED_WARNING), error=error)
        ) from None
    guard.restype, guard.argtypes = ctypes.c_int, []
    return int(guard())


def _refuse_second(name: str, tasks: Mapping[str, str]) -> None:
    first = _attached
    if first is None or (first.name, first.tasks) == (name, tasks):
        return
    others = {
        task: address for task, address in first.tasks.items() if address not in tasks.values()
    }
    if len(closed_ports(others)) == len(others):
        return
    raise ClientUnsupported(
        _(
            "this process already drives {first}, and TensorFlow keeps one cluster at a time: a "
            "strategy for {name} would silently move {first}'s variables and steps to {name}. "
            "Stop {first} (`tfcluster stop {first}`), restart the kernel, or drive {name} from "
            "another notebook. TensorFlow 1 sessions (cluster.target) may use many clusters at "
            "once."
        ).format(first=first.name, name=name)
    )


def _with_timeout(call: Callable[[], Any], name: str, timeout: float) -> Any:
    """Run `call` in a thread, so that the wait has a timeout and can be interrupted."""
    outcome: dict[str, Any] = {}

    def run() -> None:
        try:
            outcome["value"] = call()
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            outcome["error"] = error

    thread = threading.Thread(target=run, name="tfcluster-connect", daemon=True)
    thread.start()
    thread.join(timeout)
    if thread.is_alive():
        raise WaitTimeout(
            _(
                "TensorFlow did not connect to {name} in {seconds:g} s although every task accepts "
                "connections; it keeps trying and cannot be stopped. Look at `tfcluster logs "
                "{name}`, then restart this kernel."
            ).format(name=name, seconds=timeout)
        )
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]


def _alive(tf: Any, tasks: Mapping[str, str]) -> bool:
    """Return whether every parameter server still knows this process; a restarted server does
    not.
    """
    try:
        for index in range(sum(task.startswith("ps-") for task in tasks)):
            with tf.device(f"/job:ps/replica:0/task:{index}/device:CPU:0"):
                tf.identity(tf.constant(0))
    except tf.errors.OpError:
        return False
    return True


def _wait_until_alive(tf: Any, name: str, tasks: Mapping[str, str]) -> None:
    deadline = time.monotonic() + _RECOVERY
    pause = threading.Event()
    while not _alive(tf, tasks):
        if time.monotonic() >= deadline:
            raise WaitTimeout(
                _(
                    "the parameter servers of {name} accept connections but run nothing for this "
                    "process: look at `tfcluster logs {name}`, then call strategy() again"
                ).format(name=name)
            )
        pause.wait(0.2)


def _warn_about_keras(tf: Any) -> None:
    version = str(getattr(tf.keras, "__version__", ""))
    if not version.startswith("3."):
        return
    installed = importlib.util.find_spec("tf_keras") is not None
    hint = _("tf_keras is installed") if installed else _("after `pip install --no-deps tf-keras`")
    warnings.warn(
        _(KERAS_3).format(tf_keras=f" ({hint})"), LegacyKerasNeeded, stacklevel=_depth_of_caller()
    )


def _depth_of_caller() -> int:
    """Return the `stacklevel` with which a warning names the caller's line outside this package."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        depth, frame = depth + 1, frame.f_back
    return depth


def is_loopback(tasks: Mapping[str, str]) -> bool:
    """Return whether all tasks listen on loopback, where no other machine can reach them."""

    def loopback(address: str) -> bool:
        host = address.rpartition(":")[0].strip("[]")
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    return all(loopback(address) for address in tasks.values())
