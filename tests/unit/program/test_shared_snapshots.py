"""Snapshots of large programs in the user's workspace, used by several launches."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tfcluster_magic import program
from tfcluster_magic.paths import home_dir
from tfcluster_magic.program.snapshots import keep_snapshot, stored_folder
from tfcluster_magic.spec import Program


class Refused(Exception):
    """A launch that was not accepted."""


@pytest.fixture
def taken(tmp_path: Path) -> tuple[Program, Path]:
    """Take a snapshot that is too large for a record. Return it, and the folder that holds it until
    the launch is accepted.
    """
    source, scratch = tmp_path / "project", tmp_path / "scratch"
    source.mkdir()
    (source / "main.py").write_text("print('hello')\n")
    (source / "data.bin").write_bytes(bytes(program.INLINE_BYTES))
    return program.snapshot(str(source), workspace=scratch, cwd=tmp_path)[0], scratch


def stored(large: Program) -> bool:
    """Return whether the snapshot is in the workspace."""
    return stored_folder(home_dir(), large.sha256).exists()


def test_a_refused_launch_takes_its_snapshot_along(taken: tuple[Program, Path]) -> None:
    """A refused launch removes its snapshot, unless other launches use it."""
    with suppress(Refused), keep_snapshot(*taken):
        assert stored(taken[0])
        raise Refused
    assert not stored(taken[0])


def test_a_snapshot_that_another_launch_took_up_stays(taken: tuple[Program, Path]) -> None:
    """If one of two launches of the same program is refused, the snapshot stays for the other
    launch.
    """
    with suppress(Refused), keep_snapshot(*taken):
        with keep_snapshot(*taken):
            pass
        raise Refused
    assert stored(taken[0])


def test_a_snapshot_that_another_launch_is_taking_up_stays(taken: tuple[Program, Path]) -> None:
    """A launch stores a snapshot and is refused. If another launch that is still in progress uses
    the same snapshot, the snapshot stays.
    """
    with ExitStack() as accepted:
        with suppress(Refused), keep_snapshot(*taken):
            accepted.enter_context(keep_snapshot(*taken))
            raise Refused
        assert stored(taken[0])
    assert stored(taken[0])
