"""The check before `make clean`: no process runs from this clone's .venv.

Without .venv, a clock, TensorBoard, hub or run that still runs would fail later, because its files
are gone. A clock, the process that launches schedules, would still launch them. The script ends
nothing. It runs in .venv.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

ADVICE = """\
.venv is in use. End these processes, then run `make clean` again:
{processes}
- a hub or JupyterLab: Ctrl-C in the shell of `make run`
- runs: .venv/bin/tfcluster stop --all -y
- the clock, which launches schedules and sends notifications: .venv/bin/tfcluster schedule list,
  then `schedule delete NAME` for each; `notify list`, then `notify remove NAME` for each
- TensorBoards: .venv/bin/tfcluster tensorboard --stop"""


def running(environment: Path) -> dict[int, str]:
    """Return the command lines, by pid, of the other processes that run from the environment."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        pid = int(entry.parent.name)
        with contextlib.suppress(OSError):
            words, folder = os.fsdecode(entry.read_bytes()).split("\0"), entry.parent / "cwd"
            files = [folder.readlink() / word for word in words[:2]]
            if pid != os.getpid() and any(file.is_relative_to(environment) for file in files):
                found[pid] = " ".join(words).strip()
    return found


def main(environment: Path) -> str | None:
    """Return what to do first; None if nothing runs from the environment."""
    found = running(environment)
    if not found:
        return None
    return ADVICE.format(
        processes="\n".join(f"  {pid} {found[pid][:100]}" for pid in sorted(found))
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.prefix)))
