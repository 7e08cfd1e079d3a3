"""Recordings of real runs in `tests/data/replay/`, without data of one machine.

They are written only if the environment variable RECORDINGS names a folder:
`RECORDINGS=tests/data/replay pytest tests/integration/test_faults.py`. Then each run whose cluster
is named in `WANTED` is written there. If only the texts of messages have changed, `PYTHONPATH=tests
python -m support.recordings` replays and rewrites the recordings in `tests/data/replay/`.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from support.project import DATA, ROOT, TESTS
from tfcluster_magic.backends.local.supervisor import RecordedStep, RecordingHeader, recorded_line
from tfcluster_magic.lifecycle import Decision, Observation, decide
from tfcluster_magic.spec import TaskExit

WANTED = {
    "chief-killed",
    "program-fails",
    "in-graph-idle",
    "mwms-fails",
    "mwms-worker-killed",
    "out-of-memory",
    "ps-exited",
    "ps-killed",
    "start-timeout",
    "stop-while-healing",
    "success",
    "worker-killed",
}
MOST = 60 * 1024
LAST_LINES = 4
LONGEST = 200


def keep(run: str, recording: Sequence[bytes], own: Path) -> None:
    """Write the recording of `run`, which lived below the folder `own`, if it is in `WANTED`."""
    folder, name = os.environ.get("RECORDINGS"), run.rpartition("-")[0]
    if not folder or name not in WANTED:
        return
    text = b"".join(scrubbed(recording, own))
    assert len(text) < MOST, f"{name}: {len(text)} bytes"
    Path(folder, f"{name}.jsonl").write_bytes(text)


def scrubbed(recording: Sequence[bytes], own: Path) -> Iterator[bytes]:
    """Return the recording with neutral paths and shortened last lines of tasks. Let the lifecycle
    decide each step again, and assert that only the texts of messages differ from the recorded
    decisions.
    """
    lines = [_neutral(line, own) for line in recording]
    header = msgspec.json.decode(lines[0], type=RecordingHeader)
    program = header.spec.program and replace(header.spec.program, files=None, working_dir=None)
    header = replace(header, spec=replace(header.spec, program=program))
    yield recorded_line(header)
    status = header.status
    for line in lines[1:]:
        step = msgspec.json.decode(line, type=RecordedStep)
        seen = _shortened(step.seen)
        spec = replace(header.spec, stop=step.stop)
        decision = decide(spec, header.name, status, seen, step.now)
        assert _acts(decision) == _acts(step.decision)
        yield recorded_line(replace(step, seen=seen, decision=decision))
        status = decision.status


def _neutral(line: bytes, own: Path) -> bytes:
    names = {
        str(own): "/home/ada/tfcluster",
        sys.prefix: "/home/ada/venv",
        str(ROOT): "/home/ada/project",
        str(Path(sys.base_prefix)): "/usr",
        socket.gethostname(): "laptop",
    }
    for mine, neutral in names.items():
        line = line.replace(mine.encode(), neutral.encode())
    return line


def _shortened(seen: Observation) -> Observation:
    tasks = {
        name: replace(task, exit=task.exit and _short(task.exit))
        for name, task in seen.tasks.items()
    }
    return replace(seen, tasks=tasks)


def _short(task_exit: TaskExit) -> TaskExit:
    kept = tuple(line[:LONGEST] for line in task_exit.last_lines[-LAST_LINES:])
    return replace(task_exit, last_lines=kept)


def _acts(decision: Decision) -> tuple[Any, ...]:
    status = decision.status
    said = (status.phase, status.reason, status.culprit, status.restarts, status.heals)
    return (*said, decision.start, decision.stop, decision.done)


if __name__ == "__main__":
    for file in sorted((DATA / "replay").glob("*.jsonl")):
        lines = file.read_bytes().splitlines()
        file.write_bytes(b"".join(scrubbed(lines, TESTS)))
