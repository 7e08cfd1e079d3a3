"""A bare TensorFlow server for an In-Graph task: the C API, without importing TensorFlow's Python.

The server is started as `python <the runtime> tf_server` and reads TF_CONFIG. It runs
tf.distribute.Server instead of the C API if the arguments are `--server python`, or if the C API is
missing or fails. If the C API is missing or fails, the reason is written to the log. A running
server never ends by itself. Standard library only, Python 3.8.
"""

from __future__ import annotations

import json
import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The exit status if the port is taken; 98 is EADDRINUSE on Linux.
PORT_TAKEN = 98
FRAMEWORK = "libtensorflow_framework.so.2"
# The libraries with TensorFlow's C API: the first one since version 2.12, the second one before.
LIBRARIES = ("libtensorflow_cc.so.2", "python/_pywrap_tensorflow_internal.so")


class UnusableError(Exception):
    """The C API cannot serve here; the message says why."""


def varint(number: int) -> bytes:
    """Encode a number as a protobuf varint."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, value: int | str | bytes) -> bytes:
    """Encode one protobuf field: an int as varint, a text or message after its length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode("utf-8") if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def server_def(
    cluster: dict[str, list[str]], job: str, index: int, intra: int, inter: int
) -> bytes:
    """Encode a tensorflow.ServerDef (tensorflow_server.proto). `intra` and `inter` are numbers of
    threads; 0 stands for TensorFlow's default.
    """
    jobs = b""
    for name, hosts in cluster.items():
        # JobDef: name=1, tasks=2, a map with key=1 and value=2
        tasks = [field(2, field(1, number) + field(2, host)) for number, host in enumerate(hosts)]
        jobs += field(1, field(1, name) + b"".join(tasks))
    # ConfigProto: intra_op_parallelism_threads=2, inter_op_parallelism_threads=5
    config = field(2, intra) + field(5, inter)
    # ServerDef: cluster=1, job_name=2, task_index=3, default_session_config=4, protocol=5
    return field(1, jobs) + field(2, job) + field(3, index) + field(4, config) + field(5, "grpc")


class NativeApi:
    """The few functions of TensorFlow's C API that a server needs. Raises UnusableError."""

    def __init__(self) -> None:
        import ctypes

        self._ctypes = ctypes
        self._libraries = self._load()
        pointer, text = ctypes.c_void_p, ctypes.c_char_p
        self._code = self._function("TF_GetCode", ctypes.c_int, pointer)
        self._message = self._function("TF_Message", text, pointer)
        self._new = self._function("TF_NewServer", pointer, text, ctypes.c_size_t, pointer)
        self._start = self._function("TF_ServerStart", None, pointer, pointer)
        self._join = self._function("TF_ServerJoin", None, pointer, pointer)
        self._status = self._function("TF_NewStatus", pointer)()

    def _load(self) -> list[Any]:
        from importlib.util import find_spec

        spec = find_spec("tensorflow")
        if spec is None or not spec.submodule_search_locations:
            raise UnusableError(f"no TensorFlow for {sys.executable}")
        folder = next(iter(spec.submodule_search_locations))
        paths = [os.path.join(folder, name) for name in LIBRARIES]
        path = next(filter(os.path.exists, paths), paths[0])
        try:
            # The library with the C API needs symbols of FRAMEWORK, so FRAMEWORK is loaded first,
            # and its symbols are made global.
            framework = self._ctypes.CDLL(
                os.path.join(folder, FRAMEWORK), mode=self._ctypes.RTLD_GLOBAL
            )
            return [self._ctypes.CDLL(path), framework]
        except OSError as error:
            raise UnusableError(str(error)) from None

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        for library in self._libraries:
            if hasattr(library, name):
                found = getattr(library, name)
                found.restype, found.argtypes = result, arguments
                return found
        raise UnusableError(f"this TensorFlow has no {name}")

    def _check(self) -> None:
        if self._code(self._status):
            raise UnusableError(self._message(self._status).decode("utf-8", "replace").strip())

    def start(self, definition: bytes) -> Any:
        """Start a server and return it."""
        server = self._new(definition, len(definition), self._status)
        self._check()
        self._start(server, self._status)
        self._check()
        return server

    def join(self, server: Any) -> None:
        """Wait for the server, which never ends."""
        self._join(server, self._status)


def serve_native(cluster: dict[str, list[str]], job: str, index: int) -> None:
    """Serve through the C API; does not return. Raises UnusableError if the server cannot start."""
    api = NativeApi()
    threads = [int(os.environ.get(f"TF_NUM_{n}_THREADS") or 0) for n in ("INTRAOP", "INTEROP")]
    server = api.start(server_def(cluster, job, index, *threads))
    say(f"{job}-{index} serves on {cluster[job][index]}")
    api.join(server)


def serve_python(cluster: dict[str, list[str]], job: str, index: int) -> None:
    """Serve through tf.distribute.Server; does not return. Raises TensorFlow's errors."""
    import tensorflow as tf

    server = tf.distribute.Server(cluster, job_name=job, task_index=index, protocol="grpc")
    say(f"{job}-{index} serves on {cluster[job][index]}, through tf.distribute.Server")
    server.join()


def port_is_taken(address: str) -> bool:
    """Return whether another process uses the port. With TF_GRPC_REUSE_PORT, a port counts as free
    if the other process lets this one share it (SO_REUSEPORT).
    """
    import errno
    import socket

    shared = os.environ.get("TF_GRPC_REUSE_PORT", "").lower() in ("true", "1")
    option = socket.SO_REUSEPORT if shared else socket.SO_REUSEADDR
    for family, host in ((socket.AF_INET, ""), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, option, 1)
                probe.bind((host, int(address.rpartition(":")[2])))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
    return False


def say(text: str) -> None:
    """Print one line to the task's log."""
    sys.stdout.write(f"tfcluster: {text}\n")
    sys.stdout.flush()


def main(argv: list[str]) -> int:
    """Serve the task that TF_CONFIG names; return the exit status if that is impossible."""
    # Python's own handler of SIGINT would never run, because the main thread stays in C.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        config = json.loads(os.environ["TF_CONFIG"])
        cluster, task = config["cluster"], config["task"]
        job, index = task["type"], int(task["index"])
        address = cluster[job][index]
    except (KeyError, ValueError, IndexError, TypeError) as error:
        say(f"TF_CONFIG does not describe a task of a cluster: {error!r}")
        return 2
    serve = serve_python if argv[1:] == ["--server", "python"] else serve_native
    taken = (
        f"port {address.rpartition(':')[2]} is taken by another process: {job}-{index} cannot serve"
    )
    if port_is_taken(address):
        say(taken)
        return PORT_TAKEN
    try:
        serve(cluster, job, index)
    except UnusableError as error:
        say(f"TensorFlow's C API cannot serve ({error}); going on with tf.distribute.Server")
        # Replace the process, because the C API has left state in it. The new process checks the
        # port again.
        again = [sys.executable, sys.argv[0], "tf_server", "--server", "python"]
        os.execv(sys.executable, again)
    except Exception as error:  # not by type: TensorFlow's error types are not imported here
        if port_is_taken(address):
            say(taken)
            return PORT_TAKEN
        say(f"the server cannot start: {error}")
        return 1
    return 0
