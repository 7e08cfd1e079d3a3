"""No run leaks, gets lost or runs twice, whichever process dies at whatever time. For a long chaos
schedule: `pytest tests/integration/test_chaos.py --timeout 0 --chaos-steps 1000 --chaos-seed 7`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.chaos.plan import schedule
from support.chaos.steps import Chaos

STEPS, SEED = 36, 1942
"""The length and the seed of a short chaos schedule in which every kind of event happens."""


def test_nothing_leaks_and_nothing_is_lost(own_folders: Path, pytestconfig: pytest.Config) -> None:
    """Launches, ends, stops, deletes, kills and crashes never break an invariant."""
    steps = pytestconfig.getoption("chaos_steps") or STEPS
    seed = pytestconfig.getoption("chaos_seed") or SEED
    world = Chaos(own_folders, in_graph=steps > 100)
    try:
        for step in schedule(seed, steps):
            world.do(step)
            world.check()
        world.finish()
    except BaseException:
        again = f"--chaos-seed {seed} --chaos-steps {steps}"
        where = "tests/integration/test_chaos.py"
        print(f"again: pytest {where} {again}", *world.story, sep=os.linesep)
        raise
    finally:
        world.close()
