"""`%tfcluster` in IPython, with programs that need no TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
from IPython.testing.globalipapp import start_ipython
from support.command_line import here

from tfcluster_magic import Cluster
from tfcluster_magic.errors import ClusterFailed, InvalidRequest, UsageError
from tfcluster_magic.output.run_card import MIME_TYPE
from tfcluster_magic.spec import Phase

__all__ = ["here"]  # a fixture used by the tests below


@pytest.fixture
def shell(here: Path) -> Iterator[InteractiveShell]:
    """IPython with the extension loaded."""
    if not hasattr(start_ipython, "already_called"):
        InteractiveShell.clear_instance()  # removes the shell that an earlier widget test left
    start_ipython()
    shell = InteractiveShell.instance()
    shell.extension_manager.load_extension("tfcluster_magic")
    yield shell
    shell.extension_manager.unload_extension("tfcluster_magic")


def execute(shell: InteractiveShell, cell: str) -> ExecutionResult:
    """Run a cell as a notebook does."""
    return shell.run_cell(cell, store_history=True)


def test_the_value_of_a_launch_is_the_handle_of_the_run(shell: InteractiveShell) -> None:
    """The value of `cluster = %tfcluster launch …` is the handle of the run, by which a cell can
    wait for the run and read it.
    """
    execute(shell, "cluster = %tfcluster launch hello.py --workers 1")
    cluster = shell.user_ns["cluster"]

    assert isinstance(cluster, Cluster)
    assert cluster.name == "hello-1"
    assert cluster.wait(60).status.phase is Phase.SUCCEEDED
    assert cluster.logs("worker-0") == "hello from worker-0"
    assert cluster.logs() == "worker-0 | hello from worker-0"


def test_the_rest_of_a_cell_is_the_program(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    """`%%tfcluster launch` launches the cell, with the options and the program's arguments on its
    first line.
    """
    line = "%%tfcluster launch --workers 1 --name mine --follow -- a b"
    result = execute(shell, f"{line}\nimport sys\nprint(sys.argv[1:])")

    assert result.success
    assert "worker-0 | ['a', 'b']" in capsys.readouterr().out


def test_variables_of_the_notebook_are_filled_in(shell: InteractiveShell) -> None:
    """As in other magics, `{name}` and `$name` stand for the value of the variable `name` in the
    notebook.
    """
    shell.user_ns.update(count=3, program="hello.py")
    execute(shell, "cluster = %tfcluster launch $program --workers {count}")

    assert shell.user_ns["cluster"].record.spec.replicas.worker.count == 3


def test_a_handle_in_a_magic_names_its_run(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    """`$cluster` and `{cluster}` stand for the name of the run, if `cluster` is its handle."""
    execute(shell, "cluster = %tfcluster launch hello.py --workers 1 --wait")
    capsys.readouterr()
    for line in ("%tfcluster logs $cluster", "%tfcluster logs {cluster}"):
        assert execute(shell, line).success
        assert "hello from worker-0" in capsys.readouterr().out
    assert f"{shell.user_ns['cluster']:>8}" == " hello-1"


def test_a_failed_run_that_was_waited_for_fails_the_cell(shell: InteractiveShell) -> None:
    """A cell that waited for a failed run fails, so that Run All, nbconvert and papermill stop at
    it.
    """
    result = execute(shell, "%tfcluster launch fail.py --workers 1 --ps 1 --wait")

    assert isinstance(result.error_in_exec, ClusterFailed)
    assert "no such column" in str(result.error_in_exec)


def test_a_status_names_commands_as_they_are_typed_in_a_cell(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output of `%tfcluster status` names the command `%tfcluster logs`, as the card and the
    exception do.
    """
    execute(shell, "%tfcluster launch fail.py --workers 1 --wait")
    capsys.readouterr()
    execute(shell, "%tfcluster status fail")

    assert "`%tfcluster logs fail-1 worker-0`" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%tfcluster lunch", "did you mean launch?"),
        ("%tfcluster launch --workers 0 hello.py", "--workers: got 0; at least 1 worker"),
        ("%tfcluster launch 'hello.py", "a quote or backslash is not closed"),
        ("%tfcluster status nothing", "there is no run nothing; `%tfcluster list --all`"),
        ("%%tfcluster launch\nx = 1\nif x\n", "syntax error in line 3"),
        ("%%tfcluster launch\n# nothing\n", "is empty"),
        ("%%tfcluster list\nx = 1", "%%tfcluster runs the rest of the cell as a program"),
        ("%%tfcluster launch hello.py\nx = 1", "the cell is the program here"),
    ],
)
def test_what_is_wrong_fails_the_cell_with_one_message_and_no_traceback(
    shell: InteractiveShell,
    own_folders: Path,
    capsys: pytest.CaptureFixture[str],
    cell: str,
    said: str,
) -> None:
    """A cell with an invalid `%tfcluster` line fails with one message and no traceback, and creates
    no run.
    """
    result = execute(shell, cell)
    shown = capsys.readouterr().out

    assert isinstance(result.error_in_exec, (InvalidRequest, UsageError, Exception))
    assert said in shown
    assert "Traceback" not in shown
    assert "tfcluster_magic/" not in shown
    assert not [*(own_folders / "state").rglob("record.json")]


