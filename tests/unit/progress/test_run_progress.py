"""The progress of a run, from its event files."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from sysconfig import get_path

import pytest
from support import event_writer as ev

from tfcluster_magic.progress.run_progress import (
    Progress,
    ProgressReader,
    progress_text,
    step_of_total,
)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one read finish all files, also on a busy machine."""
    monkeypatch.setattr("tfcluster_magic.progress.run_progress._SECONDS_PER_READ", 60.0)


def progress(folder: Path, **totals: int) -> Progress:
    """Return the progress that a new reader finds; fail if it finds none."""
    found = ProgressReader(folder, **totals).read()
    assert found is not None
    return found


def write(path: Path, *records: bytes) -> None:
    """Append records to an event file."""
    with path.open("ab") as file:
        file.write(b"".join(records))


def test_progress_of_a_run(tmp_path: Path) -> None:
    """Step, total, speed, loss, remaining time and the loss curve come from the events."""
    write(
        ev.event_file(tmp_path),
        *(ev.event(s, {"loss": 1 / s}, wall=1000 + s / 100) for s in range(10, 401, 10)),
    )
    now = progress(tmp_path, total_steps=800)
    assert (now.step, now.total, now.loss) == (400, 800, pytest.approx(1 / 400))
    assert now.steps_per_second == pytest.approx(100)
    assert now.eta_seconds == pytest.approx(4)
    assert now.history[-1] == (400, pytest.approx(1 / 400))
    assert progress_text(now) == "step 400/800 · 100 steps/s · loss 0.0025 · 4 s left"
    assert progress_text(now, succeeded=True).startswith("last reported step 400/800 · ")


def test_reader_follows(tmp_path: Path) -> None:
    """A reader that has found nothing so far, not even the folder, finds the first event as soon as
    it is written.
    """
    reader = ProgressReader(tmp_path / "1")
    assert reader.read() is None
    path = ev.event_file(tmp_path / "1" / "logs")
    write(path, ev.version())
    assert reader.read() is None
    write(path, ev.event(5, {"loss": 1.0}))
    assert reader.read().step == 5
    write(path, ev.event(6, {"accuracy": 1.0}))
    assert reader.read().step == 6


def test_written_speed_where_one_point_is_not_enough(tmp_path: Path) -> None:
    """As long as there is only one point, the rate is the value of `global_step/sec`."""
    write(ev.event_file(tmp_path), ev.event(100, {"global_step/sec": 250.0}))
    now = progress(tmp_path)
    assert progress_text(now) == "step 100 · 250 steps/s"


@pytest.mark.parametrize("same_file", [True, False])
def test_restart_from_a_checkpoint(tmp_path: Path, same_file: bool) -> None:
    """After a restart from an older checkpoint, the step is lower, and the curve stays one line."""
    first = ev.event_file(tmp_path, 1000)
    second = first if same_file else ev.event_file(tmp_path, 2000, "host.2.0.v2")
    write(first, *(ev.event(s, {"loss": 1.0, "acc": 0.5}, wall=1000 + s) for s in range(1, 51)))
    assert progress(tmp_path, total_steps=100).step == 50
    write(second, *(ev.event(s, {"loss": 2.0}, wall=2000 + s) for s in range(31, 36)))
    now = progress(tmp_path, total_steps=100)
    assert (now.step, now.loss) == (35, 2.0)
    assert now.steps_per_second == pytest.approx(1)
    assert [s for s, _ in now.history] == list(range(1, 36))
    assert [loss for _, loss in now.history] == [1.0] * 30 + [2.0] * 5


def test_validation_is_not_training(tmp_path: Path) -> None:
    """The loss and the step never come from a validation folder or a validation tag."""
    write(ev.event_file(tmp_path / "train"), ev.event(0, {"epoch_loss": 0.5}, wall=1000))
    write(ev.event_file(tmp_path / "train"), ev.event(0, {"epoch_val_loss": 7.0}, wall=1001))
    for folder in ("validation", "eval", "evaluator-0", "worker-0/eval_holdout"):
        write(ev.event_file(tmp_path / folder), ev.event(99, {"epoch_loss": 9.0}, wall=3000))
    write(ev.event_file(tmp_path / "train"), ev.event(98, {"val/loss": 8.0}, wall=3001))
    now = progress(tmp_path, total_epochs=4)
    assert (now.unit, now.step, now.epoch, now.loss) == ("epoch", 1, 1, 0.5)
    assert progress_text(now) == "epoch 1/4 · loss 0.5"


def test_only_validation_is_no_progress(tmp_path: Path) -> None:
    """A run that has written only validation metrics has no progress."""
    write(ev.event_file(tmp_path / "validation"), ev.event(99, {"epoch_loss": 9.0}))
    assert ProgressReader(tmp_path).read() is None


