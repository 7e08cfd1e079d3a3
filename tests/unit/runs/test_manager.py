"""The manager with the real local backend; no program needs TensorFlow."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support.polling import wait_until
from support.project import ROOT
from support.run_manager import HELLO, here, left_behind, manager
from traitlets import TraitError

from tfcluster_magic import ClusterManager
from tfcluster_magic.errors import (
    ClusterFailed,
    Conflict,
    InvalidRequest,
    NameTaken,
    NotFound,
    PreflightRefused,
    WaitTimeout,
)
from tfcluster_magic.progress.run_observation import silence
from tfcluster_magic.runs.manager import Until
from tfcluster_magic.spec import Phase, TFCluster

__all__ = ["here", "manager"]  # fixtures of another module


def test_a_launched_program_runs_on_every_task(manager: ClusterManager) -> None:
    """Three lines of Python launch a program, wait for it, and read its logs."""
    run = manager.launch("hello.py", workers=2, ps=0)
    ended = manager.wait(run.metadata.name, 180)

    assert ended.status.phase is Phase.SUCCEEDED
    lines = {(line.task, line.text) for line in manager.logs("hello") if line}
    assert lines == {("worker-0", "hello from worker-0"), ("worker-1", "hello from worker-1")}


def test_a_large_program_runs_and_its_snapshot_stays(
    manager: ClusterManager, here: Path, own_folders: Path
) -> None:
    """A program too large for a record is kept in the workspace, for reruns."""
    (here / "large.py").write_text(HELLO + "#" * 200_000)
    run = manager.launch("large.py", workers=1)
    manager.wait(run.metadata.name, 180)
    (here / "large.py").unlink()
    again = manager.rerun("large")

    assert manager.wait(again.metadata.name, 180).status.phase is Phase.SUCCEEDED
    assert [*(own_folders / "tfcluster" / ".tfcluster" / "code").iterdir()]


def test_a_refused_launch_of_a_large_program_leaves_no_snapshot(
    manager: ClusterManager, here: Path, own_folders: Path
) -> None:
    """A launch that is refused for lack of resources removes its snapshot."""
    (here / "large.py").write_text(HELLO + "#" * 200_000)
    with pytest.raises(PreflightRefused, match="GPU"):
        manager.launch("large.py", gpu=64)

    assert not [path for path in left_behind(own_folders) if "code/" in path]
    assert manager.list() == []


def test_a_name_that_is_taken_is_refused_and_a_derived_one_makes_way(
    manager: ClusterManager,
) -> None:
    """Two launches with the same given name collide; two launches of the same program without a
    name do not.
    """
    manager.launch("sleep.py", workers=1, name="mine")
    with pytest.raises(NameTaken, match="mine"):
        manager.launch("sleep.py", workers=1, name="mine")
    first = manager.launch("sleep.py", workers=1)
    second = manager.launch("sleep.py", workers=1)

    assert first.metadata.cluster == "sleep"
    assert second.metadata.cluster != "sleep"


def test_waiting_for_a_failed_run_raises_with_the_cause(
    manager: ClusterManager, here: Path
) -> None:
    """Waiting for a failed run raises an error with the failed task and the reason."""
    (here / "bad.py").write_text("raise ValueError('no such column')\n")
    run = manager.launch("bad.py", workers=1)
    with pytest.raises(ClusterFailed, match=r"bad-1 failed: worker-0 .*no such column"):
        manager.wait(run.metadata.name, 180)


def test_waiting_in_vain_raises_and_the_run_goes_on(manager: ClusterManager) -> None:
    """A timeout ends the wait, never the run."""
    run = manager.launch("sleep.py", workers=1)
    with pytest.raises(WaitTimeout, match="The run continues"):
        manager.wait(run.metadata.name, 0.2)

    assert manager.status("sleep").active


def test_waiting_for_a_stopped_run_raises_with_the_reason(manager: ClusterManager) -> None:
    """Waiting for a stopped run raises an error with the reason."""
    run = manager.launch("sleep.py", workers=1)
    manager.wait(run.metadata.name, 180, until=Until.READY)
    threading.Timer(0.2, manager.stop, (run.metadata.name, "the room is needed")).start()
    with pytest.raises(ClusterFailed, match="the room is needed"):
        manager.wait(run.metadata.name, 180)


def test_a_rerun_is_the_same_snapshot_even_when_the_file_changed(
    manager: ClusterManager, here: Path
) -> None:
    """Editing the program's file does not change the program of a rerun; only the options of the
    rerun differ from the first run.
    """
    manager.wait(manager.launch("hello.py", workers=2).metadata.name, 60)
    (here / "hello.py").write_text("raise SystemExit(1)\n")
    again = manager.rerun("hello", workers=1, arguments=["x"])
    ended = manager.wait(again.metadata.name, 180)

    assert ended.metadata.name == "hello-2"
    assert ended.spec.replicas.worker.count == 1
    assert ended.spec.program is not None
    assert ended.spec.program.arguments == ("x",)


def test_a_rerun_can_resume_and_take_another_name(manager: ClusterManager) -> None:
    """`--resume` names the run whose checkpoints are used; `--name` names the new cluster."""
    manager.wait(manager.launch("hello.py", workers=1).metadata.name, 60)
    plan = manager.plan_rerun("hello", resume=True, name="other")

    assert plan.cluster.spec.resume_from == "hello-1"
    assert plan.cluster.metadata.name == "other-1"
    (warning,) = [each for each in plan.preflight.warnings if "has no checkpoint" in each]
    assert "starts from the beginning" in warning
    Path(manager.status("hello").status.paths["output"], "model.ckpt-1.index").write_text("")
    plan = manager.plan_rerun("hello", resume=True, name="other")
    assert not [each for each in plan.preflight.warnings if "has no checkpoint" in each]


COUNTS = """
import os, pathlib, time
folder = pathlib.Path(os.environ["TFCLUSTER_OUTPUT_DIR"])
task, kept = os.environ["TFCLUSTER_TASK"], folder / "model.ckpt-1.index"
if kept.exists():
    print(task, "goes on from", kept.read_text(), flush=True)
