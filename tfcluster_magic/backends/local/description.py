"""`task.json`: what `runtime/task.py` must know to be one of a run's tasks, and the program beside
it.

Owns the mapping from a spec to that file; the addresses are added by the supervisor, which holds
the ports.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from ...loopback import guard_path
from ...models import Metadata, Spec
from .detach import interpreter

VERSION = 1


@dataclass(frozen=True)
class Folders:
    """Where a run's tasks find and leave things."""

    data: Path
    output: Path
    resume_from: Path | None


def of_tasks(
    metadata: Metadata, spec: Spec, program_dir: Path, folders: Folders
) -> dict[str, object]:
    """The content of `task.json`, without addresses.

    Raises:
        BackendUnavailable: this Python does not know its own executable.
    """
    counts = spec.replicas.counts
    program: dict[str, object] | None = None
    if spec.program is not None:
        program = {
            "dir": str(program_dir),
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
        "addresses": {},
        "program": program,
        "env": spec.env,
        "threads": {t: math.ceil(limit) for t, limit in cpu.items() if limit},
        "dataDir": str(folders.data),
        "outputDir": str(folders.output),
        "resumeFrom": str(folders.resume_from) if folders.resume_from else None,
        "grace": spec.lifecycle.grace,
        "loopback": guard_path(),
        "interpreter": interpreter(),
    }
