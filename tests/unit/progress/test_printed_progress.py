"""The progress of a run, from the printed lines or reports of its program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import event_writer as ev
from support.project import ROOT
from support.task_process import RUNTIME

from tfcluster_magic.progress.printed_progress import PrintedLogs, ReportedProgress
from tfcluster_magic.progress.run_observation import Observer
from tfcluster_magic.progress.run_progress import Progress, progress_text
from tfcluster_magic.spec import (
    Metadata,
    Phase,
    Program,
    ProgramKind,
    Reason,
    Replicas,
    ReplicaSet,
    Spec,
    Status,
    TFCluster,
)

KERAS_3 = (
    "\x1b[1m{n}/100\x1b[0m \x1b[32m━━━━━━━━\x1b[0m\x1b[37m━━━━━━━━━━━━\x1b[0m \x1b[1m1s\x1b[0m "
    "12ms/step - accuracy: 0.8125 - loss: 0.3210"
)
KERAS_2 = "{n}/100 [=====>......................] - ETA: 1s - loss: 0.3210 - accuracy: 0.8125"


def printed(folder: Path, text: str, **totals: int) -> Progress | None:
    """Return the progress that a new reader finds in the log of worker-0."""
    log = folder / "worker-0.log"
    log.write_bytes(text.encode())
    return PrintedLogs([[str(log)]], totals.get("steps"), totals.get("epochs")).read()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("step 145/1000\n", "step 145/1000"),
        ("step = 145, loss = 0.3\n", "step 145 · loss 0.3"),
        ("INFO:tensorflow:loss = 0.3, step = 145 (0.5 sec)\n", "step 145 · loss 0.3"),
        (
            "INFO:tensorflow:global_step/sec: 300\nINFO:tensorflow:loss = 0.3, step = 145\n",
            "step 145 · 300 steps/s · loss 0.3",
        ),
        ("Epoch 2/10\n", "epoch 2/10"),
        ("Epoch 2/10 loss=0.3 val_loss=0.4\n", "epoch 2/10 · loss 0.3 · val_loss 0.4"),
        ("Epoch [2/10], Step [45/100], Loss: 0.3\n", "step 145/1000 · loss 0.3"),
        ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.3\n", "step 640/60000 · loss 2.3"),
        ("I1126 10:57:18.1 14 train.py:45] step 1,200/10,000\n", "step 1200/10000"),
        ("step 145 loss nan\n", "step 145 · loss NaN"),
        ("worker 1: step 5\n", "step 5"),
        ("15.12: Worker 0: training step 12 done (global step: 24)\n", "step 24"),
        (
            f"Epoch 2/10\n{KERAS_3.format(n=45)}\n",
            "step 145/1000 · 83 steps/s · loss 0.321 · accuracy 0.812 · 10 s left",
        ),
        (
            f"Epoch 2/10\n\r{KERAS_2.format(n=1)}" + "\b" * 60 + f"\r{KERAS_2.format(n=45)}",
            "step 145/1000 · loss 0.321 · accuracy 0.812",
        ),
        (
            "\rtrain:  0%|   | 0/9 [0<?]\rtrain: 45%|████▌     | 450/1000 [00:12<00:15, 35.2it/s]",
            "step 450/1000 · 35 steps/s · 16 s left",
        ),
        (
            "Epoch 2/10:  45%|████▌     | 45/100 [00:12<00:15, 2.0s/it]\r",
            "step 145/1000 · 2 s/step · 28 min 30 s left",
        ),
        ("Epochs:  20%|██        | 2/10 [00:12<00:15, 2.1s/epoch]\n", "epoch 2/10"),
        ("450it [00:12, 35.20it/s, loss=0.3]\r", "step 450 · 35 steps/s · loss 0.3"),
        # the bars of evaluate() and predict() after an epoch do not count as training
        (
            f"Epoch 2/2\n{KERAS_3.format(n=100)}\n10/10 ━━━━ 0s 5ms/step - loss: 9.0\n",
            "step 200/200 · 83 steps/s · loss 0.321 · accuracy 0.812",
        ),
    ],
)
def test_lines_that_say_how_far_a_training_is(tmp_path: Path, text: str, said: str) -> None:
    """Step, total, rate and metrics are read from common programs' lines."""
    found = printed(tmp_path, text)
    assert found is not None
    assert (progress_text(found), found.source) == (said, "printedLines")


