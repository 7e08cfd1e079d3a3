"""Damage to state files of running runs; every command must still work, for every run."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from support.state_damage import damage, files_of, kinds
from support.task_process import carrying

from tfcluster_magic.runs.manager import ClusterManager, Until
from tfcluster_magic.spec import TFCluster

from .cases import Attempt
from .target import Target

SLEEP = "import time\nprint('up', flush=True)\ntime.sleep(3600)\n"
OF_STATE = ("hours.json", "launch.lock")
MEMORY = 4 << 30
"""Maximum bytes of address space for each process."""
SECONDS = 60
"""Seconds after which a command counts as hung."""


def tfcluster(*words: str) -> str:
    """Return what a command prints; check that it ends in time and prints no traceback."""
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
    """Return a run that is up, from the state folder in the environment."""
    manager = ClusterManager()
    run = manager.launch(cell=program, name=name, workers=1, grace="1s")
    return manager.wait(run.metadata.name, 120, until=Until.READY)


@contextmanager
def _little_memory() -> Iterator[None]:
    """Limit memory, so that reading an endless file fails and does not harm this machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _damage(target: Target, drawn: random.Random, of_all: bool) -> None:
    with _little_memory(), target.state() as folder:
        sound, victim = launch("sound"), launch("victim")
        state = folder / "state"
        files = [state / name for name in OF_STATE] if of_all else files_of(state / "runs/victim/1")
        file, kind = drawn.choice(files), drawn.choice(kinds())
        damage(file, kind, drawn.getrandbits(20))
        try:
            listed = tfcluster("list", "--all")
            assert "sound" in listed and "victim" in listed, f"a run is not listed: {listed}"
            assert "sound" in tfcluster("status", "sound-1")
            tfcluster("logs", "sound-1")
            tfcluster("status", "victim-1")
            tfcluster("stop", "victim-1")
            mark = f"TFCLUSTER_RUN_UID={victim.metadata.uid}"
            target.until(lambda: not carrying(mark), "the tasks of the stopped run have ended")
            tfcluster("delete", "victim-1")
            assert "victim" not in tfcluster("list", "--all"), "it was deleted and is listed"
            tfcluster("stop", "sound-1")
            mark = f"TFCLUSTER_RUN_UID={sound.metadata.uid}"
            target.until(lambda: not carrying(mark), "the tasks of the other run have ended")
            tfcluster("delete", "sound-1")
        except AssertionError as error:
            raise AssertionError(f"{file.name}, {kind}: {error}") from error


def of_run(target: Target, drawn: random.Random) -> None:
    """One damaged file of a run harms no other run, and the damaged run can be ended."""
    _damage(target, drawn, of_all=False)


def of_all(target: Target, drawn: random.Random) -> None:
    """A damaged file that all runs share breaks no command."""
    _damage(target, drawn, of_all=True)


CASES: Mapping[str, Attempt] = {"damaged-run": of_run, "damaged-state": of_all}
