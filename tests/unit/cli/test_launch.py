"""`launch` and `rerun`: their output, their waits, and their exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
import yaml
from support.command_line import Run, here, left_behind, run

from tfcluster_magic import ClusterManager
from tfcluster_magic.spec import Phase, TFCluster

__all__ = ["here", "run"]  # fixtures used by the tests below


def test_launch_returns_at_once_and_says_what_to_do_next(run: Run) -> None:
    """The report of a launch has the name, the tasks, where output goes, and the next commands."""
    done = run("launch", "sleep.py", "--workers", "2", "--ps", "0")

    assert done.code == 0
    assert done.out.startswith("sleep-1 ")
    for part in ("2 workers", "log/sleep/1", "tfcluster logs -f sleep-1", "tfcluster stop sleep-1"):
        assert part in done.out
    assert ClusterManager().status("sleep-1").active


def test_a_refused_dry_run_names_the_option_that_was_typed(run: Run) -> None:
    """The error of a dry run names `--memory` or `--worker-memory`, whichever was typed."""
    for typed in ("--memory", "--worker-memory"):
        refused = run("launch", "--dry-run", "sleep.py", typed, "9999Ti")
        assert refused.code == 3
        assert f"cluster: {typed}: got '9999Ti'" in refused.err


def test_arguments_after_two_dashes_are_the_programs_own(run: Run, here: Path) -> None:
    """Arguments after ` -- ` reach the program unchanged, even if they look like options."""
    (here / "args.py").write_text("import sys\nprint(sys.argv[1:])\n")
    done = run("launch", "args.py", "--workers", "1", "--follow", "--", "--workers", "9", "--", "x")

    assert done.code == 0
    assert "worker-0 | ['--workers', '9', '--', 'x']" in done.out


def test_follow_shows_every_line_with_its_task_and_the_outcome(run: Run) -> None:
    """`--follow` shows all lines until the end, and how the run ended."""
    done = run("launch", "hello.py", "--workers", "2", "--follow")

    assert "worker-0 | hello from worker-0" in done.out
    assert "worker-1 | hello from worker-1" in done.out
    assert "hello-1 Succeeded" in done.err


def test_waiting_for_a_failing_program_exits_10_with_the_cause(run: Run) -> None:
    """If the run fails, a launch that waits for it exits with code 10, and the message has the
    cause.
    """
    done = run("launch", "fail.py", "--workers", "1", "--ps", "1", "--wait")

    assert done.code == 10
    assert "fail-1 failed: worker-0 failed with exit code 1: ValueError: no such column" in done.err
    assert "Traceback" not in done.err


def test_a_wait_that_takes_too_long_exits_11_and_the_run_goes_on(run: Run) -> None:
    """`--timeout` limits only the wait: the launch exits with code 11, and the run continues."""
    done = run("launch", "sleep.py", "--workers", "1", "--follow", "--timeout", "0.5s")

    assert done.code == 11
    assert ClusterManager().status("sleep").active


def test_waiting_with_json_prints_the_ended_run_and_nothing_else(run: Run) -> None:
    """With `--wait -o json`, the output is a single JSON document."""
    done = run("launch", "hello.py", "--workers", "1", "--wait", "-o", "json")
    ended = msgspec.json.decode(done.out, type=TFCluster)

    assert ended.status.phase is Phase.SUCCEEDED
    assert done.err == ""


def test_in_graph_wait_is_over_when_the_servers_accept(run: Run) -> None:
    """Servers never end by themselves, so `--wait` waits until they accept connections."""
    done = run("launch", "--mode", "in-graph", "--workers", "1", "--ps", "1", "--wait")
    said = run("connect", "in-graph")

    assert done.code == 0
    assert "in-graph-1 Running" in done.err
    assert re.search(r"worker +127\.0\.0\.1:\d+", said.out)
    assert 'Cluster("in-graph-1")' in said.out


def test_a_dry_run_prints_the_cluster_and_creates_nothing(run: Run, own_folders: Path) -> None:
    """`--dry-run` shows the TFCluster as YAML, and says that nothing was created."""
    done = run("launch", "hello.py", "--dry-run", "--workers", "3")

    spec = yaml.safe_load(done.out)["spec"]
    assert spec["replicas"]["worker"] == {"count": 3}
    assert re.fullmatch(r"\(\d+ bytes\)", spec["program"]["files"]["hello.py"])
    assert "nothing was" in done.err
    assert left_behind(own_folders) == []


def test_a_dry_run_without_room_says_so_with_the_code_of_no_room(run: Run) -> None:
    """A dry run checks the resources like a launch."""
    done = run("launch", "hello.py", "--dry-run", "--memory", "100Ti")

    assert done.code == 3
    assert "100Ti" in done.err


def test_a_rerun_takes_what_is_advised(
    run: Run, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--advised` shows each option that advice changes, and applies it after a confirmation; an
    option that you give yourself is not changed.
    """
    monkeypatch.setenv("TFCLUSTER_IDLE_SAMPLE", "0.2")
    (here / "rest.py").write_text("import time\ntime.sleep(1)\n")
    run("launch", "rest.py", "--workers", "1", "--worker-memory", "2Gi", "--wait")
    told = run("top", "rest").out
    assert "worker needs less memory: 2GiB requested for each task, and the largest" in told
    assert "`tfcluster rerun rest-1 --worker-memory 512Mi`" in told
    assert "worker needs less memory" in run("status", "rest").out
    asked = run("rerun", "rest", "--advised")
    assert asked.code == 2
    assert "--worker-memory: 2Gi → 512Mi" in asked.err
    assert "`tfcluster rerun rest --advised --yes`" in asked.err
    assert "memory: 512Mi" in run("rerun", "rest", "--advised", "--dry-run").out
    assert run("rerun", "rest", "--advised", "--yes", "--wait", "--max-duration", "2h").code == 0
    again = json.loads(run("status", "rest", "-o", "json").out)["spec"]
    assert again["replicas"]["worker"]["resources"]["memory"] == "512Mi"
    assert again["lifecycle"]["maxDuration"] == 7200

    nothing = run("rerun", "rest", "--advised", "--yes")
    assert nothing.code == 4
    assert "no advice on rest-2 changes an option" in nothing.err
    mine = run("rerun", "rest-1", "--advised", "--worker-memory", "1Gi", "--dry-run")
    assert "memory: 1Gi" in mine.out


def test_resuming_an_active_run_says_that_it_is_stopped(run: Run) -> None:
    """`rerun --resume` of an active run stops it first."""
    run("launch", "sleep.py", "--workers", "1", "--grace", "1s")
    done = run("rerun", "sleep", "--resume", "--workers", "2")

    assert done.code == 0
    assert "sleep-1 is active: it is stopped, and the new run resumes it" in done.err
    assert run("list", "--active", "-o", "name").out.split() == ["sleep-2"]


def test_a_rerun_is_the_next_run_of_the_name(run: Run) -> None:
    """`rerun` launches the snapshot again, with changed options."""
    run("launch", "hello.py", "--workers", "1", "--wait")
    done = run("rerun", "hello", "--follow", "--workers", "2")

    assert done.code == 0
    assert "worker-1 | hello from worker-1" in done.out
    assert "hello-2 Succeeded" in done.err
