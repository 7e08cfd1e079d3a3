"""Advice on runs that these tests launch, each with a planted cause: a problem that was caused on
purpose. Only causes are tested that are visible on a busy machine, too.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.planted import CAUSES
from support.planted.__main__ import run

from tfcluster_magic import ClusterManager
from tfcluster_magic.spec import TFCluster
from tfcluster_magic.usage.advice import Advice

pytestmark = pytest.mark.long


@pytest.mark.parametrize("cause", ["memory-ramp", "memory-too-high", "deadlock", "deadlock-of-one"])
def test_a_run_gets_the_advice_on_its_planted_cause(cause: str, own_folders: Path) -> None:
    """`top` of a TensorFlow run names the cause and the task."""
    planted = CAUSES[cause]
    manager = ClusterManager()
    found: list[Advice] = []

    def look(cluster: TFCluster) -> None:
        found.extend(manager.usage(cluster).advice)

    run(manager, planted, own_folders, planted.options, look)
    assert (planted.code, planted.task, planted.changes) in [
        (each.code, each.task, dict(each.options)) for each in found
    ]
