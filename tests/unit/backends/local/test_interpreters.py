"""The Python of tasks, and its checks before any task starts."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tfcluster_magic import ClusterManager
from tfcluster_magic.backends.local import launch_facts
from tfcluster_magic.errors import InvalidRequest, SetupRefused
from tfcluster_magic.launch_checks.local import TaskPython
from tfcluster_magic.program.interpreters import find_modules

TEXT = "print('hello')\n"


@pytest.fixture
def python(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a Python, `venv/bin/python`, in the current folder."""
    file = here / "venv" / "bin" / "python"
    file.parent.mkdir(parents=True)
    file.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    file.chmod(0o755)
    monkeypatch.chdir(here)
    return file


@pytest.mark.parametrize("said", ["venv/bin/python", "./venv/../venv/bin/python", "{full}"])
def test_a_python_is_recorded_by_its_full_path(python: Path, said: str) -> None:
    """A path is relative to the current folder, as in a shell; the record has the full path."""
    cluster = ClusterManager().plan(cell=TEXT, python=said.format(full=python)).cluster
    assert cluster.spec.interpreter == str(python)


def test_a_python_of_the_path_is_found(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare name is looked up as a shell does; an unknown name is refused."""
    monkeypatch.setenv("PATH", str(python.parent))
    manager = ClusterManager()
    assert manager.plan(cell=TEXT, python="python").cluster.spec.interpreter == str(python)
    with pytest.raises(InvalidRequest, match="--python: got 'python9'; there is no such program"):
        manager.plan(cell=TEXT, python="python9")


def test_a_link_of_a_virtual_environment_stays_a_link(python: Path, here: Path) -> None:
    """A virtual environment is recorded by the path of its Python, which is a link to another
    Python.
    """
    link = here / "link"
    link.symlink_to(sys.executable)
    assert ClusterManager().plan(cell=TEXT, python="./link").cluster.spec.interpreter == str(link)


def test_the_commands_of_tasks_show_the_python(python: Path) -> None:
    """`render` prints the command with the requested Python."""
    manager = ClusterManager()
    cluster = manager.plan(cell=TEXT, python=str(python)).cluster
    assert f"{python}" in manager.render(cluster)


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        (None, 0o755, "there is no such file"),
        ("", 0o644, "it is not executable"),
        ("#!/bin/sh\necho 'cannot find libpython' >&2; exit 127\n", 0o755, "cannot find libpython"),
        (
            "#!/bin/sh\necho tfcluster-modules: json\n",
            0o755,
            "has no TensorFlow: install TensorFlow with",
        ),
    ],
)
def test_a_python_that_cannot_run_tasks_is_refused(
    here: Path, content: str | None, mode: int, why: str
) -> None:
    """A Python with which every task would fail is refused before any task starts, and the refusal
    names the option.
    """
    file = here / "python3"
    if content is not None:
        file.write_text(content)
        file.chmod(mode)
    with pytest.raises(SetupRefused, match=why) as refused:
        ClusterManager().plan(cell=f"import tensorflow\n{TEXT}", python=str(file)).check()
    assert [problem.field for problem in refused.value.problems] == ["--python"]
    assert "no room" not in str(refused.value)
    assert refused.value.exit_code == 7


def test_a_python_without_tensorflow_runs_what_does_not_import_it(python: Path) -> None:
    """A Python needs TensorFlow only for programs that import it."""
    python.write_text("#!/bin/sh\necho tfcluster-modules: json\n")
    ClusterManager().plan(cell=TEXT, python=str(python)).check()


def test_modules_are_those_of_the_python_of_the_tasks(python: Path, here: Path) -> None:
    """A warning about a missing module is about the Python that the tasks run with."""
    # a module that is found only from this folder; tasks start in another folder
    (here / "beside").mkdir()
    (here / "beside" / "__init__.py").touch()
    text = "import json, numpy, seldom_installed, rarely_installed\n"
    python.write_text("#!/bin/sh\necho tfcluster-modules: json numpy rarely_installed\n")
    (told,) = ClusterManager().plan(cell=text, python=str(python)).cluster.status.warnings
    assert "imports seldom_installed (line 2)" in told and str(python) in told


def test_a_python_is_asked_from_elsewhere(python: Path, here: Path) -> None:
    """Modules in the current folder do not count as installed."""
    (here / "beside").mkdir()
    (here / "beside" / "__init__.py").touch()
    answer = find_modules(str(python), ["beside", "json", "no_such_module"])
    assert answer.found == {"json"}


def test_a_python_is_not_started_for_every_key(python: Path) -> None:
    """The check of a Python is cached until its file changes, because a form may check it at each
    keystroke.
    """
    counted = python.parent / "starts"
    python.write_text(f'#!/bin/sh\necho x >> {counted}\nexec {sys.executable} "$@"\n')
    for _ in range(3):
        assert launch_facts.find_python(str(python)) == TaskPython(str(python), named=True)
        ClusterManager().plan(cell="import tensorflow\n", python=str(python))
    assert counted.read_text() == "x\n"
    os.utime(python, (time.time(), time.time() + 5))
    launch_facts.find_python(str(python))
    assert counted.read_text() == "x\nx\n"
