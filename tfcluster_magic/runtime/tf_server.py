"""A bare TensorFlow server for one In-Graph task, through TensorFlow's C API and without importing TensorFlow.

Reads TF_CONFIG; `--server python` runs tf.distribute.Server instead (for programs that use py_function), and
the C API falls back to it by itself where it is missing or fails, saying so in one line. It never ends by
itself once it serves. Standard library only, Python 3.8 syntax.
"""

from __future__ import annotations

import json
import os
import signal
import sys

# Our folder must not offer its modules to TensorFlow's imports.
sys.path[:1] = []

PORT_TAKEN = 98
FRAMEWORK = "libtensorflow_framework.so.2"
LIBRARIES = ("libtensorflow_cc.so.2", "python/_pywrap_tensorflow_internal.so")
FUNCTIONS = ("TF_NewStatus", "TF_GetCode", "TF_Message", "TF_NewServer", "TF_ServerStart", "TF_ServerJoin")


class Unusable(Exception):
    """The C API cannot be used here; the message says why."""


def varint(number: int) -> bytes:
    """A number in protobuf's variable length."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, value: object) -> bytes:
    """One protobuf field: an int as varint, text or bytes with its length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode("utf-8") if isinstance(value, str) else bytes(value)  # type: ignore[call-overload]
    return varint(number << 3 | 2) + varint(len(data)) + data


def server_def(cluster: dict, job: str, index: int, intra: int, inter: int) -> bytes:
    """tensorflow.ServerDef: cluster=1 job_name=2 task_index=3 default_session_config=4 protocol=5."""
    jobs = b""
    for name, hosts in cluster.items():
        # JobDef: name=1 tasks=2 (a map: key=1 value=2)
        job_def = field(1, name)
        for number, host in enumerate(hosts):
            job_def += field(2, field(1, number) + field(2, host))
        jobs += field(1, job_def)
    # ConfigProto: intra_op_parallelism_threads=2 inter_op_parallelism_threads=5; 0 is TensorFlow's default
    config = field(2, intra) + field(5, inter)
    return field(1, jobs) + field(2, job) + field(3, index) + field(4, config) + field(5, "grpc")


def _load(names: tuple) -> dict:
    import ctypes
    import importlib.util

    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        raise Unusable("TensorFlow is not installed for %s" % sys.executable)
    folder = list(spec.submodule_search_locations)[0]
    libraries = []
    try:
        # The others find its symbols only when it is loaded first and for all to see.
        libraries.append(ctypes.CDLL(os.path.join(folder, FRAMEWORK), mode=ctypes.RTLD_GLOBAL))
        for name in LIBRARIES:
            path = os.path.join(folder, name)
            if os.path.exists(path):
                libraries.insert(0, ctypes.CDLL(path))
                break
    except OSError as error:
        raise Unusable(str(error))
    found = {}
    for name in names:
        for library in libraries:
            if hasattr(library, name):
                found[name] = getattr(library, name)
                break
        else:
            raise Unusable("this TensorFlow has no %s" % name)
    pointer = ctypes.c_void_p
    types = {
        "TF_NewStatus": (pointer, []),
        "TF_GetCode": (ctypes.c_int, [pointer]),
        "TF_Message": (ctypes.c_char_p, [pointer]),
        "TF_NewServer": (pointer, [ctypes.c_char_p, ctypes.c_size_t, pointer]),
        "TF_ServerStart": (None, [pointer, pointer]),
        "TF_ServerJoin": (None, [pointer, pointer]),
    }
    for name, (result, arguments) in types.items():
        found[name].restype, found[name].argtypes = result, arguments
    return found


def serve_native(cluster: dict, job: str, index: int) -> None:
    """Serve through the C API; does not return once the server is up. Raises Unusable."""
    api = _load(FUNCTIONS)
    status = api["TF_NewStatus"]()

    def check() -> None:
        if api["TF_GetCode"](status):
            raise Unusable(api["TF_Message"](status).decode("utf-8", "replace").strip())

    threads = [int(os.environ.get("TF_NUM_%s_THREADS" % n) or 0) for n in ("INTRAOP", "INTEROP")]
    wanted = server_def(cluster, job, index, *threads)
    server = api["TF_NewServer"](wanted, len(wanted), status)
    check()
    api["TF_ServerStart"](server, status)
    check()
    say("%s-%d serves on %s" % (job, index, cluster[job][index]))
    api["TF_ServerJoin"](server, status)


def serve_python(cluster: dict, job: str, index: int) -> None:
    """Serve through tf.distribute.Server; does not return."""
    import tensorflow as tf

    server = tf.distribute.Server(cluster, job_name=job, task_index=index, protocol="grpc")
    say("%s-%d serves on %s with tf.distribute.Server" % (job, index, cluster[job][index]))
    server.join()


def port_is_taken(address: str) -> bool:
    """Whether somebody else holds the port; a reserved one that may be shared counts as free."""
    import errno
    import socket

    shared = os.environ.get("TF_GRPC_REUSE_PORT", "").lower() in ("true", "1")
    for family, host in ((socket.AF_INET, ""), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                option = socket.SO_REUSEPORT if shared else socket.SO_REUSEADDR
                probe.setsockopt(socket.SOL_SOCKET, option, 1)
                probe.bind((host, int(address.rpartition(":")[2])))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return True
    return False


def say(text: str) -> None:
    """One line in the task's log."""
    sys.stdout.write("tfcluster: %s\n" % text)
    sys.stdout.flush()


def main(argv: list) -> int:
    """Serve the task that TF_CONFIG names; the exit status."""
    # A signal must end the server although its main thread never comes back from C.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        config = json.loads(os.environ["TF_CONFIG"])
        cluster, job, index = config["cluster"], config["task"]["type"], int(config["task"]["index"])
        address = cluster[job][index]
    except (KeyError, ValueError, IndexError, TypeError) as error:
        say("TF_CONFIG does not describe a task of a cluster: %r" % error)
        return 2
    if port_is_taken(address):
        return _say_taken(address)
    try:
        if argv[1:] == ["--server", "python"]:
            serve_python(cluster, job, index)
        else:
            serve_native(cluster, job, index)
    except Exception as error:
        # TensorFlow raises its own kinds; which one says less than whether the port was free.
        if port_is_taken(address):
            return _say_taken(address)
        if not isinstance(error, Unusable):
            say("the server cannot start: %s" % (str(error).strip() or repr(error)))
            return 1
        say("TensorFlow's C API cannot serve (%s); going on with tf.distribute.Server" % error)
        # A fresh process: what the C API has left in this one must not matter.
        os.execv(sys.executable, [sys.executable, os.path.abspath(__file__), "--server", "python"])
    return 0


def _say_taken(address: str) -> int:
    port = address.rpartition(":")[2]
    say("port %s is taken by another process; the server of %s cannot start" % (port, address))
    return PORT_TAKEN


if __name__ == "__main__":
    sys.exit(main(sys.argv))
