"""A program's results: links to them, copies of files that are deleted with a pod, and checkpoints
with which the program began.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import event_writer as ev
from support.polling import wait_until
from support.task_process import RUNTIME, Run, new_run

from tfcluster_magic.progress.run_observation import lost_writes
from tfcluster_magic.progress.run_progress import ProgressReader

LOGS = f"""
import os, socket, sys, time
EVENT = {ev.event(7, {"loss": 0.5})!r}
def event_file(folder, event=EVENT):
    os.makedirs(folder, exist_ok=True)
    name = f"events.out.tfevents.{{int(time.time())}}.{{socket.gethostname()}}.{{os.getpid()}}.0.v2"
    file = open(os.path.join(folder, name), "wb", buffering=0)
    file.write(event)
    return file
def checkpoint(folder, name="model.ckpt-800"):
    os.makedirs(folder, exist_ok=True)
    open(os.path.join(folder, name + ".index"), "w").write("index")
    open(os.path.join(folder, "checkpoint"), "w").write(f'model_checkpoint_path: "{{name}}"\\n')
def wait(path):
    while not os.path.exists(path):
        time.sleep(0.01)
"""
MOUNTS = """\
21 1 0:20 / / rw - overlay overlay rw,lowerdir=/a
22 21 0:21 / /proc rw - proc proc rw
23 21 8:1 /pods/u/volumes/kubernetes.io~empty-dir/log /log rw - ext4 /dev/sda1 rw
24 21 0:30 / /data rw - nfs4 server:/data rw
25 21 8:1 /pods/u/volumes/kubernetes.io~csi/pvc/mount /home/jovyan\\040x rw - ext4 /dev/sdb rw
26 21 0:31 / /tmp rw - tmpfs tmpfs rw
"""


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the modules of the runtime importable by their bare names, as in a task."""
    monkeypatch.syspath_prepend(str(RUNTIME))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Yield a run whose program works in a folder of the user's."""
    (tmp_path / "work").mkdir()
    with new_run(tmp_path) as made:
        yield made


def program(run: Run, text: str, *arguments: str) -> Run:
    """Give the run this program and return it: one worker, which works in the user's folder
    `work`.
    """
    run.config["addresses"] = {"worker": ["127.0.0.1:4002"]}
    run.config["counts"] = {"worker": 1}
    work = str(run.folder / "work")
    return run.program(LOGS + text, workingDir=work, arguments=list(arguments))


def test_event_files_elsewhere_are_linked_while_the_program_runs(run: Run) -> None:
    """Event files that a program writes to ./logs are linked from the run's folder and reported
    while the program runs.
    """
    go = run.folder / "go"
    program(run, f"file = event_file('logs/train')\ncheckpoint('logs')\nwait({str(go)!r})\n")
    task = run.task().start()
    logs = str(run.folder / "work" / "logs")
    assert task.event("writes")["folder"].startswith(logs)
    seen = wait_until(ProgressReader(run.output).read, "progress")
    assert (seen.step, seen.loss) == (7, 0.5)
    go.touch()
    ended = task.wait()
    assert (ended["cause"], ended["lost"]) == ("Completed", [])
    assert ended["wrote"] == [f"{logs}/train", logs] or ended["wrote"] == [logs, f"{logs}/train"]
    links = [path for path in (run.output / "written").rglob("*") if path.is_symlink()]
    assert {os.path.dirname(os.readlink(path)) for path in links} == {logs, f"{logs}/train"}


def test_a_program_that_is_quick_is_seen_at_its_end(run: Run) -> None:
    """Event files of a program that has already ended are found by their names."""
    program(run, "event_file('logs').close()\n")
    assert run.task().start().wait()["wrote"] == [str(run.folder / "work" / "logs")]
    assert ProgressReader(run.output).read().step == 7


def test_files_of_others_are_left_alone(run: Run) -> None:
    """Older event files, event files of another living process, and files in the run's own folder
    get no links.
    """
    work = run.folder / "work"
    old = ev.event_file(work / "logs", 1000)
    old.write_bytes(ev.event(3, {"loss": 0.5}))
    text = (
        "host = socket.gethostname()\n"
        f"name = f'logs/events.out.tfevents.{{int(time.time())}}.{{host}}.{os.getpid()}.0.v2'\n"
        "open(name, 'wb').close()\n"
        "event_file(os.environ['TFCLUSTER_OUTPUT_DIR'])\n"
    )
    program(run, text)
    ended = run.task().start().wait()
    assert (ended["cause"], ended["wrote"], ended["lost"]) == ("Completed", [], [])
    assert not (run.output / "written").exists()


