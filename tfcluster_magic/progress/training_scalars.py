"""What the scalars of one event file say about training: steps, epochs, losses.

Promises to follow one file through restarts: where a tag goes back to an earlier step (a checkpoint
was restored), what was written beyond that step is forgotten. It owns the table of tag names and a
bounded memory of one file. It never takes a validation figure for a training figure, reads no file.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from .event_files import Event

STEP, EPOCH = "step", "epoch"
POINTS = 60
"""Points of a loss curve that are given out."""

_MAX_TAGS = 256
_RATE_WINDOW = 30.0  # seconds; long enough for programs that write every 100 steps

# A validation figure: by folder or scope (`validation`, `eval_holdout`, `evaluator-0`), or by name.
_VALIDATION_FOLDER = re.compile(
    r"(val|valid|validation|eval|evaluation|evaluator|test|testing|dev|holdout)([-_. \d].*)?$"
)
_VALIDATION_NAME = re.compile(r"(epoch_|batch_)?(val|valid|validation|eval|evaluation|test|dev)_")

# Losses by the last part of their tag, best first. The last rule takes what merely contains "loss".
_LOSSES = tuple(
    re.compile(pattern)
    for pattern in (
        r"(batch_)?loss(_\d+)?$",
        r"(total|train|training|mean|average|avg)_loss(_\d+)?$|loss_(total|train)$",
        r"epoch_loss$",
        r"(softmax_|sparse_|categorical_|binary_)*cross_?entropy(_loss)?(_\d+)?$|nll$|mse$",
        r".*loss",
    )
)


class Meaning(NamedTuple):
    """What a tag is: counted in `unit`; `loss` is its rank among losses, 0 the best."""

    unit: str
    loss: int | None
    is_rate: bool


@lru_cache(maxsize=1024)
def meaning(tag: str) -> Meaning | None:
    """What training says under `tag`; None for a validation figure."""
    tag = tag.lower()
    if tag == "global_step/sec":
        return Meaning(STEP, None, True)
    *scopes, name = tag.split("/")
    if is_validation(scopes) or _VALIDATION_NAME.match(name) or _VALIDATION_FOLDER.match(name):
        return None
    rank = next((rank for rank, rule in enumerate(_LOSSES) if rule.match(name)), None)
    return Meaning(EPOCH if name.startswith("epoch_") else STEP, rank, False)


def is_validation(folders: Iterable[str]) -> bool:
    """Whether event files under these folder names hold validation figures."""
    return any(_VALIDATION_FOLDER.match(folder.lower()) for folder in folders)


class Track:
    """How far one unit of one file is; `points` are (wall, count) for the speed."""

    def __init__(self, wall: float, count: int) -> None:
        self.count = count
        self.points: deque[tuple[float, int]] = deque([(wall, count)], maxlen=512)
        self._by_tag: dict[str, int] = {}

    def add(self, tag: str, wall: float, count: int) -> bool:
        """Take note of `count` under `tag`; True when it went back."""
        known = self._by_tag.get(tag)
        back = known is not None and count < known
        if back:
            self._by_tag = {t: c for t, c in self._by_tag.items() if c < count}
            self.points.clear()
        if known is not None or len(self._by_tag) < _MAX_TAGS:
            self._by_tag[tag] = count
        top = count if back else max(self.count, count)
        if top != self.count:
            self.points.append((wall, top))
        self.count = top
        return back

    @property
    def per_second(self) -> float | None:
        """Speed over the last 30 s of events, or over the last two points if they are apart."""
        if len(self.points) < 2:
            return None
        last_wall, last = self.points[-1]
        recent = [p for p in self.points if p[0] >= last_wall - _RATE_WINDOW]
        wall, count = recent[0] if len(recent) > 1 else self.points[-2]
        return (last - count) / (last_wall - wall) if last_wall > wall and last > count else None


class Curve:
    """A loss over its steps: `points` are bounded, evenly spread, and end with the newest."""

    def __init__(self) -> None:
        self.points: list[tuple[int, float]] = []
        self._gap = 0.0

    def add(self, count: int, value: float) -> None:
        """Append a point; `count` does not go back."""
        points = self.points
        close = len(points) > 1 and points[-1][0] - points[-2][0] < self._gap
        if close or (points and points[-1][0] == count):
            points.pop()
        points.append((count, value))
        if len(points) > 4 * POINTS:
            self._gap = (count - points[0][0]) / (2 * POINTS)
            kept = points[:1]
            for point in points[1:-1]:
                if point[0] - kept[-1][0] >= self._gap:
                    kept.append(point)
            self.points = [*kept, points[-1]]

    def cut(self, count: int) -> None:
        """Forget what lies at `count` and beyond."""
        self.points = [point for point in self.points if point[0] < count]


class Writer:
    """What one event file has said so far, from `first` to `last` (seconds since 1970)."""

    def __init__(self, first: float | None = None) -> None:
        self.first = math.inf if first is None else first
        self.last = 0.0
        self.tracks: dict[str, Track] = {}
        self.losses: dict[str, Curve] = {}
        self.newest_loss: dict[str, float] = {}
        self.written_rate: float | None = None

    def add(self, event: Event) -> None:
        """Take note of one event."""
        if not math.isfinite(event.wall):
            return
        if event.checkpoint:
            self._count(STEP, "checkpoint", event.wall, event.step)
        for tag, value in event.values.items():
            what = meaning(tag)
            if what is None:
                continue
            # Keras numbers the epoch that has just ended from 0
            count = event.step + 1 if what.unit == EPOCH else event.step
            self._count(what.unit, tag, event.wall, count)
            if what.is_rate:
                self.written_rate = value if math.isfinite(value) and value > 0 else None
            elif what.loss is not None and (tag in self.losses or len(self.losses) < _MAX_TAGS):
                self._add_loss(tag, count, value)

    def _count(self, unit: str, tag: str, wall: float, count: int) -> None:
        self.first = min(self.first, wall)
        self.last = max(self.last, wall)
        track = self.tracks.setdefault(unit, Track(wall, count))
        if track.add(tag, wall, count):
            self.written_rate = None
            for loss_tag, curve in self.losses.items():
                what = meaning(loss_tag)
                if what is not None and what.unit == unit:
                    curve.cut(count)

    def _add_loss(self, tag: str, count: int, value: float) -> None:
        self.newest_loss[tag] = value
        if math.isfinite(value):
            self.losses.setdefault(tag, Curve()).add(count, value)
        else:
            self.losses.setdefault(tag, Curve())

    @property
    def loss_tag(self) -> str | None:
        """The best training loss of this file; of equal ones the one that came first."""
        ranks = [(what.loss, tag) for tag in self.losses if (what := meaning(tag)) is not None]
        ranked = [(rank, tag) for rank, tag in ranks if rank is not None]
        return min(ranked, key=lambda entry: entry[0])[1] if ranked else None
