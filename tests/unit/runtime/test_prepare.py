"""The preparation of a task before its program starts: addresses, and the checkpoints of an old
run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.polling import wait_until
from support.task_process import Run, TaskProcess, new_run

from tfcluster_magic.runtime.tf_config import tf_cluster

NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Yield a run; end its processes afterwards."""
    with new_run(tmp_path) as made:
        yield made.program("print('started')")


@pytest.fixture
def old(run: Run, tmp_path: Path) -> Path:
    """Create the folder of an old run with two checkpoints, logs and event files."""
    folder = tmp_path / "old"
    (folder / "train").mkdir(parents=True)
    for name in ("model.ckpt-5.index", "model.ckpt-5.data-00000-of-00001", "train/backup"):
        (folder / name).write_text(name)
    for name in ("worker-0.log", "events.out.tfevents.1.host", "train/events.out.tfevents.2.h.v2"):
        (folder / name).write_text("stays behind")
    os.mkfifo(folder / "pipe")
    (folder / ".tfcluster-run-of-another").mkdir()
    (folder / ".tfcluster-progress").mkdir()
    (folder / ".tfcluster-progress" / "worker-0.json").write_text("stays behind")
    (folder / "checkpoint").write_text(
        f'model_checkpoint_path: "{folder}/model.ckpt-5"\n'
        f'all_model_checkpoint_paths: "{folder}/model.ckpt-5"\n'
        'all_model_checkpoint_paths: "/elsewhere/model.ckpt-4"\n'
    )
    run.config["resumeFrom"] = str(folder)
    return folder


def found_in_a_file(run: Run, folder: Path, domain: str, there: str) -> tuple[Path, TaskProcess]:
    """Start a task that looks up the names of its peers, which are below `domain`. They can be
    found only in a hosts file, whose text is `there` at first. Return this file and the task.
    """
    hosts = folder / "hosts"
    hosts.write_text(there)
    run.config["addresses"] = None
    run.config.update(addressTemplate=f"{{name}}-{{type}}-{{index}}.{domain}", port=2222)
    shell = f'mount --bind {hosts} /etc/hosts && exec "$@"'
    task = run.task().start({"TFCLUSTER_PATIENCE": "12"}, prefix=[*NAMESPACE, shell, ""])
    return hosts, task


def test_waits_for_names(run: Run, tmp_path: Path) -> None:
    """A task whose peers have no address yet waits for them, reports it, and then starts."""
    hosts, task = found_in_a_file(run, tmp_path, "invalid", "127.0.0.1 localhost\n")
    wait_until(
        lambda: "waiting for the address of digits-2-ps-0.invalid" in task.output, "the wait"
    )
    with hosts.open("a") as file:
        for name in ("worker-0", "worker-1", "ps-0"):
            file.write(f"127.0.0.1 digits-2-{name}.invalid\n")
    assert task.wait()["cause"] == "Completed"
    assert "every address is there" in task.output
    assert task.output.endswith("started\n")


def test_one_answer_tells_that_all_names_are_there(run: Run, tmp_path: Path) -> None:
    """If the common parent name has an address for each peer, no single name is looked up, because
    600 tasks would need 360 000 lookups. With one address less, the task names the missing peers.
    """
    there = "127.0.0.2 all.invalid\n127.0.0.3 all.invalid\n"
    hosts, task = found_in_a_file(run, tmp_path, "all.invalid", there)
    wait_until(
        lambda: "waiting for the address of digits-2-ps-0.all.invalid" in task.output, "the wait"
    )
    with hosts.open("a") as file:
        file.write("127.0.0.4 all.invalid\n")
    assert task.wait()["cause"] == "Completed"
    assert "every address is there" in task.output


def test_names_that_never_come(run: Run) -> None:
    """A task whose peer never gets an address ends after a timeout, and names the peer."""
    run.config["addresses"]["ps"] = ["gone.invalid:2222"]
    message = run.task().start({"TFCLUSTER_PATIENCE": "0.2"}).wait()
    assert message["cause"] == "NotStarted"
    assert "there is no address for gone.invalid" in message["detail"]


