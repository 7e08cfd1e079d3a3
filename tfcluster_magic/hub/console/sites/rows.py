"""A run as a row of the table, whichever site it is of. Pure."""

from __future__ import annotations

import msgspec

from ....quota import limits
from ....spec import TaskState, TaskType, TFCluster
from .base import Row

LONGEST, MOST_MESSAGE, MOST_NAMES = 100, 1000, 40
"""Characters of a text of a row, and of its message; names of nodes and of tasks."""


def row_of(cluster: TFCluster, nodes: tuple[str, ...] = ()) -> Row:
    """A run as a row, of nobody yet; of its resources what it counts for at its owner's quota."""
    meta, spec, status = cluster.metadata, cluster.spec, cluster.status
    held = limits.held(meta.name, spec)
    failed = [task.name for task in status.attention if task.state is TaskState.FAILED]
    return Row(
        owner="",
        name=meta.name,
        cluster=meta.cluster,
        run=meta.run,
        uid=meta.uid,
        phase=status.phase.value,
        reason=status.reason.value,
        message=status.message,
        created_at=meta.created_at,
        finished_at=status.finished_at,
        active=cluster.active,
        mode=spec.mode.value,
        tasks={t.value: count for t, count in spec.replicas.counts.items()},
        cpu=held.cpu,
        memory=round(held.memory),
        gpu=round(held.gpu),
        nodes=nodes,
        failed=tuple(dict.fromkeys([*(f.task for f in status.failures), *failed])),
    )


def bounded(row: Row) -> Row:
    """A row of a few KiB at most, whoever said it: those of everyone are kept for a while."""
    texts = {
        name: _cut(text)
        for name in row.__struct_fields__
        if isinstance(text := getattr(row, name), str)
    }
    return msgspec.structs.replace(
        row,
        **{**texts, "message": _cut(row.message, MOST_MESSAGE)},
        tasks={_cut(kind): count for kind, count in list(row.tasks.items())[: len(TaskType)]},
        nodes=tuple(map(_cut, row.nodes[:MOST_NAMES])),
        failed=tuple(map(_cut, row.failed[:MOST_NAMES])),
    )


def _cut(text: str, most: int = LONGEST) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
