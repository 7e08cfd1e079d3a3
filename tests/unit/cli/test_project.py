"""`tfcluster project` and the launch of a project, through the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from IPython.core.interactiveshell import InteractiveShell
from support.command_line import Run, here, run

from tfcluster_magic import ClusterManager
from tfcluster_magic.cli.terminal import Terminal
from tfcluster_magic.launch import ProjectUse
from tfcluster_magic.launch.project import project_schema
from tfcluster_magic.notebook.magic_line import completions

__all__ = ["here", "run"]  # fixtures of another module

PRINTS = "import os, sys\nprint('epochs', sys.argv[1:], os.environ['BATCH'], flush=True)\n"
FILE = """\
program: src/train.py
arguments: [--epochs, 3]
env: {BATCH: 010}
configurations:
  quick: {workers: 1, arguments: [--epochs, 1]}
"""


@pytest.fixture
def manager(here: Path) -> ClusterManager:
    """A manager in the folder of the test."""
    return ClusterManager()


@pytest.fixture
def digits(here: Path) -> Path:
    """A project with a program in a folder below it."""
    (here / "digits" / "src").mkdir(parents=True)
    (here / "digits" / "src" / "train.py").write_text(PRINTS)
    (here / "digits" / "tfcluster.yaml").write_text(FILE)
    return here / "digits"


def test_a_project_is_launched_and_its_run_found(digits: Path, manager: ClusterManager) -> None:
    """Tasks run the program that the project's file names, with the file's arguments and variables.
    The record, the list of projects and a rerun name the project.
    """
    made = manager.launch("digits/", config="quick")
    name = made.metadata.name
    assert (name, made.spec.replicas.total) == ("digits-1", 1)
    manager.wait(name, 60)
    printed = [line.text for line in manager.logs(name) if line is not None]
    assert "epochs ['--epochs', '1'] 010" in printed
    use = ProjectUse.of(manager.status(name).status.inferred)
    assert use is not None
    assert (use.folder, use.config) == (str(digits), "quick")
    again = manager.rerun(name)
    manager.wait(again.metadata.name, 60)
    (found,) = manager.projects(digits.parent).projects
    last = manager.last_runs([found.folder])[found.folder]
    assert last.metadata.name == again.metadata.name == "digits-2"


def test_a_launch_says_what_came_from_the_file(digits: Path, run: Run) -> None:
    """A dry run in a shell shows the project's file, its settings, and the settings that options
    replaced.
    """
    told = run("launch", "--dry-run", "digits", "--config", "quick", "--workers", "2")
    assert told.code == 0, told.err
    assert f"{digits}/tfcluster.yaml with its configuration quick sets" in told.err
    assert "overridden here: workers" in told.err
    refused = run("launch", "digits", "--config", "quik")
    assert refused.code == 2
    assert "did you mean quick?" in refused.err


def test_a_project_is_rendered(digits: Path, run: Run) -> None:
    """`render` takes a project with its configuration."""
    told = run("render", "digits", "--config", "quick", "--layout", "tfcluster")
    (document,) = yaml.safe_load_all(told.out)
    assert document["spec"]["replicas"]["worker"]["count"] == 1


def test_init_writes_a_file_that_a_check_accepts(here: Path, run: Run) -> None:
    """In a folder with one program, `init` finds this program. The file that `init` writes has
    explanations and the name of its schema, and can be launched.
    """
    folder = here / "new"
    folder.mkdir()
    (folder / "train.py").write_text(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--ps_hosts')\n"
        "p.parse_args()\n"
    )
    told = run("project", "init", "new")
    assert told.code == 0, told.err
    text = (folder / "tfcluster.yaml").read_text()
    assert yaml.safe_load(text)["program"] == "train.py"
    assert "# ps: 1" in text
    assert "line 3 of train.py takes" in text
    first = text.splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=")
    assert json.loads((folder / first.partition("=")[2]).read_text()) == project_schema()
    checked = run("project", "check", "new", "-o", "json")
    assert checked.code == 0
    found = json.loads(checked.out)
    assert found["problems"] == []
    assert [each["configuration"] for each in found["launches"]] == ["", "quick"]
    assert run("launch", "--dry-run", "new").code == 0


def test_init_asks_for_the_program_only_where_it_is_unclear(here: Path, run: Run) -> None:
    """If a folder has several programs, `--program` must name one of them. A program outside the
    folder is refused, and an existing file is not replaced.
    """
    told = run("project", "init", ".")
    assert told.code == 2
    assert "--program" in told.err
    assert "hello.py, sleep.py" in told.err
    assert run("project", "init", ".", "--program", "../x.py").code == 2
    assert not (here / "tfcluster.yaml").exists()
    assert run("project", "init", ".", "--program", "hello.py").code == 0
    (here / "tfcluster.yaml").write_text("workers: 3\n")
    again = run("project", "init", ".", "--program", "hello.py")
    assert again.code == 4
    assert (here / "tfcluster.yaml").read_text() == "workers: 3\n"
    assert run("project", "init", ".", "--program", "hello.py", "--force").code == 0
    assert "program: hello.py" in (here / "tfcluster.yaml").read_text()
    (here / "empty").mkdir()
    assert "no program in the folder: put your .py or .sh" in run("project", "init", "empty").err
    assert "no such folder: create it with your program" in run("project", "init", "nothing").err


def test_check_names_each_problem_with_its_line(digits: Path, run: Run) -> None:
    """Unknown keys, and valid YAML that a launch would refuse, such as 5000 workers, are reported
    once, with their lines.
    """
    (digits / "tfcluster.yaml").write_text("program: src/train.py\nwrkers: 2\n")
    told = run("project", "check", "digits")
    assert told.code == 2
    assert "digits/tfcluster.yaml:2 wrkers" in told.err
    (digits / "tfcluster.yaml").write_text(
        "program: src/train.py\nworkers: 5000\nconfigurations:\n  a: {}\n  b:\n    memory: lots\n"
    )
    checked = run("project", "check", "digits", "-o", "json")
    assert checked.code == 2
    problems = json.loads(checked.out)["problems"]
    assert [(each["line"], each["configuration"]) for each in problems] == [(2, ""), (6, "b")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "program: src/train.py\nworkrs: 4\nmemory: 2Gx\n",
            [(2, "workrs", ""), (3, "memory", "")],
        ),
        (
            "program: nope.py\nworkers: x\nmemory: 2Gx\n",
            [(1, "program", ""), (2, "workers", ""), (3, "memory", "")],
        ),
        (
            "configurations:\n  quick: {memory: 2Gx,\n    workrs: 2}\n  big: {memory: 3Gx}\n",
            [(2, "memory", "quick"), (3, "workrs", "quick"), (4, "memory", "big")],
        ),
        ("program: src/train.py\nmode: in-grph\nidle-timeout: 5m\n", [(2, "mode", "")]),
    ],
)
def test_an_unreadable_line_hides_no_wrong_value(
    digits: Path, run: Run, text: str, found: list[tuple[int, str, str]]
) -> None:
    """A check reports unreadable lines and wrong values together, and no problem that only follows
    from an unreadable line.
    """
    (digits / "tfcluster.yaml").write_text(text)
    checked = run("project", "check", "digits", "-o", "json")
    problems = json.loads(checked.out)["problems"]
    assert [
        (each["line"], each["field"].split()[-1], each["configuration"]) for each in problems
    ] == found
    assert checked.code == 2


def test_what_is_common_need_not_be_a_launch(digits: Path, run: Run) -> None:
    """If each configuration names its program, the part of the file that all configurations share
    needs no program.
    """
    (digits / "a.py").write_text("1\n")
    (digits / "b.py").write_text("1\n")
    text = "configurations: {a: {program: a.py}, b: {program: b.py}}\n"
    (digits / "tfcluster.yaml").write_text(text)
    checked = run("project", "check", "digits", "-o", "json")
    assert [each["configuration"] for each in json.loads(checked.out)["launches"]] == ["a", "b"]
    assert checked.code == 0


def test_list_shows_projects_with_their_last_run(
    digits: Path, run: Run, manager: ClusterManager
) -> None:
    """The list has a row for each project; the row of a broken project shows the problem instead of
    the configurations.
    """
    (digits.parent / "wrong").mkdir()
    (digits.parent / "wrong" / "tfcluster.yaml").write_text("x: 1\n")
    told = run("project", "list")
    assert [line.split() for line in told.out.splitlines()[1:]] == [
        ["digits", "quick"],
        ["wrong", "see", "`project", "check`"],
    ]
    listed = json.loads(run("project", "list", "-o", "json").out)
    assert [each["lastRun"] for each in listed["projects"]] == [None, None]
    assert "No projects" in run("project", "list", "digits/src").out


def test_folders_and_configurations_are_completed(digits: Path, manager: ClusterManager) -> None:
    """The magic completes the project's folder, the configurations of its file, and the subcommands
    of `project`.
    """
    terminal = Terminal(manager)
    assert "digits/" in completions("launch di", terminal)
    assert completions("launch digits --config ", terminal) == ["quick"]
    assert completions("render digits --config q", terminal) == ["quick"]
    assert completions("project ", terminal) == ["check", "init", "list"]
    assert "digits/" in completions("project check d", terminal)


def test_the_magic_launches_a_project(digits: Path, manager: ClusterManager) -> None:
    """`%tfcluster launch digits/ --config quick` returns the handle of its run."""
    from tfcluster_magic.notebook.magic_line import run as run_line

    shell = InteractiveShell.instance()
    try:
        cluster = run_line(shell, manager, "launch digits/ --config quick", None)
        assert cluster is not None
        assert manager.wait("digits", 60).metadata.name == "digits-1"
    finally:
        InteractiveShell.clear_instance()