@pytest.mark.parametrize(
    "text",
    [
        "Step 1: load the data\n",
        "Step 2/5: build the vocabulary\n",
        "Namespace(batch=32, epochs=10, max_steps=1000, lr=0.1)\n",
        "epoch=10, lr=0.1\n",
        "Saving dict for global step 145: accuracy = 0.9, global_step = 145, loss = 0.3\n",
        "Validation step 10/20 loss 0.3\n",
        "Downloading:  20%|██        | 2.1M/10.3M [00:12<00:15, 2.1MB/s]\n",
        "tfcluster: step 3/4\n",
        "steps: 1000\n",
        "step 12.5\n",
        "\x00\xff step",
    ],
)
def test_lines_that_say_something_else(tmp_path: Path, text: str) -> None:
    """Lines about a plan, a configuration, a validation or a download do not count as progress."""
    assert printed(tmp_path, text) is None


def test_totals_come_from_arguments_where_lines_have_none(tmp_path: Path) -> None:
    """`--steps 1000` is the total of lines that name only a step."""
    found = printed(tmp_path, "step 145 loss 0.3\n", steps=1000)
    assert found is not None
    assert (found.step, found.total) == (145, 1000)
    for step, shown in ((1001, (1000, 1000)), (2000, (2000, None))):
        found = printed(tmp_path, f"step {step} loss 0.3\n", steps=1000)
        assert found is not None and (found.step, found.total) == shown


def test_following_a_log(tmp_path: Path) -> None:
    """The rate and the curve are computed from several reads. After a restart, the step is lower,
    and the curve is cut there.
    """
    log = tmp_path / "worker-0.log"
    log.write_text("".join(f"step {n} loss {1 / n}\n" for n in range(1, 51)))
    os.utime(log, (1000, 1000))
    reader = PrintedLogs([[str(log)]], 200, None)
    first = reader.read()
    assert first is not None and (first.step, first.steps_per_second) == (50, None)
    with log.open("a") as file:
        file.write("".join(f"step {n} loss {1 / n}\n" for n in range(51, 101)))
        file.write("step 3")  # the rest of this line is written later
    os.utime(log, (1010, 1010))
    then = reader.read()
    assert then is not None
    assert (then.step, then.steps_per_second, then.eta_seconds) == (100, 5.0, 20.0)
    assert then.history[-1] == (100, 0.01)
    with log.open("a") as file:
        file.write("1 loss 7\n")
    back = reader.read()
    assert back is not None
    assert (back.step, back.loss, back.history[-2:]) == (31, 7.0, ((30, 1 / 30), (31, 7.0)))


def test_a_task_that_prints_no_more_has_no_rate(tmp_path: Path) -> None:
    """The step rate is computed from the lines of the last half minute. If a task has printed
    nothing for longer, it has no rate.
    """
    log = tmp_path / "worker-0.log"
    for ago, rates in ((10, [5.0]), (100, [None])):
        reader = PrintedLogs([[str(log)]], None, None)
        for seconds, step in ((ago + 10, 50), (ago, 100)):
            log.write_text("".join(f"step {n} loss 1\n" for n in range(1, step + 1)))
            os.utime(log, (time.time() - seconds,) * 2)
            reader.read()
        assert reader.rates() == [each and pytest.approx(each, rel=0.1) for each in rates]


