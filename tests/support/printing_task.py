"""A program that prints much output, the lines that it prints, and a run for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.task_process import Run, new_run

MANY = 'import sys\nfor n in range(200_000): print(f"{n:08d} " + "x" * 40)\nprint("done")\n'
EVERYTHING = [f"{n:08d} " + "x" * 40 for n in range(200_000)] + ["done"]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Yield a run; end its processes afterwards."""
    with new_run(tmp_path) as made:
        made.output.mkdir()
        yield made
