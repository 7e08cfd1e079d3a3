"""`stop` and `delete`: what these commands keep, and when they ask for confirmation."""

from __future__ import annotations

import re
from pathlib import Path

from support.command_line import Run, here, run

from tfcluster_magic import ClusterManager

__all__ = ["here", "run"]  # fixtures used by the tests below


def test_stop_waits_until_nothing_is_left_and_keeps_the_record(run: Run) -> None:
    """After `stop` no task is left, and the status has the reason."""
    run("launch", "sleep.py", "--workers", "1")
    run("wait", "sleep", "--for", "running")
    done = run("stop", "sleep", "--reason", "lunch time")
    assert "Running" not in done.out + done.err, "the state before says to stop it"

    assert done.code == 0
    assert "sleep-1 Stopped: Stopped by its owner: lunch time" in done.out
    assert re.search(r"The record of sleep-1 stays, and its output in /\S+/sleep/1\.", done.err)
    assert ClusterManager().status("sleep").status.released_at is not None


def test_stop_says_which_parameter_servers_it_gave_back(run: Run) -> None:
    """`stop` names the reclaimed parameter servers of an ended run."""
    Path("half.py").write_text(
        "import os, time\nif os.environ['TFCLUSTER_TASK_TYPE'] == 'ps': time.sleep(600)\n"
    )
    run("launch", "half.py", "--workers", "1", "--ps", "1", "--wait")

    said = run("stop", "half").out
    assert re.search(r"half-1 Succeeded: .*\(reclaimed at [\d:]+: ps-0\)$", said.strip())
    assert "(it had already ended)" in run("stop", "half").out


def test_stop_all_is_refused_where_nobody_can_confirm_it(run: Run) -> None:
    """Without a terminal, `--all` needs `--yes`."""
    run("launch", "sleep.py", "--workers", "1")
    refused = run("stop", "--all")

    assert refused.code == 2
    assert "this would stop sleep-1; to confirm: `tfcluster stop --all --yes`" in refused.err
    refused = run("stop", "--all", "--reason", "the exam's room")
    assert """`tfcluster stop --all --reason 'the exam'"'"'s room' --yes`""" in refused.err
    assert run("stop", "--all", "--yes").code == 0
    assert run("stop", "--all").out == "Nothing is running.\n"


def test_delete_leaves_what_a_program_wrote(run: Run, here: Path, own_folders: Path) -> None:
    """`delete` keeps the files that a program wrote, both next to the copy of the program and in
    the folder in which it was launched.
    """
    text = "import os\nfor at in (os.path.dirname(__file__), '.'):\n"
    (here / "write.py").write_text(text + "    open(os.path.join(at, 'model.h5'), 'w').close()\n")
    run("launch", "write.py", "--workers", "1", "--wait")
    assert run("delete", "write").code == 0

    output = own_folders / "tfcluster" / "log" / "write" / "1"
    assert (output / "beside-program" / "model.h5").exists()
    assert (here / "model.h5").exists()


def test_delete_with_logs_needs_a_yes_and_says_what_would_go(run: Run, own_folders: Path) -> None:
    """Output and checkpoints are deleted only with `--yes`."""
    run("launch", "hello.py", "--workers", "1", "--wait")
    output = own_folders / "tfcluster" / "log" / "hello"
    refused = run("delete", "hello", "--with-logs")

    assert refused.code == 2
    assert f"checkpoints in {output}/1" in refused.err
    assert output.is_dir()
    assert run("delete", "hello", "--with-logs", "--yes").out == "deleted hello-1\n"
    assert not output.exists()


def test_delete_of_a_running_cluster_says_that_it_will_be_stopped(run: Run) -> None:
    """An active run is deleted only with `--yes`; it is stopped first."""
    run("launch", "sleep.py", "--workers", "1")
    refused = run("delete", "sleep")

    assert refused.code == 2
    assert "this would stop sleep-1, delete sleep-1" in refused.err
    assert run("delete", "sleep", "-y").code == 0
    assert run("list", "--all", "-o", "name").out == ""


def test_delete_says_which_runs_wait(run: Run) -> None:
    """Before `delete` deletes a run for which other runs wait, it lists the waiting runs and
    asks.
    """
    run("launch", "sleep.py", "--workers", "1")
    launched = run("launch", "hello.py", "--workers", "1", "--after", "sleep")
    waits = "hello-1 Queued: Waiting for sleep-1 to succeed."
    assert launched.out.startswith(waits)
    assert launched.out.count("Waiting") == 1
    said = run("status", "hello").out
    assert said.startswith(waits)
    assert "\nafter: sleep-1\n" in said
    refused = run("delete", "sleep")
    fails = "make the waiting run hello-1 fail (unless it waits for :end)"
    assert f"this would stop sleep-1, delete sleep-1, {fails}" in refused.err
    assert run("stop", "hello").code == 0
    assert "waiting run" not in run("delete", "sleep").err


def test_delete_of_an_ended_runs_record_asks_nothing(run: Run, own_folders: Path) -> None:
    """Deleting an ended run's record needs no confirmation and keeps the output."""
    run("launch", "hello.py", "--workers", "1", "--wait")

    assert run("delete", "hello").code == 0
    assert (own_folders / "tfcluster" / "log" / "hello" / "1").is_dir()


def test_stop_without_a_wait_says_what_goes_on(run: Run) -> None:
    """`stop --no-wait` says that the run is being stopped, and does not show the phase before the
    stop.
    """
    run("launch", "sleep.py", "--workers", "1")
    run("wait", "sleep", "--for", "running")
    assert run("stop", "sleep", "--no-wait").out == "sleep-1 is being stopped\n"
    assert "Stopped" in run("stop", "sleep").out