def test_a_worker_s_own_steps_are_told_from_those_of_all_workers(tmp_path: Path) -> None:
    """The run's progress is the global step, and a task's rate and count are its own."""
    log = tmp_path / "worker-0.log"
    reader = PrintedLogs([[str(log)]], None, None)
    for seconds, own, shared in ((20, 50, 150), (10, 100, 400)):
        with log.open("a") as file:
            file.write(f"Worker 0: training step {own} done (global step: {shared})\n")
        os.utime(log, (time.time() - seconds,) * 2)
        found = reader.read()
    assert found is not None
    assert (found.step, found.steps_per_second) == (400, pytest.approx(25, rel=0.1))
    assert reader.rates() == [pytest.approx(5, rel=0.1)]
    assert reader.counts() == [100]


def test_only_the_tail_of_a_long_log_is_read(tmp_path: Path) -> None:
    """Only the end of a log of many megabytes is read: the progress comes from the newest line, and
    the epoch from the line that began this epoch.
    """
    noise = "x" * 4000 + "\n"
    bars = "".join(KERAS_2.format(n=n).replace("/100", "/9000") + "\n" for n in range(1, 5001))
    found = printed(tmp_path, noise * 500 + "Epoch 3/10\n" + bars)
    assert found is not None
    assert (found.step, found.total, found.epoch) == (2 * 9000 + 5000, 90000, 3)


def test_the_furthest_of_many_tasks_speaks(tmp_path: Path) -> None:
    """Each read looks at the logs of a few tasks only. Among hundreds of tasks, the task that
    prints its progress is found after some reads, and from then on each read includes its log.
    """
    places = [[str(tmp_path / f"worker-{n}.log")] for n in range(300)]
    for (place,) in places:
        Path(place).write_text("tfcluster: waiting\n")
    Path(places[222][0]).write_text("step 7/10\n")
    reader = PrintedLogs(places, None, None)
    found = next(filter(None, (reader.read() for _look in range(60))), None)
    assert found is not None and (found.step, found.total) == (7, 10)
    Path(places[222][0]).write_text("step 7/10\nstep 8/10\n")
    again = reader.read()
    assert again is not None and again.step == 8


def test_what_is_no_log_is_passed_over(tmp_path: Path) -> None:
    """If there is a pipe or a folder in place of a log, or no file, there is no progress, and the
    reader does not block.
    """
    os.mkfifo(tmp_path / "worker-0.log")
    (tmp_path / "worker-1.log").mkdir()
    places = [[str(tmp_path / f"worker-{n}.log")] for n in range(3)]
    assert PrintedLogs(places, None, None).read() is None


# ---- tfcluster.progress() ----