elif task == "worker-0":
    kept.write_text("step 7")
    print("saved", flush=True)
    time.sleep(600)
else:
    time.sleep(600)
"""


def test_resuming_an_active_run_stops_it_and_goes_on_from_its_checkpoints(
    manager: ClusterManager, here: Path
) -> None:
    """`rerun --workers 3 --resume` stops the active run and continues from its checkpoints with
    three workers. An invalid request stops nothing; with another name, the run is not stopped.
    """
    (here / "counts.py").write_text(COUNTS)
    first = manager.launch("counts.py", workers=1, grace="1s")
    kept = Path(first.status.paths["output"], "model.ckpt-1.index")
    wait_until(kept.exists, "a checkpoint")
    with pytest.raises(InvalidRequest):
        manager.rerun("counts", resume=True, workers=-1)
    with pytest.raises(NameTaken):
        manager.rerun("counts", workers=3)
    beside = manager.rerun("counts", resume=True, name="beside", workers=1)
    assert manager.status("counts-1").active
    manager.stop(beside.metadata.name)

    seen: list[Phase] = []
    again = manager.rerun(
        "counts", resume=True, workers=3, on_stop=lambda run: seen.append(run.status.phase)
    )
    assert seen[-1] is Phase.STOPPED
    old = manager.status("counts-1")
    assert old.status.phase is Phase.STOPPED
    assert "another run resumes it" in old.status.message
    assert manager.wait(again.metadata.name, 180).spec.resume_from == "counts-1"
    told = {line.text for line in manager.logs("counts-2") if line}
    assert {f"worker-{index} goes on from step 7" for index in range(3)} <= told


def test_a_name_to_wait_for_means_its_newest_run(manager: ClusterManager) -> None:
    """A launch with `--after NAME` waits for the newest run of this name; a message of the launch
    and its record say which run that is. A rerun of this launch does not wait.
    """
    manager.wait(manager.launch("hello.py", workers=1).metadata.name, 60)
    manager.wait(manager.launch("hello.py", workers=1).metadata.name, 60)
    run = manager.launch("hello.py", name="next", workers=1, after=["hello"])
    assert [each.words for each in run.spec.after] == ["hello-2"]
    said = "it waits for hello-2, the newest run of hello; --after hello-N names another one"
    assert said in map(str, run.status.inferred)
    assert not run.status.message.startswith(("Waiting for hello-2", "Waiting for room"))
    assert manager.wait(run.metadata.name, 60).status.awaited[0].run == "hello-2"
    again = manager.plan_rerun("next")
    assert again.cluster.spec.after == ()
    assert "next-1 waited for hello-2, and this run does not" in again.cluster.status.warnings[0]
    other = manager.plan_rerun("next", after="hello-1:end")
    assert [each.words for each in other.cluster.spec.after] == ["hello-1:end"]
    assert not [text for text in other.cluster.status.warnings if "waited for" in text]


def test_what_can_never_happen_is_refused_at_launch(manager: ClusterManager, here: Path) -> None:
    """A launch is refused if it waits for a run that does not exist, that has failed, or that never
    ends by itself.
    """
    (here / "fail.py").write_text("raise SystemExit(1)\n")
    with pytest.raises(ClusterFailed):
        manager.wait(manager.launch("fail.py", workers=1).metadata.name, 60)
    manager.launch(mode="in-graph", workers=1, ps=0)
    for after, words in (
        ("fial-1", "there is no run fial-1; did you mean fail-1?"),
        ("nothing", "there is no run nothing; `tfcluster list --all` shows"),
        ("fail", r"fail-1 has not succeeded \(Failed\): leave this out, or write fail-1:end"),
        ("in-graph", "in-graph-1 is in-graph and is ended by you: write in-graph-1:end"),
        ("fail:never", "write RUN, RUN:success or RUN:end"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            manager.launch("hello.py", workers=1, after=[after])
    assert "there is no run nothing" in str(manager.sketch("hello.py", after="nothing").problems)
    ended = manager.launch("hello.py", workers=1, after=["fail:end"]).metadata.name
    assert manager.wait(ended, 60).status.phase.value == "Succeeded"


def test_a_deleted_run_has_ended_for_those_that_wait_for_its_end(manager: ClusterManager) -> None:
    """Deleting a run for which other runs wait stops it. Of the waiting runs, one that waits for
    any end starts, and one that waits for a success fails with this reason.
    """
    first = manager.launch("sleep.py", workers=1).metadata.name
    manager.wait(first, 60, until=Until.READY)
    any_end = manager.launch("hello.py", name="any", workers=1, after=f"{first}:end")
    success = manager.launch("hello.py", name="good", workers=1, after=first)
    waiting = manager.waiting_for([first])
    assert {run.metadata.name for run in waiting} == {"any-1", "good-1"}
    manager.delete(first)
    assert manager.wait(any_end.metadata.name, 60).status.phase.value == "Succeeded"
    with pytest.raises(ClusterFailed, match=f"{first} was stopped, so this run did not start"):
        manager.wait(success.metadata.name, 60)


def test_list_shows_the_newest_run_of_each_name_and_all_runs_when_asked(
    manager: ClusterManager,
) -> None:
    """In the list, a name that was launched many times has one line; on request, all its runs are
    listed.
    """
    for _ in range(2):
        manager.wait(manager.launch("hello.py", workers=1).metadata.name, 60)
    manager.launch("sleep.py", workers=1)

    assert _names(manager.list()) == ["sleep-1", "hello-2"]
    assert _names(manager.list(all_runs=True)) == ["sleep-1", "hello-2", "hello-1"]
    assert _names(manager.list(["hello"], all_runs=True)) == ["hello-2", "hello-1"]


def _names(runs: list[TFCluster]) -> list[str]:
    return [run.metadata.name for run in runs]


def test_following_the_output_ends_with_the_run_and_not_with_its_parameter_servers(
    manager: ClusterManager, here: Path
) -> None:
    """Following ends with the workers' success, not 30 s later with the reclaim."""
    (here / "train.py").write_text(
        "import os, time\nprint('start', flush=True)\n"
        "time.sleep(600 if os.environ['TFCLUSTER_TASK_TYPE'] == 'ps' else 0.5)\nprint('end')\n"
    )
    run = manager.launch("train.py", workers=1, ps=1, reclaim_after="10m")
    lines = [line for line in manager.logs(run.metadata.name, follow=True) if line]

    assert [x.text for x in lines if x.task == "worker-0"] == ["start", "end"]
    assert manager.status("train").status.released_at is None


