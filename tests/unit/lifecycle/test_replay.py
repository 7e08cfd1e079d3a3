"""Recorded decisions of real runs, which are repeated without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from support.project import DATA

from tfcluster_magic.backends.local.supervisor import replay
from tfcluster_magic.lifecycle import Decision

RECORDINGS = sorted((DATA / "replay").glob("*.jsonl"))


def meaning(decision: Decision) -> Decision:
    """Return a decision without its messages, which may change."""
    status = decision.status
    events = tuple(replace(event, message="", messages=()) for event in status.events)
    attention = tuple(replace(task, messages=()) for task in status.attention)
    said = replace(status, message="", messages=(), events=events, attention=attention)
    return replace(decision, status=said)


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.stem)
def test_a_recorded_run_is_decided_the_same_way_today(recording: Path) -> None:
    """From the recorded observations of a run, the lifecycle makes the recorded decisions."""
    steps = 0
    for step, today in replay(recording.read_bytes().splitlines()):
        assert meaning(today) == meaning(step.decision)
        assert today.status.message
        steps += 1

    assert steps > 1
