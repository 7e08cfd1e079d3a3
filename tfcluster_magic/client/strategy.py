"""ParameterServerStrategy, with what TensorFlow does not say: one cluster for each process, and
which Keras.

TensorFlow connects a process to one cluster at a time: a second strategy moves the first one,
silently, to the new cluster. This module owns the memory of which cluster that is (one for the
process, like TensorFlow's own) and refuses the second while the first lives. It never connects to
a cluster that it did not see open.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from ..errors import ClientUnsupported, WaitTimeout
from ..i18n import _
from ..spec.loopback import guard_this_process
from .environment import load_tensorflow, quieten_coordination
from .readiness import closed_ports
from .tensorflow_errors import KERAS_3

_PACKAGE = __name__.partition(".")[0]
_RECOVERY = (
    15.0  # after a restart a stale channel answers for a few seconds; the same as the keepalive's
)


class LegacyKerasNeeded(UserWarning):
    """`tf.keras` is Keras 3, whose `model.fit` cannot work with ParameterServerStrategy."""


@dataclass(frozen=True)
class _Attached:
    """The one cluster that TensorFlow in this process is connected to."""

    name: str
    tasks: Mapping[str, str]
    strategy: Any


_attached: _Attached | None = None
_lock = threading.Lock()


def strategy_for(
    name: str,
    tasks: Mapping[str, str],
    resolver: Callable[[], Any],
    *,
    timeout: float,
    partitioner: Any = None,
) -> Any:
    """The strategy of this cluster: the one that this process has, or a new one.

    A new one is made when there is none, and when a parameter server was restarted (its variables
    are gone then).

    Raises:
        ClientUnsupported: the process is connected to another cluster that still lives.
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
        strategy = _bounded(
            lambda: make(resolver(), variable_partitioner=partitioner), name, timeout
        )
        _attached = _Attached(name, dict(tasks), strategy)
        _wait_until_alive(tf, name, tasks)
        return strategy


def stay_on_loopback(tasks: Mapping[str, str]) -> None:
    """Make the server that a strategy starts in this process listen where `tasks` do.

    Call after TensorFlow was imported. Elsewhere than on Linux tasks have no guard either.

    Raises:
        TFClusterError: the guard cannot be used here.
    """
    if sys.platform == "linux" and is_loopback(tasks):
        guard_this_process()


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
            "strategy for {name} would silently move {first}'s variables and steps there. Stop "
            "the first (`tfcluster stop {first}`), restart the kernel, or drive {name} from "
            "another notebook. TensorFlow 1 sessions (cluster.target) may use many clusters at "
            "once."
        ).format(first=first.name, name=name)
    )


def _bounded(call: Callable[[], Any], name: str, timeout: float) -> Any:
    """Run `call` in a thread, so that waiting for it ends in time and can be interrupted."""
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
    """Whether every parameter server still knows this process; a restarted one does not."""
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
    """The stack level of the line outside this package that asked: the one to show."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        depth, frame = depth + 1, frame.f_back
    return depth


def is_loopback(tasks: Mapping[str, str]) -> bool:
    """Whether all tasks are on this machine, and nobody else can reach them."""

    def loopback(address: str) -> bool:
        host = address.rpartition(":")[0].strip("[]")
        try:
            return ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"

    return all(loopback(address) for address in tasks.values())
