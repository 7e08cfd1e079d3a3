"""A run as a row of the table, whichever world it is of. Pure."""

from __future__ import annotations

from ... import limits
from ...models import TaskState, TFCluster
from .world import Row


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