def test_names_that_a_cell_does_not_define_are_told(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that only the notebook defines causes a warning, because tasks run only the cell."""
    execute(shell, "%%tfcluster launch --dry-run\nprint(data_of_the_notebook)")

    assert "data_of_the_notebook" in capsys.readouterr().out


def test_the_bare_magic_shows_the_runs_and_how_to_launch(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    """The magic without arguments lists the runs and says how to launch."""
    execute(shell, "%tfcluster")

    assert "%tfcluster launch train.py" in capsys.readouterr().out


def test_deleting_output_is_refused_with_the_line_that_does_it(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    """The magic asks no questions, because Run All would hang. Instead, the message has the line
    that deletes the output.
    """
    execute(shell, "_ = %tfcluster launch hello.py --workers 1 --wait")
    execute(shell, "%tfcluster delete hello --with-logs")

    assert "to confirm: `%tfcluster delete hello --with-logs --yes`" in capsys.readouterr().out
    assert execute(shell, "%tfcluster delete hello --with-logs --yes").success


def test_tab_offers_the_words_of_the_command_line(shell: InteractiveShell) -> None:
    """Completion works after `%tfcluster`, also in an assignment, and offers no Python names."""
    execute(shell, "_ = %tfcluster launch hello.py --workers 1 --wait")
    Path("data").mkdir()
    Path("data", "own.py").touch()

    def offered(line: str) -> list[str]:
        with provisionalcompleter():
            found = list(shell.Completer.completions(line, len(line)))
        return [line[: each.start] + each.text for each in found]

    assert offered("%tfcluster stat") == ["%tfcluster status"]
    assert offered("x = %tfcluster launch --wor")[0] == "x = %tfcluster launch --workers"
    assert offered("%%tfcluster launch --mode in") == ["%%tfcluster launch --mode in-graph"]
    assert offered("%tfcluster launch --mode=in") == ["%tfcluster launch --mode=in-graph"]
    assert offered("%tfcluster logs he") == ["%tfcluster logs hello-1"]
    assert offered("%tfcluster status ") == ["%tfcluster status hello-1"]
    assert offered("%tfcluster logs hello-1 ") == ["%tfcluster logs hello-1 worker-0"]
    assert offered("%tfcluster launch data/") == ["%tfcluster launch data/own.py"]
    Path("my data").mkdir()
    Path("my data", "a 1.py").touch()
    folder = ["%tfcluster launch 'my data/"]
    assert offered("%tfcluster launch my") == folder
    assert offered("%tfcluster launch 'my d") == offered("%tfcluster launch my\\ d") == folder
    assert offered(folder[0]) == ["%tfcluster launch 'my data/a 1.py'"]
    assert offered("%tfcluster launch --file='my") == ["%tfcluster launch --file='my data/"]


def test_a_handle_shows_itself_as_of_now(shell: InteractiveShell) -> None:
    """Each time a handle is displayed, it reads and shows the current record of its run."""
    execute(shell, "cluster = %tfcluster launch hello.py --workers 1")
    cluster = shell.user_ns["cluster"].wait(60)
    made = cluster._repr_mimebundle_()

    assert made["text/plain"].startswith("hello-1 Succeeded")
    assert made[MIME_TYPE]["cluster"]["status"]["phase"] == "Succeeded"
    assert repr([cluster]) == "[<Cluster hello-1 Succeeded 1/1>]"


def test_a_handle_of_a_deleted_run_says_so_once(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    """Displaying the handle of a deleted run says so once, without an error."""
    execute(shell, "cluster = %tfcluster launch hello.py --workers 1 --wait")
    execute(shell, "%tfcluster delete hello-1")
    capsys.readouterr()
    shown = execute(shell, "cluster")

    assert shown.success
    assert capsys.readouterr().out.count("there is no run hello-1") == 1
    assert repr(shell.user_ns["cluster"]).startswith("<Cluster hello-1: there is no run hello-1")


def test_a_handle_stops_its_run(shell: InteractiveShell) -> None:
    """After `cluster.stop()`, no task is left."""
    execute(shell, "cluster = %tfcluster launch sleep.py --workers 1")
    cluster = shell.user_ns["cluster"]

    assert cluster.wait_ready(60).stop("enough").status.released_at is not None
    assert "enough" in cluster.status.message


def test_the_configuration_of_the_kernel_reaches_the_manager(
    shell: InteractiveShell, own_folders: Path
) -> None:
    """`c.ClusterManager.log_dir` in ipython_config.py decides where output goes."""
    shell.config.ClusterManager.log_dir = str(own_folders / "elsewhere")
    try:
        execute(shell, "_ = %tfcluster launch hello.py --workers 1 --wait")
    finally:
        del shell.config["ClusterManager"]

    assert (own_folders / "elsewhere" / "hello" / "1").is_dir()


def test_loading_the_extension_imports_nothing_but_itself(here: Path) -> None:
    """Loading the extension imports only the extension; each line imports what it needs."""
    script = (
        "import sys\nfrom IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\nbefore = set(sys.modules)\n"
        "shell.extension_manager.load_extension('tfcluster_magic')\n"
        "print(sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    ours = ["tfcluster_magic", "tfcluster_magic.notebook", "tfcluster_magic.notebook.magic"]
    assert done.stdout.strip() == str(ours)
