"""Progress of a run from the files in its folder: step, rate, loss, time left, newest checkpoint.

This module decides which of several event files counts for the run, and formats its progress as a
line. It needs milliseconds and a few MiB, does not import TensorFlow, writes nothing, and raises no
errors for the content of files.

Folders are walked breadth first, so that the limit on entries leaves out the deepest ones. Links to
folders are not followed, and unreadable entries are skipped.

One `read()` reads at most 16 changed files, the newest first, and begins no further file after
20 ms; the next call continues. In each file, it reads at most 256 KiB, checksums 64 KiB and decodes
400 records. It calls `stat` for at most 64 known files. Every 5 s, folders are listed, three levels
deep and at most 4000 entries.
"""

from __future__ import annotations

import math
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from ..errors import one_line
from ..i18n import _
from .event_files import EPOCH, LOSS_POINTS, STEP, EventFile, TrainingScalars, is_validation_folder

MAX_ENTRIES = 4000
"""Maximum directory entries of one walk, enough for a run of 600 tasks with six files each."""


def files_below(
    folder: str, depth: int, enter: Callable[[str], bool] | None = None
) -> Iterator[os.DirEntry[str]]:
    """Yield the files in `folder` and up to `depth` levels below it, in folders that `enter`
    accepts.
    """
    level, left = [folder], MAX_ENTRIES
    for _level in range(depth + 1):
        below: list[str] = []
        for parent in level:
            entries = _entries(parent, left)
            left -= len(entries)
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    yield entry
                elif enter is None or enter(entry.name):
                    below.append(entry.path)
        level = below


def _entries(folder: str, at_most: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry, _number in zip(entries, range(at_most), strict=False)]
    except OSError:
        return []


# ---- the newest checkpoint, from TensorFlow's `checkpoint` files ----
# No checkpoint is opened. Its name, such as `model.ckpt-278`, is read from the first 64 KiB of a
# `checkpoint` file, which may be up to two folders deep.

_CHECKPOINT_DEPTH = 2
_CHECKPOINT_PATH = re.compile(rb'^model_checkpoint_path:\s*"((?:[^"\\\n]|\\.)*)"\s*$', re.MULTILINE)
_CHECKPOINT_NAME_CHARS = 100


def newest_checkpoint(folder: str | os.PathLike[str]) -> str | None:
    """Return the name of the newest checkpoint below `folder`; None if there is none."""
    newest: tuple[float, str] | None = None
    for entry in files_below(os.fspath(folder), _CHECKPOINT_DEPTH):
        found = _dated_checkpoint(entry.path) if entry.name == "checkpoint" else None
        if found is not None:
            newest = found if newest is None else max(newest, found)
    return newest[1] if newest else None


def _dated_checkpoint(path: str) -> tuple[float, str] | None:
    try:
        # A program may have put anything at that path, even a pipe without a writer.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            written = os.fstat(file.fileno()).st_mtime
            named = _CHECKPOINT_PATH.search(file.read(64 << 10))
    except OSError:
        return None
    name = named.group(1).rpartition(b"/")[2].decode("utf-8", "replace") if named else ""
    return (written, name[:_CHECKPOINT_NAME_CHARS]) if name else None


# ---- progress from event files ----

_FILES_PER_READ = 16
_SECONDS_PER_READ = 0.02
_KNOWN_FILES = 64
_LIST_EVERY = 5.0
_EVENT_FILE_DEPTH = 3
_CREATED = re.compile(r"tfevents\.(\d{9,11})\.")


