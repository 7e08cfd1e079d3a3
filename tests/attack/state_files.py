"""Damaged state files below runs that are alive: every verb still works, for every run."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from task_process import carrying

from tfcluster_magic.manager import ClusterManager
from tfcluster_magic.models import TFCluster
from tfcluster_magic.waiting import Until

from .cases import Attempt
from .ground import Ground

SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(3600)\n"
OF_RUN = (
    *("record.json", "status.json", "stop.json", "task.json", "gpus.json", "cgroup", "lock"),
    *("control", "decisions.jsonl", "supervisor.log", "tasks/worker-0.exit.json", "tasks"),
)
OF_STATE = ("hours.json", "launch.lock")
MEMORY = 4 << 30
"""Bytes of address space for each process."""
SECONDS = 60
"""A verb that takes longer hangs."""


def _content(content: bytes) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        _away(path)
        path.write_bytes(content)

    return write


def _away(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rename(path.with_name(f"{path.name}-away"))
    else:
        path.unlink(missing_ok=True)


def _cut(path: Path) -> None:
    content = path.read_bytes() if path.is_file() else b'{"a": 1}'
    _content(content[: len(content) // 2])(path)


def _huge(path: Path) -> None:
    _content(b"{")(path)
    os.truncate(path, 3 << 30)  # of holes


def _pipe(path: Path) -> None:
    _away(path)
    os.mkfifo(path)


def _link(target: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        _away(path)
        path.symlink_to(target)

    return make


def _folder(path: Path) -> None:
    _away(path)
    path.mkdir()


def _closed(path: Path) -> None:
    if path.exists():
        path.chmod(0)
        if os.geteuid() == 0:
            os.chown(path, 65534, 65534)


DAMAGES: Mapping[str, Callable[[Path], None]] = {
    "nested": _content(b'{"metadata":' * 50_000),
    "lists": _content(b"[" * 200_000),
    "garbled": _content(bytes(range(256)) * 20),
    "no UTF-8": _content(b'{"metadata": "\xff\xfe"}'),
    "empty": _content(b""),
    "cut": _cut,
    "huge": _huge,
    "pipe": _pipe,
    "zeros": _link("/dev/zero"),
    "circle": _link("self-made-circle"),
    "folder": _folder,
    "wrong types": _content(b'{"metadata": 1, "spec": [], "status": "x", "phase": {}, "paths": 5}'),
    "list": _content(b"[1, 2, 3]"),
    "number": _content(b"1e400"),
    "gone": _away,
    "another's": _closed,
}


def tfcluster(*words: str) -> str:
    """What a command of the shell prints; it ends within a time and tells no traceback."""
    command = [sys.executable, "-c", "from tfcluster_magic.cli import main; main()", *words]
    told = " ".join(words)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise AssertionError(f"`tfcluster {told}` hangs") from None
    said = done.stdout + done.stderr
    assert "Traceback" not in said, f"`tfcluster {told}`: {said[-800:]}"
    assert done.returncode == 0, f"`tfcluster {told}` exits with {done.returncode}: {said[-800:]}"
    return said


def launch(name: str, program: str = SLEEP) -> TFCluster:
    """A run that is up, of the state folder in the environment."""
    manager = ClusterManager()
    run = manager.launch(cell=program, name=name, workers=1, grace="1s")
    return manager.wait(run.metadata.name, 120, until=Until.READY)


@contextmanager
def _little_memory() -> Iterator[None]:
    """Whoever reads a file without an end fails, and not this machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _damage(ground: Ground, drawn: random.Random, files: tuple[str, ...]) -> None:
    with _little_memory(), ground.state() as folder:
        sound, victim = launch("sound"), launch("victim")
        file, damage = drawn.choice(files), drawn.choice([*DAMAGES])
        of_run = folder / "state" / "runs" / "victim" / "1"
        path = (folder / "state" if files is OF_STATE else of_run) / file
        with suppress(FileNotFoundError):
            DAMAGES[damage](path)
        try:
            listed = tfcluster("list", "--all")
            assert "sound" in listed and "victim" in listed, f"a run is not listed: {listed}"
            assert "sound" in tfcluster("status", "sound-1")
            tfcluster("logs", "sound-1")
            tfcluster("status", "victim-1")
            tfcluster("stop", "victim-1")
            mark = f"TFCLUSTER_RUN_UID={victim.metadata.uid}"
            ground.until(lambda: not carrying(mark), "the tasks of the stopped run have ended")
            tfcluster("delete", "victim-1")
            assert "victim" not in tfcluster("list", "--all"), "it was deleted and is listed"
            tfcluster("stop", "sound-1")
            mark = f"TFCLUSTER_RUN_UID={sound.metadata.uid}"
            ground.until(lambda: not carrying(mark), "the tasks of the other run have ended")
            tfcluster("delete", "sound-1")
        except AssertionError as error:
            raise AssertionError(f"{file}, {damage}: {error}") from error


def of_run(ground: Ground, drawn: random.Random) -> None:
    """One damaged file of a run harms no other run, and the damaged one can be ended."""
    _damage(ground, drawn, OF_RUN)


def of_all(ground: Ground, drawn: random.Random) -> None:
    """A damaged file that all runs share takes down no verb."""
    _damage(ground, drawn, OF_STATE)


CASES: Mapping[str, Attempt] = {"damaged-run": of_run, "damaged-state": of_all}
