"""Users' programs run unchanged as their authors intend."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import Run, here, run
from support.project_tools import tool
from support.public_programs import CELL, FOLDER, PROGRAMS, PublicProgram

from tfcluster_magic import ClusterManager
from tfcluster_magic.errors import ClusterFailed
from tfcluster_magic.runs.manager import Until
from tfcluster_magic.spec import Phase, TFCluster

__all__ = ["here", "run"]  # fixtures used by the tests below

pytestmark = pytest.mark.cluster
OLD = tool("old_tensorflow").python()
PATIENCE = 300.0
"""Seconds within which a program must end on a busy machine."""


def launched(program: PublicProgram) -> object:
    """Return the test parameter of a program; it is marked `long` if a shorter program covers the
    same kind of program.
    """
    return pytest.param(program, id=program.name, marks=[pytest.mark.long] * program.is_long)


def log_of(manager: ClusterManager, name: str, task: str) -> str:
    """Return all output of a task."""
    lines = manager.logs(name, [task])
    return "\n".join(line.text for line in lines if line is not None)


def story(manager: ClusterManager, ended: TFCluster) -> str:
    """Return a report about a run, for the message of a failed test."""
    counts = ended.spec.replicas.counts
    tasks = [f"{kind.value}-{index}" for kind, count in counts.items() for index in range(count)]
    logs = [f"--- {task}\n{log_of(manager, ended.metadata.name, task)[-2000:]}" for task in tasks]
    return "\n".join([ended.status.message, *ended.status.warnings, *logs])


@pytest.mark.parametrize("program", [launched(program) for program in PROGRAMS])
def test_a_program_that_people_bring(program: PublicProgram, here: Path, run: Run) -> None:
    """The program gets the tasks that it needs and ends as expected, and the launch says what it
    inferred.
    """
    if program.is_old and OLD is None:
        pytest.skip("no TensorFlow 2.15 here: python tools/old_tensorflow.py")
    python = ("--python", str(OLD)) if program.is_old else ()
    shutil.copytree(FOLDER / program.name, here, dirs_exist_ok=True)
    done = run("launch", "--name", "brought", *python, *program.words)
    assert done.code == 0, done.err
    manager = ClusterManager()
    with contextlib.suppress(ClusterFailed):
        manager.wait("brought", PATIENCE)
    if "evaluator" not in program.tasks:
        manager.stop("brought")  # a successful run keeps some tasks for a while; end them now
    ended = manager.wait("brought", PATIENCE, until=Until.RELEASED)
    told = story(manager, ended)
    assert ended.status.phase is program.phase, told
    assert {t.value: n for t, n in ended.spec.replicas.counts.items() if n} == program.tasks, told
    for task, text in program.prints.items():
        assert text in log_of(manager, "brought", task), told
    said = done.out + done.err + run("status", "brought").out
    for text in program.says:
        assert text in " ".join(said.split()), said
    if program.step is not None:
        shown = json.loads(run("status", "brought", "-o", "json").out)
        assert shown.get("progress", {}).get("step") == program.step, shown


def test_a_cell_of_a_notebook() -> None:
    """A notebook cell is launched like any other program."""
    manager = ClusterManager()
    manager.launch(cell=CELL, name="cell", workers=2)
    ended = manager.wait("cell", PATIENCE, until=Until.RELEASED)
    assert ended.status.phase is Phase.SUCCEEDED, story(manager, ended)
    for task in ("worker-0", "worker-1"):
        assert f"step 5/5 of {task}" in log_of(manager, "cell", task)


@pytest.mark.long
def test_a_client_of_an_in_graph_cluster(here: Path) -> None:
    """A client that gets only TF_CONFIG trains on servers that were launched for it."""
    manager = ClusterManager()
    manager.launch(mode="in-graph", ps=1, workers=2, name="servers")
    up = manager.wait("servers", PATIENCE, until=Until.READY)
    hosts = {kind: list(found) for kind, found in up.status.addresses.items()}
    client = subprocess.run(
        [sys.executable, str(FOLDER / "in_graph" / "client.py")],
        env={**os.environ, "TF_CONFIG": json.dumps({"cluster": hosts})},
        cwd=here, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    manager.stop("servers")
    assert "weight 0.5" in client.stdout, client.stderr[-2000:]