def test_epochs_and_steps(tmp_path: Path) -> None:
    """If a program writes both steps and epochs, progress counts steps; but if only the total
    number of epochs is known, it counts epochs.
    """
    path = ev.event_file(tmp_path)
    for epoch in range(3):
        for step in range(epoch * 10, epoch * 10 + 10):
            write(path, ev.event(step, {"batch_loss": 1.0}, wall=1000 + 2 * step))
        write(path, ev.event(epoch, {"epoch_loss": 0.7}, wall=1000 + 2 * step + 1))
    now = progress(tmp_path, total_steps=60)
    assert (now.unit, now.step, now.epoch, now.loss) == ("step", 29, 3, 1.0)
    now = progress(tmp_path, total_epochs=6)
    assert (now.unit, now.step, now.total) == ("epoch", 3, 6)
    assert now.eta_seconds == pytest.approx(60)
    assert progress_text(now) == "epoch 3/6 · 20 s/epoch · loss 1 · 1 min 00 s left"


def test_several_tasks_at_once(tmp_path: Path) -> None:
    """If several tasks write event files at the same time, the highest step counts."""
    for worker, ahead in enumerate((0, 3, 1)):
        path = ev.event_file(tmp_path / f"worker-{worker}", 1000)
        write(
            path, *(ev.event(s + ahead, {"loss": float(worker)}, wall=1000 + s) for s in range(9))
        )
    write(ev.event_file(tmp_path / "worker-0"), ev.event(9, {"loss": 0.0}, wall=1008.5))
    now = progress(tmp_path)
    assert (now.step, now.loss) == (11, 1.0)


def test_loss_of_another_file(tmp_path: Path) -> None:
    """The loss may be in another file than the steps."""
    write(ev.event_file(tmp_path / "a"), ev.event(10, {"lr": 0.1}, wall=1010))
    write(ev.event_file(tmp_path / "b"), ev.event(9, {"model/loss_1": 0.3}, wall=1009))
    now = progress(tmp_path)
    assert (now.step, now.loss) == (10, pytest.approx(0.3))


def test_the_best_loss(tmp_path: Path) -> None:
    """The total loss, here `tower/loss`, is preferred to the loss of a part."""
    tags = {"regularization_loss": 5.0, "cross_entropy": 4.0, "tower/loss": 3.0, "lossless": 2.0}
    write(ev.event_file(tmp_path), ev.event(1, tags))
    assert progress(tmp_path).loss == 3.0


def test_constant_step(tmp_path: Path) -> None:
    """The reader takes bounded memory even if a program writes all events with the same step."""
    reader, path = ProgressReader(tmp_path), ev.event_file(tmp_path)
    for _ in range(3):
        write(path, *(ev.event(0, {"loss": 1.0}) for _ in range(300)))
        now = reader.read()
    assert (now.step, now.steps_per_second, len(now.history)) == (0, None, 1)


def test_divergence_is_shown(tmp_path: Path) -> None:
    """A loss that is NaN or infinite is shown as such, and left out of the curve."""
    write(ev.event_file(tmp_path), ev.event(1, {"loss": 2.0}), ev.event(2, {"loss": math.nan}))
    now = progress(tmp_path)
    assert "loss NaN" in progress_text(now)
    assert now.history == ((1, 2.0),)


def test_a_total_that_was_passed_is_not_shown(tmp_path: Path) -> None:
    """A total that is less than the current step is not shown, because it must count something
    other than steps.
    """
    write(ev.event_file(tmp_path), ev.event(900, {"loss": 2.0}))
    assert progress_text(progress(tmp_path, total_steps=800)) == "step 900 · loss 2"


@pytest.mark.parametrize(
    ("count", "total", "shown"),
    [
        (1000, 1000, (1000, 1000)),
        (1001, 1000, (1000, 1000)),
        (1050, 1000, (1000, 1000)),
        (1051, 1000, (1051, None)),
        (6, 5, (6, None)),
        (7, None, (7, None)),
    ],
)
def test_steps_after_the_last_one_keep_the_total(
    tmp_path: Path, count: int, total: int | None, shown: tuple[int, int | None]
) -> None:
    """Asynchronous workers go a few steps beyond the total; the step is then shown as the total."""
    assert step_of_total(count, total) == shown
    write(ev.event_file(tmp_path), ev.event(count, {"loss": 2.0}))
    now = ProgressReader(tmp_path, total_steps=total).read()
    assert now is not None and (now.step, now.total) == shown
    assert now.eta_seconds is None or now.eta_seconds >= 0