def test_a_file_that_another_run_has_linked_is_left_alone(run: Run) -> None:
    """An event file of a process that has ended belongs to the run that has a link to it."""
    run.config["outputDir"] = str(run.folder / "log" / "digits" / "2")
    theirs = run.folder / "log" / "other" / "1" / "written" / "logs"
    theirs.mkdir(parents=True)
    quick = (
        "import subprocess\n"
        "process = subprocess.Popen(['true'])\n"
        "process.wait()\n"
        "os.getpid = lambda: process.pid\n"
        "event_file('logs/mine').close()\n"
        "file = event_file('logs/theirs')\n"
        "file.close()\n"
        f"link = os.path.join({str(theirs)!r}, os.path.basename(file.name))\n"
        "os.symlink(os.path.abspath(file.name), link)\n"
    )
    program(run, quick)
    assert run.task().start().wait()["wrote"] == [str(run.folder / "work" / "logs" / "mine")]


@pytest.mark.parametrize(
    ("path", "lost"),
    [
        ("/srv/logs", True),
        ("/", True),
        ("/log/digits/1", True),
        ("/tmp/x", True),
        ("/data/logs", False),
        ("/home/jovyan x/logs", False),
        ("/home/jovyan", True),
        ("/database", True),
    ],
)
def test_what_goes_with_a_pod(runtime: None, path: str, lost: bool) -> None:
    """A container's own layers, memory and emptyDirs are deleted with a pod; volumes stay."""
    from writes import is_lost_with_pod

    assert is_lost_with_pod(path, MOUNTS) is lost
    assert not is_lost_with_pod(path, "")


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="a folder in memory")
def test_what_a_pod_would_lose_is_copied_and_told(run: Run) -> None:
    """From a pod's own disk, event files are copied as they grow, and checkpoints when they are
    complete.
    """
    with tempfile.TemporaryDirectory(dir="/dev/shm") as gone:
        go = run.folder / "go"
        more = repr(ev.event(9, {"loss": 0.25}))
        program(
            run,
            f"file = event_file('{gone}/logs')\nwait({str(go)!r})\nfile.write({more})\n"
            f"checkpoint('{gone}/logs')\n",
            f"--model_dir={gone}",
        )
        run.config["ownFolder"] = True
        task = run.task().start()
        told = task.event("writes")
        assert (told["folder"], told["gone"]) == (f"{gone}/logs", True)
        wait_until(lambda: (p := ProgressReader(run.output).read()) and p.step == 7, "the copy")
        assert "is lost with it" in task.output and str(run.output) in task.output
        place = lost_writes(str(run.output))[0]
        assert place[:2] == ("worker-0", f"{gone}/logs")
        go.touch()
        ended = task.wait()
        assert (ended["wrote"], ended["lost"]) == ([], [f"{gone}/logs"])
        assert ProgressReader(run.output).read().step == 9
        copies = {path.name for path in Path(place[2]).iterdir()}
        assert {"checkpoint", "model.ckpt-800.index"} < copies
    assert not any(path.is_symlink() for path in (run.output / "written").rglob("*"))


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="a folder in memory")
def test_large_checkpoints_are_copied_while_there_is_room(run: Run) -> None:
    """The newest checkpoint that a program keeps is copied, whatever its size; checkpoints without
    room are named.
    """
    with tempfile.TemporaryDirectory(dir="/dev/shm") as gone:
        program(
            run,
            f"""
from pathlib import Path
def save(name, mebibytes):
    path = '{gone}/logs/' + name + '.data-00000-of-00001'
    os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), mebibytes << 20)
    return path
event_file('{gone}/logs')
old = save('model.ckpt-1', 300)
while not list(Path({str(run.output)!r}).glob('written/**/model.ckpt-1.data-00000-of-00001')):
    time.sleep(0.01)
os.unlink(old)
save('model.ckpt-2', 300)
save('model.ckpt-3', 600)
""",
            f"--model_dir={gone}",
        )
        run.config["ownFolder"] = True
        task = run.task().start()
        task.wait()
        copies = run.output.glob("written/**/*.data-*")
        assert {path.name.split(".data")[0] for path in copies} == {"model.ckpt-2"}
        assert "model.ckpt-3.data-00000-of-00001 is not copied: at most 512 MiB" in task.output


