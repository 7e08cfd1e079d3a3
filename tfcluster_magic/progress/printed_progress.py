"""Progress that a program reports itself: in printed lines, and by `tfcluster.progress()`.

The parser recognises Keras' bars and `Epoch 2/10`, estimators' `loss = 0.3, step = 145`, tqdm's
bars, `step 145/1000` and similar lines. A line counts as progress only if it has a total, has a
training metric, or contains nothing except the step. So `Step 1: load the data` does not count.
Validation metrics are never taken for training metrics.

One read calls `stat` for at most 16 logs. It then reads at most 64 KiB from each of at most 8 logs
that have grown, and parses at most 300 lines. In a run of more than 16 tasks, each read checks some
of the logs always and some of the others in turn. No file is kept open, and no content of a file
raises an error.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .event_files import EPOCH, LOSS_POINTS, STEP, LossCurve, tag_meaning
from .run_progress import Progress, step_of_total

# ---- one line ----

_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)\b"
_COUNT = r"(\d{1,3}(?:,\d{3})+|\d+)(?!\.?\d|,\d{3}|[A-Za-z])"
_COUNTED = rf"\s*[#:=]?\s*[\[(]?\s*{_COUNT}(?:\s*(?:/|of|out of)\s*{_COUNT})?"
_STEP = re.compile(
    rf"(?<![\w/-])(?:(?:global|train(?:ing)?)[_ ]?)?(?:step|iter(?:ation)?|batch){_COUNTED}",
    re.IGNORECASE,
)
# `training step 12 done (global step: 24)`: the steps of one worker, and those of all workers
_GLOBAL_STEP = re.compile(rf"(?<![\w/-])global[_ ]?step{_COUNTED}", re.IGNORECASE)
_EPOCH = re.compile(rf"(?<![\w/-])epoch{_COUNTED}", re.IGNORECASE)
_BRACKETED = re.compile(rf"[\[(]\s*{_COUNT}\s*/\s*{_COUNT}")
_STEPS_PER_SECOND = re.compile(rf"global_step/sec:\s*({_NUMBER})")
# Keras: `45/100 [==>...] - 1s 12ms/step - loss: 0.3`, `45/100 ━━━━ 1s 12ms/step`, `45/100 - 1s`
_KERAS = re.compile(r"\s*(\d+)/(\d+|Unknown)\s+(?:\[[=>.]+\]|[━─╸╺]+|-\s+\d+(?:us|ms|s)\b)")
_KERAS_PACE = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s)/step")
_PACE_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
# tqdm: `train:  45%|████▌     | 450/1000 [00:12<00:15, 35.2it/s, loss=0.3]`, `450it [00:12, …]`
_SCALED = r"(\d+(?:\.\d+)?)([kMGT]?)"
_TQDM = re.compile(rf"\d{{1,3}}%\|[^|]*\|\s*{_SCALED}/{_SCALED}\s*\[([^\]]*)\]")
_TQDM_ENDLESS = re.compile(rf"(?<!\S){_SCALED}[a-z]+ \[((?:\d+:)+\d+[^\]]*)\]")
_TQDM_PACE = re.compile(r"(\d+(?:\.\d+)?)([kMGT]?)(\w+)/s\b|(\d+(?:\.\d+)?)s/(\w+)")
_SCALES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}

_METRIC = re.compile(rf"(?<![\w.])([A-Za-z][\w/-]*)\]?\s*[:=]\s*\(?\[?({_NUMBER})", re.IGNORECASE)
_SPOKEN_METRIC = re.compile(
    r"\b((?:\w+_)?(?:loss|acc|accuracy|error|auc|mse|mae|perplexity|ppl|reward|cost))"
    rf"\s+(?:is\s+)?({_NUMBER})",
    re.IGNORECASE,
)
_QUALITY = re.compile(
    r"loss|acc|error|\berr\b|auc|mse|mae|perplexity|\bppl\b|entropy|reward|cost|nll|f1|precision"
    r"|recall",
    re.IGNORECASE,
)
# Names of counters, times and numbers of tasks, which are not metrics.
_NO_METRIC = re.compile(
    r"(?:global_?)?(?:step|iter(?:ation)?|batch|epoch)s?|eta|time|sec|secs|seconds|elapsed|took"
    r"|duration|global_step/sec|it|speed|rank|worker|task|index|port|seed",
    re.IGNORECASE,
)
_NO_TRAINING = re.compile(
    r"\b(?:eval\w*|valid\w*|test(?:ing)?|predict\w*|saving dict|download\w*|load\w*|map|processing"
    r"|token\w*|filter\w*|generat\w*|resolv\w*|extract\w*|shard\w*|warm-?up)\b(?!\.py)",
    re.IGNORECASE,
)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MAYBE = re.compile(rb"step|epoch|iter|batch|\d/\d|\dit |loss", re.IGNORECASE)
_MOST_METRICS = 16


class PrintedStep(NamedTuple):
    """The progress in one line; values that the line does not have are None.

    `is_bar` marks a Keras bar, whose steps count from the start of the epoch that an earlier line
    names; `rate` is in steps per second. `own_step` is the task's own step if `step`
    counts the steps of all tasks.
    """

    step: int | None = None
    total: int | None = None
    epoch: int | None = None
    epochs: int | None = None
    rate: float | None = None
    is_bar: bool = False
    metrics: Mapping[str, float] = {}
    own_step: int | None = None


def parse_line(line: str) -> PrintedStep | None:
    """Return the training progress in a line; None if it has none."""
    line = _ANSI.sub("", line).replace("\b", "").strip()
    if not line or line.startswith("tfcluster: ") or len(line) > 4096:
        return None
    return _tqdm_bar(line) or _keras_bar(line) or _plain_line(line)


def _tqdm_bar(line: str) -> PrintedStep | None:
    if match := _TQDM.search(line):
        done, total, facts = match.group(1, 2), match.group(3, 4), match[5]
    elif match := _TQDM_ENDLESS.search(line):
        done, total, facts = match.group(1, 2), None, match[3]
    else:
        return None
    named = line[: match.start()]
    pace = _TQDM_PACE.search(facts)
    unit = (pace[3] or pace[5]) if pace else "it"
    if _NO_TRAINING.search(named) or unit.endswith("B"):
        return None
    rate = None
    if pace:
        rate = _scaled(pace[1], pace[2]) if pace[1] else 1 / max(float(pace[4]), 1e-9)
    count, most = int(_scaled(*done)), int(_scaled(*total)) if total else None
    metrics = _metrics(facts)
    if unit.lower().startswith("epoch") or re.fullmatch(r"\W*epochs?\W*", named, re.IGNORECASE):
        return PrintedStep(epoch=count, epochs=most, metrics=metrics)
    epoch, epochs = _counted(_EPOCH.search(named))
    return PrintedStep(count, most, epoch, epochs, rate, metrics=metrics)


def _keras_bar(line: str) -> PrintedStep | None:
    match = _KERAS.match(line)
    if match is None:
        return None
    pace = _KERAS_PACE.search(line)
    rate = 1 / max(float(pace[1]) * _PACE_UNITS[pace[2]], 1e-9) if pace else None
    total = None if match[2] == "Unknown" else int(match[2])
    metrics = _metrics(line[match.end() :])
    return PrintedStep(int(match[1]), total, rate=rate, is_bar=True, metrics=metrics)


def _plain_line(line: str) -> PrintedStep | None:
    if match := _STEPS_PER_SECOND.search(line):
        return PrintedStep(rate=float(match[1]))
    first, all_tasks = _STEP.search(line), _GLOBAL_STEP.search(line)
    step, epoch = all_tasks or first, _EPOCH.search(line)
    metrics = _metrics(line)
    tells = any(_QUALITY.search(name) for name in metrics)
    if step is None and (epoch or tells):
        step = _BRACKETED.search(line, epoch.end() - 1 if epoch else 0)
    found = [match for match in (step, epoch) if match]
    if not found or _NO_TRAINING.search(line, 0, min(match.start() for match in found)):
        return None
    if not (tells or all_tasks or any(match[2] for match in found)):
        rest = line[max(match.end() for match in found) :]
        if re.search(r"[A-Za-z]", rest) or (step and "batch" in step[0].lower()):
            return None  # other words follow, so the line may be about something else
    elif not tells and re.search(r"[:.]\s+[A-Za-z]", line[max(m.end() for m in found) :]):
        return None  # `step 2/5: build the vocabulary`
    (count, total), (number, epochs) = _counted(step), _counted(epoch)
    own = _counted(first)[0] if first and step and first.end() < step.start() else None
    return PrintedStep(count, total, number, epochs, metrics=metrics, own_step=own)


def _counted(match: re.Match[str] | None) -> tuple[int | None, int | None]:
    """Return a count and its total; each is None if the line does not have it."""
    if match is None:
        return None, None
    count, total = (int(text.replace(",", "")) if text else None for text in match.groups())
    return count, total


def _scaled(number: str, scale: str) -> float:
    return float(number) * _SCALES[scale]


def _metrics(text: str) -> dict[str, float]:
    """Return the metrics of a line by their names as printed, at most 16."""
    found: dict[str, float] = {}
    for name, number in (*_METRIC.findall(text), *_SPOKEN_METRIC.findall(text)):
        if len(found) < _MOST_METRICS and not _NO_METRIC.fullmatch(name):
            found.setdefault(name, float(number))
    return found


# ---- the progress of one task, from its lines ----

_RATE_WINDOW = 30.0


@dataclass
class PrintedTrack:
    """The progress of one task from its lines; totals from the program's arguments are used if the
    lines have no totals.
    """

    total_steps: int | None = None
    total_epochs: int | None = None
    step: int | None = None
    total: int | None = None
    epoch: int | None = None
    epochs: int | None = None
    rate: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    at: float = 0.0
    _done: bool = False
    _summed_up: bool = False
    _from_zero: bool = False
    _loss: str | None = None
    _curve: LossCurve = field(default_factory=LossCurve)
    _points: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=256))
    _own_step: int | None = None
    _own_points: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=256))

    def add(self, line: PrintedStep) -> None:
        """Record the progress of one line."""
        if line.is_bar and self._done:
            return  # a bar of `evaluate` or `predict`, after a complete epoch
        before = self.unit, self.count
        if line.epoch is not None:
            self._add_epoch(line)
        if line.step is not None:
            if self._summed_up and line.epoch is None and self.epoch is not None:
                self.epoch += 1
            self._summed_up = False
            self.step, self.total = line.step, line.total
            self._done = line.is_bar and line.step == line.total and self.epoch is not None
        self.rate = line.rate or self.rate
        self.metrics.update(line.metrics)
        if line.own_step is not None:
            if line.own_step < (self._own_step or 0):
                self._own_points.clear()
            self._own_step = line.own_step
        if self.unit != before[0] or self.count < before[1]:
            self._points.clear()
            self._curve.cut(self.count if self.unit == before[0] else 0)
        self._add_loss(line.metrics)

    def _add_epoch(self, line: PrintedStep) -> None:
        self.epoch, self.epochs = line.epoch, line.epochs or self.epochs
        self._from_zero |= line.epoch == 0
        self._done = False
        if self.total and line.step is None:
            # A line that names the epoch and has metrics was printed at the end of the epoch, one
            # without metrics at its start.
            self._summed_up = bool(line.metrics)
            self.step = self.total if self._summed_up else 0

    def _add_loss(self, metrics: Mapping[str, float]) -> None:
        ranked = [(w.loss, n) for n in metrics if (w := tag_meaning(n)) and w.loss is not None]
        if not ranked:
            return
        name = min(ranked)[1]
        if name != self._loss and self._loss not in metrics:
            self._loss, self._curve = name, LossCurve()
        if self._loss and math.isfinite(metrics[self._loss]):
            self._curve.add(self.count, metrics[self._loss])

    def look(self, at: float) -> None:
        """Record that the lines were read at the time `at` (seconds since 1970), to compute the
        rate.
        """
        self.at = at
        _add_point(self._points, at, self.count)
        if self._own_step is not None:
            _add_point(self._own_points, at, self._own_step)

    @property
    def own_step(self) -> int | None:
        """The number of the last step by the count of the task itself, not the count of all tasks;
        None if the task's lines have no step.
        """
        if self.step is None:
            return None
        return self.count if self._own_step is None else self._own_step

    @property
    def own_rate(self) -> float | None:
        """The steps per second of the task itself; None if its lines show no steps or no rate."""
        if self.step is None:
            return None
        if self._own_step is not None:
            return _recent_rate(self._own_points) or None
        rate = _recent_rate(self._points)
        return (self.rate if rate is None else rate) or None

    @property
    def known(self) -> bool:
        """Whether any line has shown progress."""
        return self.step is not None or self.epoch is not None

    @property
    def unit(self) -> str:
        """The unit of `count`: "step", or "epoch" if no line has a step."""
        return EPOCH if self.step is None else STEP

    @property
    def count(self) -> int:
        """The number of steps since the start of the training, if the steps of an epoch are known;
        otherwise the printed step, which may count from the start of an epoch. If no line has a
        step, the number of the epoch.
        """
        if self.step is None:
            return self.epoch or 0
        return self.step + self._earlier

    @property
    def _earlier(self) -> int:
        """The number of steps in the epochs before the current one."""
        if self.epoch is None or not self.total or not self._most_epochs:
            return 0
        return max(self.epoch - (not self._from_zero), 0) * self.total

    @property
    def _most_epochs(self) -> int | None:
        return self.epochs or self.total_epochs

    @property
    def most(self) -> int | None:
        """The total number of steps or epochs (see `unit`); None if it is not known."""
        if self.unit == EPOCH:
            most = self._most_epochs
        elif self.epoch is not None and self.total and self._most_epochs:
            most = self.total * self._most_epochs
        else:
            most = self.total or self.total_steps
        return step_of_total(self.count, most)[1]

    def total_of(self, unit: str) -> int | None:
        """Return the total of a unit, even if the task counts another unit."""
        if unit == EPOCH:
            return self._most_epochs
        return self.most if self.unit == unit else None

    def progress(self) -> Progress | None:
        """Return the progress of the task; None if no line has shown any."""
        if not self.known:
            return None
        rate = _recent_rate(self._points)
        if rate is None and self.unit == STEP:
            rate = self.rate
        step, total = step_of_total(self.count, self.most)
        points = self._curve.points
        every = -(-len(points) // LOSS_POINTS) or 1
        return Progress(
            step=step,
            total=total,
            steps_per_second=rate or None,
            loss=self.metrics.get(self._loss) if self._loss else None,
            eta_seconds=(total - step) / rate if total is not None and rate else None,
            at=self.at,
            unit=self.unit,
            epoch=self.epoch,
            history=tuple(points[::-every][::-1]),
            metrics={n: v for n, v in self.metrics.items() if n != self._loss},
            source="printedLines",
        )


def _add_point(points: deque[tuple[float, int]], at: float, count: int) -> None:
    if not points or points[-1][1] != count:
        points.append((at, count))


def _recent_rate(points: Sequence[tuple[float, int]]) -> float | None:
    """Return how much the count grew per second in the last half minute; None if this has too few
    points. A point is a pair `(time, count)`.
    """
    seen = [each for each in points if each[0] >= points[-1][0] - _RATE_WINDOW]
    if len(seen) < 2 or seen[-1][0] <= seen[0][0]:
        return None
    return (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0])


# ---- the logs of a run ----

_TAIL = 64 << 10
_LINES = 300
_LOGS = 16
LOGS_READ = 8
"""Maximum number of logs from which one `read` of `PrintedLogs` reads new lines."""
_LOOK_BACK = 2 << 20
_KERAS_EPOCH = re.compile(rb"Epoch (\d+)/(\d+)\s*[\r\n]")


class PrintedLog:
    """One task's log, of which only the newest part is read."""

    def __init__(self, places: Sequence[str], track: PrintedTrack) -> None:
        self.track = track
        self._places = places
        self._identity: tuple[int, int] | None = None
        self._offset = 0

    def size_of(self) -> tuple[str, os.stat_result] | None:
        """Return the path and the `stat` result of the log, if it has grown since it was last read;
        else None.
        """
        for place in self._places:
            try:
                seen = os.stat(place)
            except OSError:
                continue
            if (seen.st_dev, seen.st_ino) != self._identity or seen.st_size < self._offset:
                self._identity, self._offset = (seen.st_dev, seen.st_ino), 0
            return (place, seen) if seen.st_size > self._offset else None
        return None

    def read(self, place: str) -> None:
        """Read the new part of the log, at most its last 64 KiB."""
        try:
            # A program may have put anything at that path, even a pipe without a writer.
            how = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(place, how), "rb", buffering=0) as file:
                seen = os.fstat(file.fileno())
                if not stat.S_ISREG(seen.st_mode):
                    return
                begin = max(self._offset, seen.st_size - _TAIL)
                cut = begin > self._offset
                data = os.pread(file.fileno(), _TAIL, begin)
                if cut and not self.track.known and not _KERAS_EPOCH.search(data):
                    self._look_back(file.fileno(), begin)
        except OSError:
            return
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        pieces = re.split(rb"[\r\n]", data[:end])
        if cut:
            pieces = pieces[1:]
        told = [piece for piece in pieces if _MAYBE.search(piece)][-_LINES:]
        # The text after the last line end is used only if it is a progress bar, because any other
        # line may be incomplete.
        for text in (each.decode("utf-8", "replace") for each in told):
            if (line := parse_line(text)) is not None:
                self.track.add(line)
        rest = _ANSI.sub("", data[end:].decode("utf-8", "replace"))
        if (bar := _tqdm_bar(rest) or _keras_bar(rest)) is not None:
            self.track.add(bar)
        self._offset = begin + end
        self.track.look(seen.st_mtime)

    def _look_back(self, fd: int, before: int) -> None:
        """Find the line `Epoch 2/10` above a series of Keras' bars, in the 2 MiB before the offset
        `before`. Called only while the epoch is unknown.
        """
        earlier = os.pread(fd, min(_LOOK_BACK, before), max(0, before - _LOOK_BACK))
        for match in list(_KERAS_EPOCH.finditer(earlier))[-1:]:
            self.track.add(PrintedStep(epoch=int(match[1]), epochs=int(match[2])))