def test_curve_is_bounded(tmp_path: Path) -> None:
    """The curve has at most 60 points, ends at the newest point and covers the whole range."""
    reader, path = ProgressReader(tmp_path), ev.event_file(tmp_path)
    for start in range(0, 3000, 300):
        write(path, *(ev.event(s, {"loss": float(s)}) for s in range(start, start + 300)))
        now = reader.read()
    assert len(now.history) <= 60
    assert now.history[-1] == (2999, 2999.0)
    assert now.history[0][0] < 300
    assert list(now.history) == sorted(now.history)
    gaps = [b[0] - a[0] for a, b in itertools.pairwise(now.history)]
    assert max(gaps[:-1]) <= 2 * min(gaps[:-1])


def test_600_tasks(tmp_path: Path) -> None:
    """Reading 600 folders with an event file each takes bounded memory, and the task with the
    highest step is found.
    """
    for task in range(600):
        path = ev.event_file(tmp_path / f"worker-{task}", 1000)
        write(path, ev.event(task, {"loss": 1.0}, wall=2000))
        os.utime(path, (2000 + task, 2000 + task))
    reader = ProgressReader(tmp_path)
    for _ in range(10):
        now = reader.read()
    assert now.step == 599
    assert len(reader._sources) <= 64


def test_reading_needs_no_tensorflow(tmp_path: Path) -> None:
    """Reading progress imports no more than the standard library, this package and msgspec."""
    write(ev.event_file(tmp_path), ev.event(3, {"loss": 1.0}))
    code = (
        "import sys; from tfcluster_magic.progress.run_progress import ProgressReader\n"
        f"assert ProgressReader({str(tmp_path)!r}).read().step\n"
        "found = {m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)\n"
        "print(sorted(found - {'typing_extensions'}))"  # msgspec may import typing_extensions
    )
    told = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-c",
            f"import sys; sys.path[:0] = {[os.getcwd(), get_path('platlib')]!r}\n" + code,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == "['__main__', 'msgspec', 'tfcluster_magic']"


# ---- real files ----

TRAIN = """
import os, sys
os.environ["TF_USE_LEGACY_KERAS"] = "1"
import numpy, tensorflow as tf, tf_keras as keras
out = sys.argv[1]
v1 = tf.compat.v1
with tf.Graph().as_default():
    step = v1.train.get_or_create_global_step()
    loss = tf.square(v1.get_variable("x", initializer=5.0))
    v1.summary.scalar("loss", loss)
    v1.summary.histogram("square", loss)
    train = v1.train.GradientDescentOptimizer(0.01).minimize(loss, global_step=step)
    with v1.train.MonitoredTrainingSession(
        checkpoint_dir=out + "/one", save_summaries_steps=10, log_step_count_steps=20,
        save_checkpoint_steps=25, save_checkpoint_secs=None,
        hooks=[v1.train.StopAtStepHook(60)],
    ) as session:
        while not session.should_stop():
            session.run(train)
with tf.summary.create_file_writer(out + "/two").as_default() as writer:
    for i in range(1, 31):
        tf.summary.scalar("train/loss", 1.0 / i, step=i)
        tf.summary.text("note", "hello", step=i)
        tf.summary.image("digit", numpy.zeros((1, 8, 8, 1)), step=i)
    writer.flush()
model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="zeros")])
model.compile("sgd", "mse")
x, y = numpy.ones((64, 2), "float32"), numpy.ones((64, 1), "float32")
model.fit(x, y, epochs=3, validation_data=(x, y + 5), verbose=0,
          callbacks=[keras.callbacks.TensorBoard(out + "/keras")])
"""


@pytest.fixture(scope="module")
def real_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with subfolders of event files that TensorFlow itself has written."""
    out = tmp_path_factory.mktemp("real")
    made = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(TRAIN), str(out)],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert made.returncode == 0, made.stderr[-2000:]
    return out


def test_real_tensorflow_1(real_runs: Path) -> None:
    """The files of a MonitoredTrainingSession give the step of its last checkpoint and its loss."""
    now = progress(real_runs / "one", total_steps=60)
    assert (now.unit, now.step, now.total) == ("step", 60, 60)
    assert now.loss == now.history[-1][1] < now.history[0][1] == 25.0
    assert now.steps_per_second > 0


def test_real_tensorflow_2(real_runs: Path) -> None:
    """The scalars of a summary writer are read, although texts and images stand between them."""
    now = progress(real_runs / "two")
    assert (now.step, now.loss) == (30, pytest.approx(1 / 30))
    assert len(now.history) == 30


def test_real_keras(real_runs: Path) -> None:
    """The files of Keras' TensorBoard callback give epochs and the training loss, not the loss of
    the validation.
    """
    now = progress(real_runs / "keras", total_epochs=3)
    assert (now.unit, now.step, now.total) == ("epoch", 3, 3)
    assert now.loss < 5
