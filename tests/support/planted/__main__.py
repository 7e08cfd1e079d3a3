"""Record the planted runs again: `PYTHONPATH=tests python -m support.planted [CAUSE…]`."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from support.planted import CAUSES, PROGRAM, RECORDINGS, TIMES, Planted
from tfcluster_magic.runs.manager import ClusterManager, Until
from tfcluster_magic.spec import TFCluster
from tfcluster_magic.usage import advice, samples

_MOST = 60_000
_INPUT_RATE = 1 << 20
_GROUPS = Path("/sys/fs/cgroup/cpu")
_PRIVILEGED, _GROUP = _GROUPS / "tfcluster-planted", _GROUPS / "tfcluster-throttled"
_SHARES = "100000"


@contextmanager
def data_server() -> Iterator[str]:
    """Serve bytes to everybody who connects, 1 MiB/s each, at the address that is yielded."""

    def serve(peer: socket.socket) -> None:
        with suppress(OSError):
            while True:
                peer.sendall(bytes(_INPUT_RATE // 20))
                time.sleep(0.05)

    def accept() -> None:
        with suppress(OSError):
            while True:
                peer, _address = listener.accept()
                threading.Thread(target=serve, args=(peer,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def throttled(task: str, folder: Path) -> Iterator[None]:
    """Put a task of the run in `folder` into a control group with a quarter of a core, before it
    starts its program.
    """
    over = threading.Event()

    def move() -> None:
        while not over.is_set():
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    words = (process / "cmdline").read_bytes().split(b"\0")
                    is_task = any(word.startswith(os.fsencode(folder)) for word in words)
                    if is_task and os.fsencode(task) in words:
                        (_GROUP / "cgroup.procs").write_text(process.name)
                        return

    _GROUP.mkdir()
    mover = threading.Thread(target=move)
    try:
        (_GROUP / "cpu.shares").write_text(_SHARES)
        (_GROUP / "cpu.cfs_quota_us").write_text("25000")
        mover.start()
        yield
    finally:
        over.set()
        mover.join()
        _GROUP.rmdir()


@contextmanager
def privileged() -> Iterator[None]:
    """Get a higher CPU priority than other programs of this machine, if root may set it here."""
    try:
        _PRIVILEGED.mkdir()
    except OSError:
        yield
        return
    try:
        (_PRIVILEGED / "cpu.shares").write_text(_SHARES)
        (_PRIVILEGED / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (_GROUPS / "cgroup.procs").write_text(str(os.getpid()))
        _PRIVILEGED.rmdir()


def run(manager: ClusterManager, planted: Planted, **options: Any) -> TFCluster:
    """Run a planted program until its end, and return its record."""
    arguments = [*planted.arguments]
    options = {**planted.options, "reclaim_after": 1, **options}
    with data_server() as address:
        if planted.data_server:
            arguments += ["--input", address]
        name = manager.launch(str(PROGRAM), arguments, name="planted", **options).metadata.name
        try:
            return manager.wait(name)
        finally:
            manager.stop(name)
            manager.wait(name, until=Until.RELEASED)


def record(name: str, number: int) -> None:
    """Run a cause, write its recording, and print its advice."""
    planted = CAUSES[name]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        places = {f"{key}_dir": str(folder / key) for key in ("state", "log", "data")}
        os.environ |= {"TFCLUSTER_HOME": text, "TFCLUSTER_STATE_DIR": places["state_dir"]}
        manager = ClusterManager(**places)
        if planted.before is not None:
            run(manager, planted, **planted.before)
        if planted.throttled:
            with throttled(planted.throttled, folder):
                cluster = run(manager, planted)
        else:
            cluster = run(manager, planted)
        written = msgspec.json.format(recording(manager, cluster), indent=1)
        usage = manager.usage(cluster)
    assert len(written) < _MOST, f"{name}: {len(written)} bytes"
    RECORDINGS.mkdir(exist_ok=True)
    (RECORDINGS / f"{name}-{number}.json").write_bytes(written + b"\n")
    for each in usage.advice:
        print(f"{name}-{number}: {each.code} {each.task}: {each.message} {each.command}")
    if not usage.advice:
        print(f"{name}-{number}: nothing {usage.no_advice}")
    for task in usage.tasks:
        print(f"    {task.name}: {task.average}", flush=True)


def recording(manager: ClusterManager, cluster: TFCluster) -> bytes:
    """Return the arguments of `advise` as JSON, without data of this machine."""
    output = Path(cluster.status.paths["output"])
    files = sorted((output / samples.FOLDER).glob("*.jsonl"))
    told = samples.read_samples(str(output), [file.stem for file in files])
    counts = manager._observer.step_counts(cluster)
    replicas = msgspec.to_builtins(cluster.spec.replicas)
    return msgspec.json.encode(
        {
            "replicas": replicas,
            "phase": cluster.status.phase,
            "samples": {file.stem: file.read_text() for file in files},
            "steps": advice.mean_step_rates(cluster, told, counts),
            "earlier": manager._smaller_runs(cluster),
            "cores": os.cpu_count(),
        }
    )


if __name__ == "__main__":
    with privileged():
        for cause in sys.argv[1:] or CAUSES:
            for number in TIMES:
                record(cause, number)