class PrintedLogs:
    """The logs of a run's tasks. `places` has, for each task, the possible paths of its log; the
    task that leads the training comes first.
    """

    def __init__(
        self, places: Sequence[Sequence[str]], total_steps: int | None, total_epochs: int | None
    ) -> None:
        self._logs = [PrintedLog(each, PrintedTrack(total_steps, total_epochs)) for each in places]
        self._next = LOGS_READ
        self._furthest: PrintedTrack | None = None

    def total_of(self, unit: str) -> int | None:
        """Return the total of `unit` according to the last `read`; None if no line has the
        total.
        """
        return self._furthest.total_of(unit) if self._furthest else None

    def read(self) -> Progress | None:
        """Read new lines. Return the progress of the task with the most steps, among those that
        have printed in the last half minute before the newest line.
        """
        grown = [(log, found) for log in self._turn() if (found := log.size_of()) is not None]
        for log, (place, _seen) in grown[:LOGS_READ]:
            log.read(place)
        tracks = [log.track for log in self._logs if log.track.known]
        newest = max((track.at for track in tracks), default=0.0)
        current = [track for track in tracks if track.at >= newest - _RATE_WINDOW]
        self._furthest = max(current, key=lambda t: (t.unit == STEP, t.count, t.at), default=None)
        return self._furthest.progress() if self._furthest else None

    def rates(self) -> list[float | None]:
        """Return the steps per second of the task of each log, according to the last reads. A rate
        is None if it is unknown, or if the task has printed no step lately.
        """
        since = time.time() - _RATE_WINDOW
        tracks = [log.track for log in self._logs]
        return [each.own_rate if each.at >= since else None for each in tracks]

    def counts(self) -> list[int | None]:
        """Return the last step in each log, according to the last reads; None for a log without a
        step.
        """
        return [log.track.own_step for log in self._logs]

    def _turn(self) -> list[PrintedLog]:
        """Return the logs to check now: a few logs that have shown progress, the first logs, and a
        few of the others, which change with each call.
        """
        speaking = [log for log in self._logs if log.track.known][: LOGS_READ // 2]
        first = [*speaking, *(log for log in self._logs[:LOGS_READ] if log not in speaking)]
        others = self._logs[LOGS_READ:]
        if not others:
            return first
        begin = self._next % len(others)
        self._next += _LOGS - LOGS_READ
        more = [*others, *others][begin : begin + min(_LOGS - LOGS_READ, len(others))]
        return [*first, *(log for log in more if log not in first)]


# ---- reports of `tfcluster.progress` ----

_REPORTS = ".tfcluster-progress"
_REPORT_BYTES = 64 << 10
_MOST_REPORTS = 64


class ReportedProgress:
    """The progress reports in a run's folder, which `tfcluster.progress()` writes
    (runtime/site/tfcluster.py).
    """

    def __init__(self, folder: str) -> None:
        self._folder = os.path.join(folder, _REPORTS)

    def read(self) -> Progress | None:
        """Return the progress of the task with the most steps, among the reports of the last half
        minute.
        """
        found = [each for each in map(self._report, self._names()) if each is not None]
        newest = max((each.at for each in found), default=0.0)
        current = [each for each in found if each.at >= newest - _RATE_WINDOW]
        return max(current, key=lambda each: (each.step, each.at), default=None)

    def rates(self) -> dict[str, float]:
        """Return the steps per second of each task whose program reports them, by task."""
        told = {name.removesuffix(".json"): self._report(name) for name in self._names()}
        return {
            task: each.steps_per_second
            for task, each in told.items()
            if each and each.steps_per_second and time.time() - each.at <= _RATE_WINDOW
        }

    def counts(self) -> dict[str, int]:
        """Return the last step of each task whose program reports it, by task."""
        told = {name.removesuffix(".json"): self._report(name) for name in self._names()}
        return {task: each.step for task, each in told.items() if each}

    def _names(self) -> list[str]:
        try:
            with os.scandir(self._folder) as entries:
                listed = [e.name for e, _n in zip(entries, range(_MOST_REPORTS * 8), strict=False)]
        except OSError:
            return []
        return sorted(name for name in listed if name.endswith(".json"))[:_MOST_REPORTS]

    def _report(self, name: str) -> Progress | None:
        try:
            how = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(os.path.join(self._folder, name), how), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    return None
                return _progress_of_report(json.loads(file.read(_REPORT_BYTES)))
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None


def _progress_of_report(report: dict[str, object]) -> Progress | None:
    """Return the progress in a report.

    Raises:
        ValueError, LookupError, TypeError, AttributeError: the data is not a report.
    """
    step, at = int(str(report["step"])), float(str(report["at"]))
    total = None if report.get("total") is None else int(str(report["total"]))
    given, points = report.get("metrics") or {}, report.get("points") or []
    if not (isinstance(given, dict) and isinstance(points, list)):
        raise TypeError("not a report")
    metrics = {str(name): float(value) for name, value in list(given.items())[:_MOST_METRICS]}
    epoch = metrics.pop("epoch", None)
    marks = [(float(wall), int(count)) for wall, count, _loss in points]
    recent = [mark for mark in marks if mark[0] >= at - _RATE_WINDOW] or marks[-2:]
    rate = None
    if len(recent) > 1 and recent[-1][0] > recent[0][0]:
        rate = (recent[-1][1] - recent[0][1]) / (recent[-1][0] - recent[0][0]) or None
    curve = [(int(count), float(loss)) for _wall, count, loss in points if loss is not None]
    every = -(-len(curve) // LOSS_POINTS) or 1
    step, total = step_of_total(step, total)
    left = None if total is None else total - step
    return Progress(
        step=step,
        total=total,
        steps_per_second=rate,
        loss=metrics.pop("loss", None),
        eta_seconds=left / rate if left is not None and rate else None,
        at=min(at, time.time()),
        unit=STEP,
        epoch=None if epoch is None or not math.isfinite(epoch) else int(epoch),
        history=tuple(curve[::-every][::-1]),
        metrics=metrics,
        source="program",
    )
