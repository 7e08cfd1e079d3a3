"""The examples work on real held-out digits and leave nothing behind."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from support.project import ROOT

from tfcluster_magic import Cluster, ClusterManager

EXAMPLES = ROOT / "examples"
NOTEBOOKS = sorted(path.name for path in EXAMPLES.glob("*.ipynb"))
CLIENTS = ("in_graph_tf1.py", "in_graph_pss.py", "in_graph_keras.py")
LONG = {
    "01-between-graph.ipynb",
    "02-in-graph.ipynb",
    "03-parameter-server-strategy.ipynb",
    "04-keras.ipynb",
    "05-multi-worker-mirrored.ipynb",
}
"""Notebooks that only `--long` tests, because a client program, test_training_modes.py or
test_connection.py covers the same. test_user_journey.py runs the first two.
"""
PROGRAMS = ("mirrored.py", "multi_worker_mirrored.py", "parameter_server_keras.py")
"""Programs that test_training_modes.py trains to the same accuracy."""
ACCURACY = re.compile(r"held-out accuracy: (\S+)")

pytestmark = pytest.mark.cluster


def accuracy_in(text: str) -> float:
    """Return the accuracy that an example has printed."""
    found = ACCURACY.search(text)
    assert found, f"no accuracy in: {text[-2000:]}"
    return float(found[1])


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The examples as a user has them: a copied folder, in which they run."""
    folder = tmp_path / "examples"
    shutil.copytree(EXAMPLES, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(folder)
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent))
    yield folder
    active = [cluster.metadata.name for cluster in ClusterManager().list() if cluster.active]
    for name in active:
        Cluster(name).stop("its test has ended")
    assert not active, "an example left a run active"


def test_every_kind_of_example_is_tested() -> None:
    """Each file is a tested program, a tested client, or a module that one of these imports."""
    modules = {"digits.py", "between_graph.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == {*PROGRAMS, *CLIENTS, *modules}
    assert len(NOTEBOOKS) == 6


@pytest.mark.parametrize("name", [*PROGRAMS, "between_graph.py"])
def test_the_command_in_an_example_is_accepted(name: str) -> None:
    """`tfcluster` accepts the command in the head of an example unchanged."""
    text = (EXAMPLES / name).read_text().replace("\\\n", " ")
    command = re.search(r"^ +tfcluster (launch .*)$", text, re.MULTILINE)
    assert command
    program = [sys.executable, "-c", "from tfcluster_magic.cli import main; main()"]
    launch, *words = shlex.split(command[1])
    done = subprocess.run(
        [*program, launch, "--dry-run", *words],
        cwd=EXAMPLES.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_are_stored_without_outputs(name: str) -> None:
    """A stored notebook has no outputs, no execution counts, and no metadata except its kernel and
    its language.
    """
    notebook = nbformat.read(EXAMPLES / name, nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    assert set(notebook.metadata) == {"kernelspec", "language_info"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=pytest.mark.long) if each in LONG else each for each in NOTEBOOKS],
)
def test_notebook_trains_and_cleans_up(name: str, copy: Path) -> None:
    """Run All in an example trains to 95 % on held-out digits and cleans up. The first example
    leaves a run for the sidebar.
    """
    notebook = nbformat.read(copy / name, nbformat.NO_CONVERT)
    client = NotebookClient(
        notebook, timeout=400, resources={"metadata": {"path": str(copy)}}, kernel_name="python3"
    )
    client.execute()
    texts = [
        output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ())
    ]
    assert any("of the held-out digits are read correctly" in text for text in texts)
    assert not any("INFO:tensorflow" in text for text in texts), "TensorFlow's log fills the cells"
    kept = ["digits-1"] if name.startswith("01") else []
    assert [cluster.metadata.name for cluster in ClusterManager().list()] == kept


@pytest.mark.parametrize(
    "name",
    # Only `--long` tests the other examples, because test_connection.py trains in the same ways.
    [CLIENTS[0], *(pytest.param(each, marks=pytest.mark.long) for each in CLIENTS[1:])],
)
def test_client_program_trains_on_its_cluster(name: str, copy: Path, tmp_path: Path) -> None:
    """An example that launches its own cluster reaches 95 %, stops it, and leaves a checkpoint."""
    done = subprocess.run(
        [sys.executable, name, "--log_path", str(tmp_path / "log")],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert accuracy_in(done.stdout) >= 0.95
    assert list((tmp_path / "log").rglob("checkpoint"))
    assert list((tmp_path / "log").rglob("*tfevents*"))


def test_between_graph_is_plain_tensorflow(copy: Path, tmp_path: Path) -> None:
    """The Between-Graph example trains without TFCluster, with processes started by hand."""
    reserved = [socket.socket() for _ in range(2)]
    for each in reserved:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        each.bind(("127.0.0.1", 0))
    ps, worker = (f"127.0.0.1:{each.getsockname()[1]}" for each in reserved)
    flags = [f"--ps_hosts={ps}", f"--worker_hosts={worker}", f"--log_path={tmp_path / 'log'}"]
    tasks = [
        subprocess.Popen(
            [sys.executable, "between_graph.py", *flags, f"--job_name={job}", "--steps=400"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=dict(os.environ, TF_GRPC_REUSE_PORT="true"),
        )
        for job in ("ps", "worker")
    ]
    try:
        printed, _ = tasks[1].communicate(timeout=400)
    finally:
        for task in tasks:
            task.kill()
            task.communicate()
        for each in reserved:
            each.close()
    assert tasks[1].returncode == 0
    assert accuracy_in(printed) >= 0.95