def test_deleting_a_run_stops_it_first_and_removes_its_output_when_asked(
    manager: ClusterManager, own_folders: Path
) -> None:
    """Deleting a run with its logs stops an active run and leaves nothing."""
    manager.launch("sleep.py", workers=1)
    manager.delete("sleep", with_logs=True)

    with pytest.raises(NotFound):
        manager.status("sleep-1")
    assert not (own_folders / "tfcluster" / "log" / "sleep").exists()


def test_a_program_cluster_cannot_be_connected_to(manager: ClusterManager) -> None:
    """For a cluster that runs a program, the error of `connect` gives the reason and an
    alternative.
    """
    manager.launch("sleep.py", workers=1)
    with pytest.raises(Conflict, match=r"--mode in-graph"):
        manager.reachable("sleep")


def test_an_in_graph_cluster_is_reachable_when_all_ports_accept(manager: ClusterManager) -> None:
    """A client connects to the addresses in the record."""
    manager.launch(mode="in-graph", workers=1, ps=1)
    cluster = manager.reachable("in-graph", 60)

    assert {kind: len(hosts) for kind, hosts in cluster.status.addresses.items()} == {
        "worker": 1,
        "ps": 1,
    }


def test_an_unknown_backend_is_refused_with_those_there_are() -> None:
    """The refusal of an unknown backend lists the existing backends."""
    with pytest.raises(TraitError, match="local"):
        ClusterManager(backend_name="cloud")