def test_a_peer_may_have_ended(run: Run) -> None:
    """A worker does not wait forever for another worker whose address disappeared with its pod."""
    run.config["addresses"]["worker"][1] = "ended.invalid:2222"
    task = run.task().start({"TFCLUSTER_PATIENCE": "0.2"})
    assert task.wait()["cause"] == "Completed"
    assert "going on without the address of ended.invalid" in task.output


@pytest.mark.parametrize(("replaced", "cause"), [("", "NotStarted"), ("1", "Completed")])
def test_a_group_waits_for_all_of_it(run: Run, replaced: str, cause: str) -> None:
    """Without parameter servers, a worker starts only when all workers have an address, unless its
    pod replaces an earlier pod.
    """
    del run.config["addresses"]["ps"]
    run.config["addresses"]["worker"][1] = "late.invalid:2222"
    run.config["program"]["serves"] = True
    run.config["counts"] = {"worker": 2}
    env = {"TFCLUSTER_PATIENCE": "0.2", "TFCLUSTER_INDEX_FAILURES": replaced}
    assert run.task().start(env).wait()["cause"] == cause


def test_stop_while_waiting(run: Run) -> None:
    """SIGTERM at once ends a task that waits for an address."""
    run.config["addresses"]["ps"] = ["gone.invalid:2222"]
    task = run.task().start({"TFCLUSTER_PATIENCE": "12"})
    wait_until(lambda: "waiting for the address of gone.invalid" in task.output, "the wait")
    task.process.terminate()
    assert (task.wait()["cause"], task.process.returncode) == ("Stopped", 143)
    assert "started" not in task.output


def test_addresses_from_the_template(run: Run) -> None:
    """If addresses follow a pattern, TF_CONFIG is computed from the counts."""
    run.program("import os; print(os.environ['TF_CONFIG'])")
    run.config.pop("addresses")
    run.config.update(addressTemplate="127.0.0.{index}", port=2222, counts={"worker": 2, "ps": 0})
    task = run.task("worker-1").start()
    task.wait()
    addresses = {"worker": ["127.0.0.0:2222", "127.0.0.1:2222"]}
    assert f'"cluster": {tf_cluster(addresses)}'.replace("'", '"') in task.output


def test_resume(run: Run, old: Path) -> None:
    """A resumed run starts with copies of the old checkpoints. Logs, event files, the owner's mark
    and the old progress are not copied.
    """
    other = run.task("ps-0").start()
    task = run.task("worker-0").start()
    assert task.wait()["cause"] == other.wait()["cause"] == "Completed"
    assert f"tfcluster: resumes from {old}, 4 files" in task.output
    copied = {str(f.relative_to(run.output)) for f in run.output.rglob("*") if f.is_file()}
    assert copied == {
        "checkpoint",
        "model.ckpt-5.index",
        "model.ckpt-5.data-00000-of-00001",
        "train/backup",
        ".resumed-from",
        "worker-0.log",
        "ps-0.log",
        ".tfcluster-times/worker-0.log",  # times of the lines that the new run logs
        ".tfcluster-times/ps-0.log",
        ".tfcluster-usage/worker-0.jsonl",  # samples of the new run
        ".tfcluster-usage/ps-0.jsonl",
    }
    assert (run.output / "checkpoint").read_text() == (
        'model_checkpoint_path: "model.ckpt-5"\n'
        'all_model_checkpoint_paths: "model.ckpt-5"\n'
        'all_model_checkpoint_paths: "/elsewhere/model.ckpt-4"\n'
    )


def test_resume_waits_for_the_copy(run: Run, old: Path) -> None:
    """The other tasks start their programs only when the copy is complete."""
    task = run.task("worker-1").start({"TFCLUSTER_PATIENCE": "0.5"})
    message = task.wait()
    assert message["cause"] == "NotStarted"
    assert "no checkpoints were copied" in message["detail"]
    assert "started" not in task.output


