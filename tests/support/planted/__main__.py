"""Record the planted runs again: `PYTHONPATH=tests python -m support.planted [CAUSE…]`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec

from support.planted import CAUSES, PROGRAMS, RECORDINGS, TIMES, Planted, World
from support.polling import wait_until
from tfcluster_magic.runs.manager import ClusterManager, Until
from tfcluster_magic.spec import Phase, TFCluster
from tfcluster_magic.usage import samples

_MOST = 60_000
_RATE = 1 << 20
_SECONDS = 120
_STANDS_STILL = 75.0
_GROUPS = Path("/sys/fs/cgroup")
_PRIVILEGED = "tfcluster-planted"
_SHARES = "100000"
_IN_OWN_NETWORK = "TFCLUSTER_PLANTED_NETWORK"
_LINK = "tbf rate 640mbit burst 1mb latency 400ms"


@contextmanager
def data_server() -> Iterator[str]:
    """Serve an endless stream of bytes, 1 MiB/s for each client, and yield the address."""

    class Bytes(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while True:
                    self.wfile.write(bytes(_RATE // 20))
                    time.sleep(0.05)

        def log_message(self, *_words: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Bytes) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@contextmanager
def control_group(kind: str, limits: dict[str, str], task: str, folder: Path) -> Iterator[None]:
    """Put a task of the runs in `folder` into a control group with these limits, before it starts
    its program.
    """
    group = _GROUPS / kind / f"tfcluster-{task}"
    over = threading.Event()

    def move() -> None:
        while not over.wait(0.01):
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    words = (process / "cmdline").read_bytes().split(b"\0")
                    is_task = any(word.startswith(os.fsencode(folder)) for word in words)
                    if is_task and os.fsencode(task) in words:
                        (group / "cgroup.procs").write_text(process.name)
                        return

    group.mkdir()
    mover = threading.Thread(target=move)
    try:
        for name, limit in limits.items():
            (group / name).write_text(limit)
        mover.start()
        yield
    finally:
        over.set()
        mover.join()
        group.rmdir()


@contextmanager
def slow_disk(folder: Path, workers: int) -> Iterator[str]:
    """For each worker, write a file that the worker reads at 1 MiB/s; yield the folder of the
    files.
    """
    device = os.stat(folder).st_dev
    limit = {"blkio.throttle.read_bps_device": f"{os.major(device)}:{os.minor(device)} {_RATE}"}
    files = folder / "files"
    files.mkdir()
    for index in range(workers):
        with (files / f"words-{index}").open("wb") as file:
            file.write(os.urandom(_RATE) * _SECONDS)
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with ExitStack() as stack:
        for index in range(workers):
            stack.enter_context(control_group("blkio", limit, f"worker-{index}", folder))
        yield str(files)


@contextmanager
def around(planted: Planted, folder: Path) -> Iterator[list[str]]:
    """Set up the `world` of a cause; yield the program's arguments for it, such as an address."""
    workers = planted.options["workers"]
    assert isinstance(workers, int)
    with ExitStack() as stack:
        arguments = []
        if planted.world is World.DATA_SERVER:
            arguments = ["--url", stack.enter_context(data_server())]
        elif planted.world is World.SLOW_DISK:
            arguments = ["--files", stack.enter_context(slow_disk(folder, workers))]
        elif planted.world is World.THROTTLED:
            limits = {"cpu.shares": _SHARES, "cpu.cfs_quota_us": "25000"}
            stack.enter_context(control_group("cpu", limits, "worker-0", folder))
        yield arguments


@contextmanager
def privileged() -> Iterator[None]:
    """Get a higher CPU priority than other programs of this machine, if root may set it here."""
    group = _GROUPS / "cpu" / _PRIVILEGED
    try:
        group.mkdir()
    except OSError:
        yield
        return
    try:
        (group / "cpu.shares").write_text(_SHARES)
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (group.parent / "cgroup.procs").write_text(str(os.getpid()))
        wait_until(lambda: not (group / "cgroup.procs").read_text(), "all tasks have ended")
        group.rmdir()


