"""`task.json`: what `runtime/task.py` must know to be one of a run's tasks, on any backend. Pure.

Owns the mapping from a spec to that file. Where the tasks find one another, and what only one
world has, is added by whoever starts them.
"""

from __future__ import annotations

import math

from . import Metadata, Spec

VERSION = 1


def describe(
    metadata: Metadata,
    spec: Spec,
    *,
    program_dir: str,
    data_dir: str,
    output_dir: str,
    resume_from: str | None,
) -> dict[str, object]:
    """What is the same in both worlds.

    Args:
        metadata: of the run.
        spec: of the run.
        program_dir: where a task finds the snapshot's files.
        data_dir: the data folder.
        output_dir: the run's own folder.
        resume_from: the folder of the run whose checkpoints are taken over.
    """
    counts = spec.replicas.counts
    program: dict[str, object] | None = None
    if spec.program is not None:
        program = {
            "dir": program_dir,
            "entrypoint": spec.program.entrypoint,
            "arguments": spec.program.arguments,
            "flags": spec.program.flags,
            "serves": spec.program.serves,
            "workingDir": spec.program.working_dir,
        }
    cpu = {t.value: spec.replicas.of(t).resources.cpu for t in counts}
    return {
        "version": VERSION,
        "cluster": metadata.cluster,
        "run": metadata.run,
        "name": metadata.name,
        "uid": metadata.uid,
        "mode": spec.mode.value,
        "server": spec.server.value,
        "counts": {t.value: n for t, n in counts.items()},
        "program": program,
        "env": spec.env,
        "threads": {t: math.ceil(limit) for t, limit in cpu.items() if limit},
        "dataDir": data_dir,
        "outputDir": output_dir,
        "resumeFrom": resume_from,
        "grace": spec.lifecycle.grace,
    }
