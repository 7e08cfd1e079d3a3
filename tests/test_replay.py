"""Recorded decisions of real runs, decided again without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfcluster_magic.lifecycle.recording import replay

RECORDINGS = sorted((Path(__file__).parent / "replay").glob("*.jsonl"))


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.stem)
def test_a_recorded_run_is_decided_the_same_way_today(recording: Path) -> None:
    """Every decision of a recorded run comes out unchanged."""
    steps = 0
    for step, today in replay(recording.read_bytes().splitlines()):
        assert today == step.decision
        steps += 1

    assert steps > 1
