"""`task.json` on this machine: what every world says, the loopback guard, the interpreter.

The addresses are added by the supervisor, which holds the ports.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...spec import Metadata, Spec, task_file
from ...spec.loopback import guard_path
from .detach import interpreter


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
    described = task_file.describe(
        metadata,
        spec,
        program_dir=str(program_dir),
        data_dir=str(folders.data),
        output_dir=str(folders.output),
        resume_from=str(folders.resume_from) if folders.resume_from else None,
    )
    return described | {
        "addresses": {},
        "loopback": guard_path(),
        "interpreter": spec.interpreter or interpreter(),
    }
