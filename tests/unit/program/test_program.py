"""The name of a program, and the folder in which a task runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.programs import take, write
from support.project import ROOT

from tfcluster_magic.program import default_name, materialise


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("train.py", "train"),
        ("sub/My_Train 2.py", "my-train2"),
        ("jobs/digits", "digits"),
        ("v1.2/", "v12"),
        (".", "here"),
        ("cell", "cell"),
        ("run.sh", "run"),
        ("https://example.org/a/mnist_v2.py#sha256=00", "mnist-v2"),
        ("https://example.org/code/project.tar.gz?x=1", "project"),
        ("https://example.org/", "cluster"),
    ],
)
def test_cluster_is_named_after_its_program(source: str, name: str, here: Path) -> None:
    """A cluster is named after the file, the folder or the last part of the URL."""
    (here / "v1.2").mkdir()
    assert default_name(source, here) == name


def test_no_tensorflow_is_imported() -> None:
    """Taking a snapshot imports neither TensorFlow nor anything of the program."""
    code = (
        "import sys, tempfile; from pathlib import Path\n"
        "from tfcluster_magic.program import snapshot_cell\n"
        "here = Path(tempfile.gettempdir())\n"
        "snapshot_cell('import tensorflow as tf, sklearn', workspace=here, cwd=here)\n"
        "print([m for m in ('tensorflow', 'sklearn', 'numpy') if m in sys.modules])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert (result.stdout, result.stderr) == ("[]\n", "")


@pytest.mark.parametrize(
    ("source", "folder"), [("job", "program"), ("job/run.sh", "program"), ("job/a.py", "here")]
)
def test_task_runs_a_program_where_it_belongs(
    source: str, folder: str, here: Path, workspace: Path, tmp_path: Path
) -> None:
    """A folder or a script runs in its own folder, a .py file in the user's folder; all run with
    the task's Python.
    """
    write(
        here / "job",
        {"run.sh": 'python a.py "$@"\n', "a.py": "import os, sys\nprint(os.getcwd(), *sys.argv)\n"},
    )
    program = take(source, here, workspace, arguments=["--x", "1 2"])
    materialise(program, tmp_path / "program", workspace)
    description = {
        "version": 1, "cluster": "job", "run": 1, "name": "job-1", "uid": "u", "grace": 5,
        "mode": "between-graph", "counts": {"worker": 1}, "addresses": {"worker": ["127.0.0.1:9"]},
        "env": {}, "threads": {}, "dataDir": str(tmp_path), "outputDir": str(tmp_path / "out"),
        "program": {
            "dir": str(tmp_path / "program"),
            "entrypoint": program.entrypoint,
            "arguments": program.arguments,
            "flags": program.flags,
            "serves": program.serves,
            "workingDir": program.working_dir,
        },
    }  # fmt: skip
    (tmp_path / "task.json").write_text(json.dumps(description))
    task = ROOT / "tfcluster_magic" / "runtime" / "task.py"
    result = subprocess.run(
        [sys.executable, "-S", "-E", task, tmp_path / "task.json", "worker-0"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin"},
    )
    script = "a.py" if folder == "program" and source != "job/a.py" else tmp_path / "program/a.py"
    assert f"{tmp_path / folder} {script} --x 1 2\n" in result.stdout, result.stderr
    assert result.returncode == 0