# ---- a checkpoint of an earlier run ----

RESTORES = "open('model/model.ckpt-800.index').read()\n"


def earlier(run: Run, name: str = "model.ckpt-800") -> Path:
    """Create a folder with an earlier checkpoint."""
    folder = run.folder / "work" / "model"
    folder.mkdir()
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{name}"\n')
    (folder / f"{name}.index").write_text("index")
    return folder


def test_a_run_that_finds_itself_done_says_so(run: Run) -> None:
    """A program that restores the last step, and saves it again as TensorFlow 1 does, has trained
    nothing; the report of its end names the checkpoint.
    """
    folder = earlier(run)
    text = (
        "checkpoint('model')\nevent_file('model', b'').close()\nprint('Loss for final step: None')"
    )
    program(run, RESTORES + text)
    found = run.task().start().wait()["found"]
    assert found == {"checkpoint": "model.ckpt-800", "folder": str(folder), "run": "", "steps": 0}


def test_one_step_is_all_that_tensorflow_1_does_then(run: Run) -> None:
    """A TensorFlow 1 hook that stops training at a certain step checks only after one more step.
    This step does not count as training.
    """
    earlier(run)
    text = "print('loss = 0.5, step = 800')\ncheckpoint('model', 'model.ckpt-801')\n"
    program(run, RESTORES + text)
    found = run.task().start().wait()["found"]
    assert (found["checkpoint"], found["steps"]) == ("model.ckpt-800", 1)


@pytest.mark.parametrize(
    "text",
    [
        "",  # the checkpoint is not opened
        RESTORES + "checkpoint('model', 'model.ckpt-802')\n",
        RESTORES + "print('step 802, loss = 0.5')\n",
        RESTORES + "print('step 5, loss = 0.5')\n",
        RESTORES + "print('Epoch 1/2')\n",
        RESTORES + "open('model.keras', 'w').close()\n",
        RESTORES + f"event_file('model', {ev.event(802, {'loss': 0.5})!r}).close()\n",
        RESTORES + "sys.exit(1)\n",
    ],
)
def test_a_run_that_trains_says_nothing_of_the_checkpoint_it_began_from(
    run: Run, text: str
) -> None:
    """If a program has written a newer checkpoint, made a further step, saved a model or failed,
    the task does not report that the training was already finished.
    """
    earlier(run)
    program(run, text)
    assert run.task().start().wait().get("found") is None


def test_the_run_is_named_whose_checkpoint_was_taken_over(run: Run) -> None:
    """A checkpoint copied by `rerun --resume` is reported with its run."""
    old = run.folder / "log" / "digits" / "1"
    old.mkdir(parents=True)
    (old / "checkpoint").write_text('model_checkpoint_path: "ckpt-3"\n')
    (old / "ckpt-3.index").write_text("index")
    run.config["resumeFrom"] = str(old)
    program(run, "open(os.path.join(os.environ['TFCLUSTER_OUTPUT_DIR'], 'ckpt-3.index')).read()\n")
    found = run.task().start().wait()["found"]
    told = {"checkpoint": "ckpt-3", "folder": str(run.output), "run": "digits-1", "steps": 0}
    assert found == told
    shutil.rmtree(old)


def test_what_a_run_wrote_elsewhere_is_not_taken_over(run: Run) -> None:
    """`rerun --resume` copies neither the links to files of the old run nor the report about the
    old run's lost files.
    """
    old = run.folder / "log" / "digits" / "1"
    (old / "written" / "logs").mkdir(parents=True)
    (old / "written" / "logs" / "checkpoint").write_text("x")
    (old / ".tfcluster-lost").mkdir()
    (old / ".tfcluster-lost" / "worker-0.json").write_text(json.dumps({"folders": {}}))
    (old / "weights.bin").write_text("x")
    run.config["resumeFrom"] = str(old)
    program(run, "")
    assert run.task().start().wait()["cause"] == "Completed"
    assert sorted(path.name for path in run.output.iterdir()) == [
        ".resumed-from",
        ".tfcluster-times",
        ".tfcluster-usage",
        "weights.bin",
        "worker-0.log",
    ]
