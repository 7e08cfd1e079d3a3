"""Fixtures of every test: folders of its own, a check that the test leaves no process behind, and a
working Ctrl-C.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.polling import wait_until

from tfcluster_magic import program
from tfcluster_magic.spec import Program

if TYPE_CHECKING:
    from support.operator_world import World
    from support.real_runs import Runs

pytest_plugins = ["support.local_runs", "support.slow_program"]

if find_spec("hypothesis"):  # hypothesis is missing in a pod that runs only a few of these files
    from hypothesis import HealthCheck, settings

    # There is no time limit: how long an example takes to run and to generate depends on the
    # machine.
    slow = [HealthCheck.too_slow]
    settings.register_profile("any-speed", deadline=None, suppress_health_check=slow)
    settings.load_profile("any-speed")

# A shell that starts the suite in the background makes the suite and all its processes ignore
# SIGINT. This restores Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the suite.

    `--rewrite` writes golden files again, so that Git shows the differences. `--chaos-steps` and
    `--chaos-seed` set the length and the events of test_chaos.py; each test has its own defaults.
    `--class-size` is the number of students in test_class.py; a full class takes a quarter of an
    hour and some GiB of memory. `--long` also runs the tests marked `long`.
    """
    parser.addoption("--rewrite", action="store_true", help="write golden files anew")
    parser.addoption("--chaos-steps", type=int, help="steps of the chaos test")
    parser.addoption("--chaos-seed", type=int, help="seed of the chaos test")
    parser.addoption("--class-size", type=int, default=2, help="students of the class's test")
    parser.addoption("--long", action="store_true", help="run the tests marked long, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked `long`, unless `--long` is given."""
    if config.getoption("long"):
        return
    left_out = [item for item in items if item.get_closest_marker("long")]
    if left_out:
        items[:] = [item for item in items if not item.get_closest_marker("long")]
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Set a home, a state folder and a user folder for each test; afterwards, check that no process
    uses this state folder.

    Processes that a test starts inherit TFCLUSTER_STATE_DIR and are found by this variable.
    Processes from before the test cannot have its value, so they are not read.
    """
    before, interrupt = {*os.listdir("/proc")}, signal.getsignal(signal.SIGINT)
    state = tmp_path / "state"
    home = tmp_path / "home"
    home.mkdir()
    for name in [*os.environ]:
        if name.startswith(("TFCLUSTER_", "JUPYTERHUB_", "JPY_")) or name == "XDG_STATE_HOME":
            monkeypatch.delenv(name)
    monkeypatch.setenv("TFCLUSTER_LANGUAGE", "en")  # whatever the developer's own setting is
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TFCLUSTER_HOME", str(tmp_path / "tfcluster"))
    monkeypatch.setenv("TFCLUSTER_STATE_DIR", str(state))
    yield tmp_path
    left = _still_there(state, before, patience=30.0)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, f"the test left processes behind: {list(left.values())}"
    now, _ = signal.getsignal(signal.SIGINT), signal.signal(signal.SIGINT, interrupt)
    assert now is interrupt, f"the test left another handler of SIGINT: {now}"


def _still_there(state: Path, before: set[str], patience: float) -> dict[int, str]:
    """Return the command lines of the processes that use this state folder, by pid; give ending
    processes `patience` seconds to end.
    """
    mark = f"TFCLUSTER_STATE_DIR={state}".encode()
    deadline = time.monotonic() + patience
    while found := dict(_processes_with(mark, before)):
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return found


def _processes_with(mark: bytes, before: set[str]) -> Iterator[tuple[int, str]]:
    for entry in {*os.listdir("/proc")} - before:
        if not entry.isdigit():
            continue
        try:
            variables = Path("/proc", entry, "environ").read_bytes().split(b"\0")
            if mark in variables:
                words = Path("/proc", entry, "cmdline").read_bytes().decode().split("\0")
                yield int(entry), " ".join(words)
        except OSError:
            continue


@pytest.fixture
def program_of(tmp_path: Path) -> Callable[..., Program]:
    """Return a function that makes a snapshot of a Python program's text, as a launch does."""

    def take(text: str, *arguments: str, name: str = "train.py") -> Program:
        source = tmp_path / "source" / name
        source.parent.mkdir(exist_ok=True)
        source.write_text(text)
        taken, _ = program.snapshot(
            str(source),
            arguments=arguments,
            workspace=Path(os.environ["TFCLUSTER_HOME"]),
            cwd=source.parent,
        )
        return taken

    return take


@pytest.fixture
def wait_for() -> Callable[..., None]:
    """Return a function that waits until a condition is true, and fails with the condition's name
    if it stays false.
    """
    return wait_until


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Create the folder in which the user works."""
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Return the workspace, a folder that tasks see, too; it may not exist yet."""
    return tmp_path / "workspace"


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    """Yield a launcher of real runs; afterwards, check that nothing of the runs is left and that
    their recordings replay.
    """
    from support.real_runs import runs_in

    with runs_in(tmp_path / "runs") as own:
        yield own


@pytest.fixture
def world() -> Iterator[World]:
    """Yield a working operator on a server that stores objects."""
    from support.operator_world import World

    made = World()
    made.operate()
    yield made
    made.rest()
    made.server.close()