def test_resume_copies_once(run: Run, old: Path) -> None:
    """If a task of the resumed run restarts, the run's newer checkpoints are kept."""
    run.task().start().wait()
    (run.output / "model.ckpt-5.index").write_text("newer")
    run.task().start({"TFCLUSTER_ATTEMPT": "2"}).wait()
    assert (run.output / "model.ckpt-5.index").read_text() == "newer"


def test_resume_of_nothing(run: Run, tmp_path: Path) -> None:
    """Resuming from a folder that is gone is refused, and the refusal names the folder."""
    run.config["resumeFrom"] = str(tmp_path / "gone")
    message = run.task().start().wait()
    assert message["cause"] == "NotStarted"
    assert f"the old run's folder {tmp_path}/gone does not exist" in message["detail"]


def test_stop_while_copying(run: Run, old: Path) -> None:
    """SIGTERM ends a task that waits until another task has copied the checkpoints."""
    task = run.task("worker-1").start()
    wait_until(run.output.exists, "the task")
    task.process.terminate()
    assert task.wait()["cause"] == "Stopped"
    assert task.process.returncode == 143


def test_a_number_that_was_used_before(run: Run, tmp_path: Path) -> None:
    """If the output folder has files of an earlier run with the same number, a task ends, and its
    message has a remedy. The files of the earlier run are not changed, not even by the log of the
    refusal.
    """
    folder = Path(run.config["outputDir"])
    run.config["ownFolder"] = True
    assert run.task("worker-0").start().wait()["cause"] == "Completed"
    before = {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
    assert folder / "worker-0.log" in before
    run.config["uid"] = "another-run"
    task = run.task("worker-1").start()
    message = task.wait()
    assert message["cause"] == "NotStarted"
    assert f"the output folder {folder} has files of an earlier run" in message["detail"]
    assert "launch again for the next number" in task.output
    assert {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()} == before
    assert not [p.name for p in folder.iterdir() if "another-run" in p.name]


def test_files_that_no_run_has_marked(run: Run) -> None:
    """Files in an output folder without a run's mark are not changed."""
    folder = Path(run.config["outputDir"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.ckpt-5.index").write_text("precious")
    run.config["ownFolder"] = True
    assert run.task("worker-0").start().wait()["cause"] == "NotStarted"
    assert [p.name for p in folder.iterdir()] == ["model.ckpt-5.index"]


def test_all_tasks_of_a_run_share_its_folder(run: Run) -> None:
    """Tasks that start together in an empty folder all own it, and so do later attempts."""
    run.config["ownFolder"] = True
    tasks = [run.task(name).start() for name in ("worker-0", "worker-1", "ps-0")]
    assert {task.wait()["cause"] for task in tasks} == {"Completed"}
    assert run.task("worker-1").start().wait()["cause"] == "Completed"


@pytest.mark.parametrize(("heals", "cause"), [(True, "Completed"), (False, "NotStarted")])
def test_a_volume_that_recovers_is_waited_for(
    run: Run, tmp_path: Path, heals: bool, cause: str
) -> None:
    """An error of a recovering volume does not end a task at once: the task waits, and reports the
    reason.
    """
    folder = tmp_path / "volume"
    folder.symlink_to(tmp_path / "brick")  # the link exists, but its target does not
    run.config |= {"outputDir": str(folder), "ownFolder": True}
    task = run.task().start({} if heals else {"TFCLUSTER_PATIENCE": "4"})
    wait_until(lambda: f"waiting for the output folder {folder}: " in task.output, "the wait")
    if heals:
        (tmp_path / "brick").mkdir()
    message = task.wait()
    assert message["cause"] == cause
    assert message.get("detail", "") == (
        "" if heals else f"cannot make the output folder {folder}: File exists"
    )