def reports(folder: Path, script: str, *path: Path) -> subprocess.CompletedProcess[str]:
    """Run a program that calls `tfcluster.progress()`, as worker-0 of a run with this output
    folder.
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith("TFCLUSTER_")}
    env["PYTHONPATH"] = os.pathsep.join(map(str, path or (RUNTIME / "site",)))
    env |= {"TFCLUSTER_OUTPUT_DIR": str(folder), "TFCLUSTER_TASK": "worker-0"}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_a_program_reports_its_progress(tmp_path: Path) -> None:
    """The last call counts, with all its metrics, however fast the calls follow each other."""
    done = reports(
        tmp_path,
        "import tfcluster\n"
        "for n in range(1, 1001):\n"
        "    tfcluster.progress(n, 2000, loss=1 / n, accuracy=0.5, epoch=2)\n",
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = ReportedProgress(str(tmp_path)).read()
    assert found is not None
    assert (found.step, found.total, found.loss, found.epoch) == (1000, 2000, 0.001, 2)
    assert (dict(found.metrics), found.source) == ({"accuracy": 0.5}, "program")


def test_a_report_never_breaks_a_program(tmp_path: Path) -> None:
    """`tfcluster.progress()` causes no error with values of wrong types, with an output folder that
    cannot be written, in a forked process, or outside of a run.
    """
    done = reports(
        tmp_path,
        "import os, time, tfcluster\nfrom pathlib import Path\n"
        "folder = Path(os.environ['TFCLUSTER_OUTPUT_DIR'])\n"
        "tfcluster.progress('many', object(), loss='?')\n"
        "tfcluster.progress(1, float('inf'), loss=float('nan'))\n"
        "while not any(folder.rglob('*.json')): time.sleep(0.01)\n"
        "if not (child := os.fork()):\n"
        "    tfcluster.progress(2, 3); raise SystemExit\n"
        "os.waitpid(child, 0)\n",
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = ReportedProgress(str(tmp_path)).read()
    assert found is not None and (found.step, found.total) == (2, 3)
    (tmp_path / "file").touch()
    assert reports(tmp_path / "file", "import tfcluster; tfcluster.progress(1)").stderr == ""
    alone = "import os; del os.environ['TFCLUSTER_TASK']; import tfcluster; tfcluster.progress(1)"
    assert reports(tmp_path / "none", alone, ROOT).stderr == ""
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("text", ["", "[]", '{"step": {}}', '{"step": 1, "at": 1, "points": 3}'])
def test_a_report_that_is_none_is_passed_over(tmp_path: Path, text: str) -> None:
    """Files in the folder of reports that are no reports give no progress."""
    (tmp_path / ".tfcluster-progress").mkdir()
    (tmp_path / ".tfcluster-progress" / "worker-0.json").write_text(text)
    assert ReportedProgress(str(tmp_path)).read() is None


# ---- order of the sources ----


def test_event_files_go_before_lines_and_a_report_before_both(tmp_path: Path) -> None:
    """Event files are preferred to printed lines, and a report to both. Each source is named; a
    total that event files lack is taken from the lines.
    """
    program = Program(kind=ProgramKind.FILE, source="t.py", entrypoint="t.py", sha256="0" * 64)
    replicas = ReplicaSet(worker=Replicas(count=1))
    paths = {"output": str(tmp_path), "logs": str(tmp_path)}
    run = TFCluster(
        metadata=Metadata(name="t-1", cluster="t", run=1, uid="u", created_at=1.0),
        spec=Spec(program=program, replicas=replicas),
        status=Status(phase=Phase.RUNNING, reason=Reason.RUNNING, paths=paths),
    )
    observer = Observer()
    assert observer.progress(run) is None
    (tmp_path / "worker-0.log").write_text("step 5/100\n")
    seen = observer.progress(run)
    assert seen is not None and (seen.step, seen.total, seen.source) == (5, 100, "printedLines")
    ev.event_file(tmp_path).write_bytes(ev.event(7, {"loss": 0.5}))
    seen = observer.progress(run)
    assert seen is not None and (seen.step, seen.total, seen.source) == (7, 100, "eventFiles")
    (tmp_path / "worker-0.log").write_text(f"Epoch 3/8\n{KERAS_3.format(n=45)}\n")
    (tmp_path / "epochs").mkdir()
    keras = ev.event(1, {"epoch_loss": 0.5}, wall=2000)
    ev.event_file(tmp_path / "epochs", 2000).write_bytes(keras)
    (next(tmp_path.glob("*tfevents*"))).unlink()
    seen = Observer().progress(run)
    assert seen is not None and (seen.unit, seen.step, seen.total) == ("epoch", 2, 8)
    report = {"version": 1, "at": 2.0, "step": 9, "total": 50, "metrics": {}, "points": []}
    (tmp_path / ".tfcluster-progress").mkdir()
    (tmp_path / ".tfcluster-progress" / "worker-0.json").write_text(json.dumps(report))
    seen = observer.progress(run)
    assert seen is not None and (seen.step, seen.total, seen.source) == (9, 50, "program")
    text = json.dumps({**report, "step": 51})
    (tmp_path / ".tfcluster-progress" / "worker-0.json").write_text(text)
    seen = observer.progress(run)
    assert seen is not None and (seen.step, seen.total, seen.source) == (50, 50, "program")
