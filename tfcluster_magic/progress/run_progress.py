"""How far a run is, from the event files below its folder: step, speed, loss, time left.

Promises an answer within milliseconds and a few MiB, without TensorFlow, and that every step it
names was written. It owns which of several event files speaks for the run, and how that is said in
a line. It writes nothing and never raises for what it finds.

Work of one `read()`: at most 16 files that changed, the newest first, and none begun after 20 ms
(the next call goes on); 256 KiB read, 64 KiB checksummed and 400 records decoded of each; one
`stat` for each of at most 64 known files. Folders are listed every 5 s, three levels and 4000
entries.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ..i18n import _
from .bounded_walk import files_below
from .event_files import EventFile
from .training_scalars import EPOCH, POINTS, STEP, Writer, is_validation

_FILES_PER_READ = 16
_SECONDS_PER_READ = 0.02
_KNOWN_FILES = 64
_LIST_EVERY = 5.0
_DEPTH = 3
_CREATED = re.compile(r"tfevents\.(\d{9,11})\.")


@dataclass(frozen=True)
class Progress:
    """How far a run was at `at` (seconds since 1970, by the program's clock).

    `step` and `total` count `unit`s: "step", or "epoch" where the program says no more than that or
    only a number of epochs is known; `steps_per_second` counts the same. `eta_seconds` is as of
    `at`. `loss` is NaN when the training has diverged. `history` holds (step, loss), oldest first,
    at most 60.
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


@dataclass
class _Source:
    """One event file, what it has said, and how large and old it was when it was last looked at."""

    file: EventFile
    writer: Writer
    mtime: float
    read_size: int = 0


class ProgressReader:
    """Follows the event files below one folder. Not safe for several threads at once.

    The file that was written last speaks for the run; among files written at the same time (several
    tasks, or scalars kept apart) the one that is furthest. Validation and evaluation are left out.
    Totals come from the arguments of the program, or from whoever knows them.
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
        """The progress now; None while nothing is known, or when the folder does not exist."""
        if time.monotonic() - self._listed_at >= _LIST_EVERY:
            self._list()
            self._listed_at = time.monotonic() if self._sources else -math.inf
        self._read_changed()
        return self._summary([s.writer for s in self._sources.values() if s.writer.tracks])

    def _list(self) -> None:
        found = dict(_event_files(self._folder))
        newest = max(found.values(), default=0.0)

        def worth(path: str) -> tuple[bool, float]:
            # a file that is known and lively stays, so that 600 tasks do not push each other out
            return path in self._sources and found[path] >= newest - 60, found[path]

        keep = sorted(found, key=worth, reverse=True)[:_KNOWN_FILES]
        self._sources = {
            path: self._sources.get(path)
            or _Source(EventFile(path), Writer(_created(path)), found[path])
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

    def _summary(self, writers: list[Writer]) -> Progress | None:
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
            total = None  # it counts something else
        history, loss = _loss([speaker, *sorted(current, key=lambda w: -w.last)], writers)
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
    """Path and modification time of the training event files below `folder`."""
    for entry in files_below(folder, _DEPTH, enter=lambda name: not is_validation([name])):
        if ".tfevents." in entry.name and not entry.name.endswith("-empty"):
            with suppress(OSError):  # it may be gone by now
                yield entry.path, entry.stat().st_mtime


def _created(path: str) -> float | None:
    """When a writer of this file name began: TensorFlow puts the second into it, rounded down."""
    match = _CREATED.search(os.path.basename(path))
    return float(match.group(1)) + 1 if match else None


def _loss(
    best_first: list[Writer], writers: list[Writer]
) -> tuple[tuple[tuple[int, float], ...], float | None]:
    """The loss curve and the newest loss; the curve goes through the files of earlier attempts."""
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
    every = -(-len(curve) // POINTS) or 1
    return tuple(curve[::-every][::-1]), speaker.newest_loss[tag]


def describe(progress: Progress) -> str:
    """One line for people: `step 400/800 · 187 steps/s · loss 0.12 · 2 s left`."""
    total = "" if progress.total is None else f"/{progress.total}"
    at = _("epoch {at}") if progress.unit == EPOCH else _("step {at}")
    parts = [at.format(at=f"{progress.step}{total}")]
    if progress.steps_per_second:
        parts.append(_speed(progress.steps_per_second, progress.unit))
    if progress.loss is not None:
        text = _("loss {loss:.3g}").format(loss=progress.loss)
        parts.append(text.replace("nan", "NaN"))
    if progress.eta_seconds:
        parts.append(_("{time} left").format(time=_duration(progress.eta_seconds)))
    return " · ".join(parts)


def _speed(rate: float, unit: str) -> str:
    if rate < 1:
        each = _("{time}/epoch") if unit == EPOCH else _("{time}/step")
        return each.format(time=_duration(1 / rate))
    speed = _("{rate} epochs/s") if unit == EPOCH else _("{rate} steps/s")
    return speed.format(rate=f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}")


def _duration(seconds: float) -> str:
    if seconds < 10:
        return f"{max(seconds, 0.1):.1f} s".replace(".0 s", " s")
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def told(progress: Progress | None, notes: Sequence[str] = ()) -> tuple[str, ...]:
    """Lines beside a record: how far the run is, where that is known, then `notes`."""
    if progress is None:
        return tuple(notes)
    return (_("progress: {figures}").format(figures=describe(progress)), *notes)
