"""Environment variables that TensorFlow's gRPC and its log read once: what the client sets, and
when.

Owns the client's defaults; a value that the user has set always wins. Imports TensorFlow
(`load_tensorflow`) but never before somebody asks for it.

`TF_GRPC_DEFAULT_OPTIONS` is read when TensorFlow opens its first channel, so it may be set after
the import. `TF_CPP_MIN_LOG_LEVEL` is read during the import. A client needs no setting of the
inter-op threads: only servers run out of them (`runtime/` gives those at least 8).
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ..i18n import _

GRPC_OPTIONS = "TF_GRPC_DEFAULT_OPTIONS"
LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"

_GRPC_DEFAULTS = {
    # A node that is lost without a word is noticed after 15 s, not never.
    "grpc.keepalive_time_ms": "10000",
    "grpc.keepalive_timeout_ms": "5000",
    # http_proxy would catch even 127.0.0.1, and TensorFlow then waits for ever.
    "grpc.enable_http_proxy": "0",
}


def merged_options(given: str) -> str:
    """The user's gRPC options, and our defaults for those that they do not name."""
    options = [part for part in given.split(",") if part.strip()]
    named = {part.partition("=")[0].strip() for part in options}
    return ",".join(
        options + [f"{key}={value}" for key, value in _GRPC_DEFAULTS.items() if key not in named]
    )


def prepare_channels() -> None:
    """Set the gRPC options for the channels still to be opened; warn if it is too late."""
    given = os.environ.get(GRPC_OPTIONS, "")
    wanted = merged_options(given)
    if wanted == given:
        return
    os.environ[GRPC_OPTIONS] = wanted
    if _already_connected():
        warnings.warn(
            _(
                "TensorFlow was connected to a cluster before this client was made and keeps its "
                "first gRPC options: a lost machine may hang this process, and http_proxy applies. "
                "To avoid that, restart the kernel and connect first, or set {variable}={wanted}"
            ).format(variable=GRPC_OPTIONS, wanted=wanted),
            RuntimeWarning,
            stacklevel=3,
        )


def load_tensorflow() -> Any:
    """TensorFlow, imported now if it was not, with its C++ log quiet below fatal unless the user
    chose a level.

    A client that attaches a second time makes TensorFlow log hundreds of harmless errors ("Failed
    to remove function remotely"); whatever matters is raised in Python too.
    """
    if "tensorflow" in sys.modules:
        return sys.modules["tensorflow"]
    with _default(LOG_LEVEL, "3"):
        return import_module("tensorflow")


def quieten_coordination(tensorflow: Any) -> None:
    """Take back the INFO level that TensorFlow's Python log has in notebooks only.

    There each `coordinator.join()` would print a line, twice. A level that the user sets after this
    stays.
    """
    logger = tensorflow.get_logger()
    if logger.level == logging.INFO:
        logger.setLevel(logging.WARNING)


@contextmanager
def _default(name: str, value: str) -> Iterator[None]:
    """Set a variable if it is not set, for a moment: tasks launched later must not inherit it."""
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def _already_connected() -> bool:
    """Whether eager TensorFlow here has a cluster; a TensorFlow 1 session leaves no trace."""
    context = sys.modules.get("tensorflow.python.eager.context")
    return context is not None and context.context().get_server_def() is not None
