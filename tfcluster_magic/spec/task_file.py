"""The package's interface to `runtime/`: its folder, `task.json`, and the loopback guard library.
Pure. `task.json` is read by `runtime/task.py`.
"""

from __future__ import annotations

import math
import posixpath
from pathlib import Path

from . import Metadata, Program, Spec

RUNTIME = Path(__file__).resolve().parents[1] / "runtime"
"""The folder with the programs that run in tasks: Python runs them by their paths."""
GUARD_LIBRARY = RUNTIME / "libloopback_guard.so"


def guard_path() -> str | None:
    """Return the built guard library; None if there is none (not Linux, or not built)."""
    return str(GUARD_LIBRARY) if GUARD_LIBRARY.is_file() else None


# `task.json`: what `runtime/task.py` must know to run as a task, on any backend. Pure. The caller
# adds the addresses of the tasks and the fields that only one backend has.

VERSION = 1


def task_description(
    metadata: Metadata,
    spec: Spec,
    *,
    program_dir: str,
    data_dir: str,
    output_dir: str,
    resume_from: str | None,
    workspace: str,
) -> dict[str, object]:
    """Return the part of `task.json` that is the same on every backend.

    Args:
        metadata: the run's metadata.
        spec: the run's spec.
        program_dir: where a task finds the snapshot's files.
        data_dir: the data folder.
        output_dir: the run's own folder.
        resume_from: the output folder of the run to resume from.
        workspace: the user's own folder as tasks see it, the base of relative paths.
    """
    counts = spec.replicas.counts
    program: dict[str, object] | None = None
    if spec.program is not None:
        program = {
            "dir": program_dir,
            "entrypoint": spec.program.entrypoint,
            "arguments": spec.program.arguments,
            "flags": spec.passed_flags,
            "serves": spec.program.serves,
            "workingDir": spec.program.working_dir,
        }
        if spec.program.by_hand:
            program |= {"byHand": True, **_unread(spec.program, workspace)}
    due = {"scheduledFor": metadata.scheduled.local} if metadata.scheduled else {}
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
        "startTimeout": spec.lifecycle.start_timeout,
        **due,
    }


def _unread(program: Program, workspace: str) -> dict[str, object]:
    """Return the fields that `runtime/program_source.py` needs for a program that no launch has
    read.
    """
    found: dict[str, object] = {}
    if program.command:
        found["command"] = program.command
    if program.path:
        found["path"] = posixpath.normpath(posixpath.join(workspace, program.path))
    if program.url:
        found["url"] = program.url
    if found and program.sha256:
        found["sha256"] = program.sha256
    return found