@dataclass(frozen=True)
class Progress:
    """The progress of a run at `at` (seconds since 1970, by the program's clock).

    `unit` is what `step`, `total` and `steps_per_second` count: "step", or "epoch" if the program
    reports only epochs, or if only the total of epochs is known. `eta_seconds` is the time left at
    `at`. `loss` is NaN if the training has diverged. `history` is at most 60 pairs
    (step, loss), oldest first. `metrics` are other metrics under the program's names. `source` is
    `program` (reports by `tfcluster.progress`), `eventFiles` or `printedLines`.
    """

    step: int
    total: int | None
    steps_per_second: float | None
    loss: float | None
    eta_seconds: float | None
    at: float
    unit: str = STEP
    epoch: int | None = None
    history: tuple[tuple[int, float], ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    source: str = "eventFiles"


@dataclass
class _Source:
    """One event file, its scalars, and its time and size when it was last read."""

    file: EventFile
    writer: TrainingScalars
    mtime: float
    read_size: int = 0


class ProgressReader:
    """The event files below one folder. Not thread-safe.

    The file that was written last counts for the run. If several files are written at the same time
    (by several tasks, or for separate scalars), the file with the furthest progress counts.
    Event files of validation and evaluation are left out. The caller passes the total steps and
    epochs, for example from the program's arguments.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        total_steps: int | None = None,
        total_epochs: int | None = None,
    ) -> None:
        self._folder = os.fspath(folder)
        self._totals = {STEP: total_steps, EPOCH: total_epochs}
        self._sources: dict[str, _Source] = {}
        self._listed_at = -math.inf

    def read(self) -> Progress | None:
        """Return the progress now; None if nothing is known or the folder does not exist."""
        if time.monotonic() - self._listed_at >= _LIST_EVERY:
            self._list()
            self._listed_at = time.monotonic() if self._sources else -math.inf
        self._read_changed()
        return self._summary([s.writer for s in self._sources.values() if s.writer.tracks])

    def _list(self) -> None:
        found = dict(_event_files(self._folder))
        newest = max(found.values(), default=0.0)

        def worth(path: str) -> tuple[bool, float]:
            # Prefer files that we already read and that were written recently. Otherwise, in a
            # run with more files than are kept, each listing would choose other files.
            return path in self._sources and found[path] >= newest - 60, found[path]

        keep = sorted(found, key=worth, reverse=True)[:_KNOWN_FILES]
        self._sources = {
            path: self._sources.get(path)
            or _Source(EventFile(path), TrainingScalars(_created_at(path)), found[path])
            for path in keep
        }

    def _read_changed(self) -> None:
        changed: list[tuple[float, str, int]] = []
        for path, source in self._sources.items():
            try:
                seen = os.stat(path)
            except OSError:
                continue
            source.mtime = seen.st_mtime
            if seen.st_size != source.read_size:
                changed.append((seen.st_mtime, path, seen.st_size))
        deadline = time.monotonic() + _SECONDS_PER_READ
        for _mtime, path, size in sorted(changed, reverse=True)[:_FILES_PER_READ]:
            source = self._sources[path]
            for event in source.file.read():
                source.writer.add(event)
            source.read_size = size
            if time.monotonic() > deadline:
                break

    def _summary(self, writers: list[TrainingScalars]) -> Progress | None:
        if not writers:
            return None
        newest = max(writers, key=lambda w: w.last)
        current = [w for w in writers if w.last >= newest.first]
        epochs = [w for w in current if EPOCH in w.tracks]
        unit = STEP if any(STEP in w.tracks for w in current) else EPOCH
        if epochs and self._totals[STEP] is None and self._totals[EPOCH] is not None:
            unit = EPOCH
        speaker = max(
            (w for w in current if unit in w.tracks), key=lambda w: (w.tracks[unit].count, w.last)
        )
        track = speaker.tracks[unit]
        rate = track.per_second or (speaker.written_rate if unit == STEP else None)
        total = self._totals[unit]
        if total is not None and total < track.count:
            total = None  # the step is above the total, so the total must count something else
        history, loss = _loss_curve([speaker, *sorted(current, key=lambda w: -w.last)], writers)
        return Progress(
            step=track.count,
            total=total,
            steps_per_second=rate,
            loss=loss,
            eta_seconds=(total - track.count) / rate if total is not None and rate else None,
            at=speaker.last,
            unit=unit,
            epoch=max((w.tracks[EPOCH].count for w in epochs), default=None),
            history=history,
        )


def _event_files(folder: str) -> Iterator[tuple[str, float]]:
    """Yield the path and modification time of the training event files below `folder`."""
    for entry in files_below(
        folder, _EVENT_FILE_DEPTH, enter=lambda name: not is_validation_folder([name])
    ):
        if ".tfevents." in entry.name and not entry.name.endswith("-empty"):
            with suppress(OSError):  # the file may be deleted by now
                yield entry.path, entry.stat().st_mtime


def _created_at(path: str) -> float | None:
    """Return the time at which the file was created, rounded up to seconds; None if it is unknown.
    TensorFlow puts this time, rounded down, into the file's name.
    """
    match = _CREATED.search(os.path.basename(path))
    return float(match.group(1)) + 1 if match else None


def _loss_curve(
    best_first: list[TrainingScalars], writers: list[TrainingScalars]
) -> tuple[tuple[tuple[int, float], ...], float | None]:
    """Return the loss curve as pairs (step, loss), and the newest loss. The curve begins with the
    files of earlier attempts of the task.
    """
    speaker = next((w for w in best_first if w.loss_tag), None)
    if speaker is None or speaker.loss_tag is None:
        return (), None
    tag = speaker.loss_tag
    curve: list[tuple[int, float]] = []
    earlier = [w for w in writers if w.last < speaker.first]
    for writer in [*sorted(earlier, key=lambda w: w.last), speaker]:
        points = writer.losses[tag].points if tag in writer.losses else []
        if points:
            curve = [point for point in curve if point[0] < points[0][0]] + points
    every = -(-len(curve) // LOSS_POINTS) or 1
    return tuple(curve[::-every][::-1]), speaker.newest_loss[tag]


MOST_METRICS = 3
"""Maximum metrics, apart from the loss, that `progress_text` shows."""


def progress_text(progress: Progress, *, succeeded: bool = False) -> str:
    """Return one line for users: `step 400/800 · 187 steps/s · loss 0.12 · 2 s left`. If the
    program `succeeded`, a step below the total is shown as the last reported step.
    """
    total = "" if progress.total is None else f"/{progress.total}"
    if succeeded and progress.total is not None and progress.step < progress.total:
        by_epoch, by_step = _("last reported epoch {at}"), _("last reported step {at}")
    else:
        by_epoch, by_step = _("epoch {at}"), _("step {at}")
    at = by_epoch if progress.unit == EPOCH else by_step
    parts = [at.format(at=f"{progress.step}{total}")]
    if progress.steps_per_second:
        parts.append(_rate_text(progress.steps_per_second, progress.unit))
    if progress.loss is not None:
        text = _("loss {loss:.3g}").format(loss=progress.loss)
        parts.append(text.replace("nan", "NaN"))
    shown = [pair for pair in progress.metrics.items() if math.isfinite(pair[1])][:MOST_METRICS]
    parts += [f"{one_line(name)} {value:.3g}" for name, value in shown]
    if progress.eta_seconds:
        parts.append(_("{time} left").format(time=_time_text(progress.eta_seconds)))
    return " · ".join(parts)


def _rate_text(rate: float, unit: str) -> str:
    if rate < 1:
        each = _("{time}/epoch") if unit == EPOCH else _("{time}/step")
        return each.format(time=_time_text(1 / rate))
    speed = _("{rate} epochs/s") if unit == EPOCH else _("{rate} steps/s")
    return speed.format(rate=f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}")


def _time_text(seconds: float) -> str:
    if seconds < 10:
        return f"{max(seconds, 0.1):.1f} s".replace(".0 s", " s")
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def note_lines(
    progress: Progress | None, notes: Sequence[str] = (), *, succeeded: bool = False
) -> tuple[str, ...]:
    """Return the lines below a record: the progress if it is known, then `notes`."""
    if progress is None:
        return tuple(notes)
    figures = progress_text(progress, succeeded=succeeded)
    return (_("progress: {figures}").format(figures=figures), *notes)