def run(
    manager: ClusterManager,
    planted: Planted,
    folder: Path,
    options: Any,
    use: Callable[[TFCluster], None],
) -> None:
    """Launch a planted program, and call `use` with its record at its end, or once it hangs."""
    options = {"reclaim_after": 1, **options}
    with around(planted, folder) as more:
        arguments = [*planted.arguments, *more]
        program = str(PROGRAMS / planted.program)
        name = manager.launch(program, arguments, name="planted", **options).metadata.name
        try:
            if planted.hangs:
                wait_until(lambda: stands_still(manager, name, planted.task), "it hangs", 240)
                use(manager.status(name))
            else:
                cluster = manager.wait(name)
                if cluster.status.phase is not Phase.SUCCEEDED:
                    print(*filter(None, manager.logs(name, tail=30)), sep="\n")
                use(cluster)
        finally:
            manager.stop(name)
            manager.wait(name, until=Until.RELEASED)


def stands_still(manager: ClusterManager, name: str, task: str) -> bool:
    """Return whether a task has stood still for long enough."""
    (found,) = manager.kept_stacks(manager.status(name), [task]).tasks or (None,)
    return found is not None and time.time() - (found.since or 0) > _STANDS_STILL


def record(name: str, number: int) -> None:
    """Run a cause, write its recording, and print its advice."""
    planted = CAUSES[name]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as text:
        folder = Path(text)
        places = {f"{key}_dir": str(folder / key) for key in ("state", "log", "data")}
        os.environ |= {"TFCLUSTER_HOME": text, "TFCLUSTER_STATE_DIR": places["state_dir"]}
        manager = ClusterManager(**places)

        def write(cluster: TFCluster) -> None:
            written = recording(
                manager, cluster, {text: "/run", sys.prefix: "/venv", sys.base_prefix: "/usr"}
            )
            assert len(written) < _MOST, f"{name}: {len(written)} bytes"
            RECORDINGS.mkdir(exist_ok=True)
            (RECORDINGS / f"{name}-{number}.json").write_bytes(written + b"\n")
            usage = manager.usage(cluster)
            print(f"{name}-{number}: {cluster.status.phase.value} {cluster.status.message}")
            for each in usage.advice:
                print(f"  {each.code} {each.task}: {each.message} {each.command}")
            print("  nothing", usage.no_advice) if not usage.advice else None
            for task in usage.tasks:
                print(f"    {task.name}: {task.average}", flush=True)

        if planted.before is not None:
            run(manager, planted, folder, planted.before, lambda _cluster: None)
        run(manager, planted, folder, planted.options, write)


def recording(manager: ClusterManager, cluster: TFCluster, names: dict[str, str]) -> bytes:
    """Return the arguments of `advise` as JSON, with `names` instead of folders of this machine."""
    output = Path(cluster.status.paths["output"])
    files = sorted((output / samples.FOLDER).glob("*.jsonl"))
    seen = {
        "replicas": msgspec.to_builtins(cluster.spec.replicas),
        "phase": cluster.status.phase,
        "reason": cluster.status.reason,
        "message": cluster.status.message,
        "samples": {file.stem: file.read_text() for file in files},
        "counts": manager._observer.step_counts(cluster),
        "earlier": manager._smaller_runs(cluster),
        "stacks": manager.kept_stacks(cluster).tasks,
        # With a slow link, each task stands for a machine of its own, so this machine's cores do
        # not count.
        "cores": None if _IN_OWN_NETWORK in os.environ else os.cpu_count(),
    }
    text = msgspec.json.format(msgspec.json.encode(seen), indent=1).decode()
    for folder, name in names.items():
        text = text.replace(folder, name)
    return text.encode()


def in_own_network(name: str) -> None:
    """Record a cause in a network of its own, whose only link has a limit."""
    link = f'ip link set lo up && tc qdisc add dev lo root {_LINK} && exec "$@"'
    again = ["sh", "-c", link, "sh", sys.executable, "-m", "support.planted", name]
    subprocess.run(
        ["unshare", "--net", *again], check=True, env={**os.environ, _IN_OWN_NETWORK: "1"}
    )


if __name__ == "__main__":
    for cause in sys.argv[1:] or CAUSES:
        if CAUSES[cause].world is World.SLOW_LINK and _IN_OWN_NETWORK not in os.environ:
            in_own_network(cause)
            continue
        with privileged():
            for number in TIMES:
                record(cause, number)
