"""Clients of the chaos tests, which can be killed at a given point: the program `python client.py`.

The program reads a list of requests from each line of its input, runs all of them at once, each in
its own process, and prints a list of results. A request with a `namespace` goes to Kubernetes. A
request with `dies: 7` is killed (or interrupted, as by Ctrl-C) just before its seventh operation on
the disk, on processes or on the API server. Unlike a kill after some seconds, such a kill comes at
the same point each time. A request with `lives: 5` is killed after five seconds.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from tfcluster_magic.backends.base import Backend
from tfcluster_magic.backends.kubernetes.backend import KubernetesBackend
from tfcluster_magic.backends.local.backend import LocalBackend
from tfcluster_magic.errors import TFClusterError
from tfcluster_magic.launch import LaunchRequest
from tfcluster_magic.runs.manager import ClusterManager
from tfcluster_magic.spec import Spec, TFCluster

ACTS = {
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.chmod",
    "os.utime",
    "fcntl.flock",
    "http.client.send",
    "subprocess.Popen",
}
"""Audit events that count as operations, besides opening a file to write. Ref: docs.python.org,
audit events.
"""
AFTERWARDS = {"_says_something", "load", "getresponse"}
"""Functions whose calls count as operations once the supervisor has started or a request was sent.
"""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def dies(at: int, how: str) -> None:
    """End this process just before its operation number `at`."""
    left = at

    def count() -> None:
        nonlocal left
        left -= 1
        if not left:
            sys.setprofile(None)
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise KeyboardInterrupt

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("subprocess.Popen", "http.client.send"):
            sys.setprofile(follow)
        if event in ACTS or (event == "open" and arguments[2] & WRITES):
            count()

    def follow(frame: FrameType, what: str, _: object) -> None:
        if what == "call" and frame.f_code.co_name in AFTERWARDS:
            count()

    sys.addaudithook(look)


def ambush(cluster: str, after: float) -> None:
    """Kill a supervisor of `cluster` `after` seconds after its start; do nothing if none starts."""
    mark = f"/runs/{cluster}/".encode()
    deadline = time.monotonic() + 2.0
    while time.monotonic() < deadline:
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
                own = os.environ["TFCLUSTER_STATE_DIR"].encode() + mark
                if b"-I" in words and any(word.startswith(own) for word in words):
                    time.sleep(after)
                    os.kill(int(entry), signal.SIGKILL)
                    return
        time.sleep(0.01)


def carry_out(wish: dict[str, Any]) -> TFCluster | None:
    """Carry out one request; return the run that a launch or a rerun made, otherwise None."""
    manager = ClusterManager(_backend(wish))
    ref: str = wish["ref"]
    if wish["verb"] == "launch":
        spec = msgspec.convert(wish["spec"], Spec)
        return manager.backend.create(LaunchRequest(cluster=ref, spec=spec))
    if wish["verb"] == "rerun":
        return manager.rerun(ref)
    if wish["verb"] == "ambush":
        ambush(ref, wish["after"])
    elif wish["verb"] == "stop":
        manager.stop(ref, wish.get("reason"))
    elif wish["verb"] == "logs":
        for _line in manager.backend.logs(ref, follow=True):
            pass
    else:
        manager.delete(ref, with_logs=wish["with_logs"])
    return None


def _backend(wish: dict[str, Any]) -> Backend:
    if "namespace" not in wish:
        return LocalBackend()
    return KubernetesBackend(namespace=wish["namespace"])


def client(wish: dict[str, Any], tell: int) -> None:
    """Run one request in this process; never return."""
    result: dict[str, Any] = {}
    # SIGALRM has no handler, so it ends this process after `lives` seconds (0: never)
    signal.setitimer(signal.ITIMER_REAL, wish.get("lives", 0.0))
    try:
        if wish.get("dies"):
            dies(wish["dies"], wish["how"])
        made = carry_out(wish)
        result["made"] = made and {"name": made.metadata.name, "uid": made.metadata.uid}
    except KeyboardInterrupt:
        result["died"] = "interrupted"
    except TFClusterError as error:
        result.update(refused=type(error).__name__, why=str(error))
    except BaseException:  # noqa: BLE001 - any other error is reported as a fault of the product
        result["fault"] = traceback.format_exc()
    os.write(tell, json.dumps(result).encode())
    os._exit(0)


def begin(wish: dict[str, Any]) -> tuple[int, int]:
    """Start the process of a request; return its id, and the file descriptor of its result."""
    hear, tell = os.pipe()
    if "namespace" in wish:
        for name in ("client.api_client", "config", "utils.keepalive"):
            importlib.import_module(f"kubernetes.{name}")  # import once, not in each client
    pid = os.fork()
    if not pid:
        client(wish, tell)
    os.close(tell)
    return pid, hear


def end(pid: int, hear: int) -> dict[str, Any]:
    """Return the result of a request; if the client was killed, the result says so."""
    with open(hear, "rb") as file:
        told = file.read()
    os.waitpid(pid, 0)
    return json.loads(told) if told else {"died": "killed"}  # type: ignore[no-any-return]


if __name__ == "__main__":
    for line in sys.stdin:
        begun = [begin(wish) for wish in json.loads(line)]
        print(json.dumps([end(pid, hear) for pid, hear in begun]), flush=True)
