"""What a page gets to see of a run: the record without its weight, and what is known beside it.

Pure. Owns the form that REST, push and the MIME bundle share (`IRun` in the Lab extension). A
program's files never leave the server this way, and a list carries only the newest event of each
run: 200 runs are a few hundred kilobytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ..progress.run_progress import Progress
from ..spec import TFCluster
from .report import readiness


def run_view(
    cluster: TFCluster,
    progress: Progress | None = None,
    notes: Sequence[str] = (),
    *,
    away: str = "",
    whole: bool = False,
) -> dict[str, Any]:
    """A run as JSON-like data; `whole` keeps its events and addresses."""
    ready, total = readiness(cluster)
    return {
        "cluster": msgspec.to_builtins(_light(cluster, whole)),
        "ready": {"ready": ready, "total": total},
        "progress": None if progress is None else progress_view(progress),
        "notes": list(notes),
        "away": away,
    }


def progress_view(progress: Progress) -> dict[str, Any]:
    """Progress in the JSON form of the models: camelCase, and no NaN, which JSON does not know."""
    data = {
        "step": progress.step,
        "total": progress.total,
        "stepsPerSecond": progress.steps_per_second,
        "loss": progress.loss,
        "etaSeconds": progress.eta_seconds,
        "at": progress.at,
        "unit": progress.unit,
        "epoch": progress.epoch,
        "history": progress.history,
    }
    # msgspec writes NaN and infinity as null: a training that has diverged has no number to draw
    return dict(msgspec.json.decode(msgspec.json.encode(data)))


def _light(cluster: TFCluster, whole: bool) -> TFCluster:
    spec, status = cluster.spec, cluster.status
    if spec.program is not None and spec.program.files is not None:
        spec = replace(spec, program=replace(spec.program, files=None))
    if not whole:
        status = replace(status, events=status.events[-1:], addresses={})
    return replace(cluster, spec=spec, status=status)