def test_the_managers_folders_go_before_the_environments(own_folders: Path, here: Path) -> None:
    """`state_dir` and `log_dir` of the manager, not of the environment, decide where runs and their
    output are.
    """
    manager = ClusterManager(
        state_dir=str(own_folders / "s"), log_dir=str(own_folders / "l"), data_dir="d"
    )
    manager.wait(manager.launch("hello.py", workers=1).metadata.name, 60)

    assert (own_folders / "s" / "runs" / "hello").is_dir()
    assert (own_folders / "l" / "hello" / "1").is_dir()
    assert manager.options().data_dir == str(here / "d")


def test_a_silent_task_is_told(manager: ClusterManager) -> None:
    """If tasks have printed nothing for five minutes, `status` names these tasks and the time of
    their last output.
    """
    run = manager.launch("sleep.py", workers=2)
    cluster = manager.wait(run.metadata.name, 180, until=Until.READY)
    wait_until(lambda: all(_log(cluster, i).stat().st_size for i in (0, 1)))
    os.utime(_log(cluster, 1), (0, time.time() - 400))

    assert silence(cluster, time.time()) is not None
    assert "from worker-1" in str(silence(cluster, time.time()))
    assert silence(cluster, time.time() - 400) is None


def _log(cluster: TFCluster, index: int) -> Path:
    return Path(cluster.status.paths["logs"]) / f"worker-{index}.log"


@pytest.mark.parametrize(
    ("begin", "heavy"),
    [
        (
            "from tfcluster_magic import ClusterManager; ClusterManager()",
            "IPython tensorflow jinja2 asyncio yaml http.client tfcluster_magic.program",
        ),
        (
            "import tfcluster_magic.cli, tfcluster_magic.backends.kubernetes.backend",
            "IPython tensorflow jinja2 asyncio tfcluster_magic.backends.kubernetes.schedule_store",
        ),
    ],
    ids=["a manager", "a command on Kubernetes"],
)
def test_what_is_slow_to_import_is_imported_when_it_is_needed(begin: str, heavy: str) -> None:
    """A manager and a command start without modules that most of their uses do not need."""
    script = f"import sys; {begin}; print([m for m in '{heavy}'.split() if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )

    assert done.stdout.strip() == "[]"


def test_a_record_is_shown_without_the_contents_of_its_files() -> None:
    """A record is one line that a notebook can show, however large its program is."""
    run = ClusterManager().plan(cell="x = 1\n" * 5000).cluster
    assert "'cell.py': Ellipsis" in repr(run)
    assert len(repr(run)) < 3000
