"""The retries of tools/suite.py: a broken test always fails, and CI lists a test that is
unsteady.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import suite

UNSTEADY = """
import os
from pathlib import Path

def test_unsteady():
    first = Path("was-here")
    try:
        assert first.exists() and "TFC_TRACED_PAGES" in os.environ
    finally:
        first.touch()

def test_steady():
    pass
"""
BROKEN = "def test_broken():\n    assert False\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a project on a build machine."""
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # halves the start time of pytest
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p xdist.plugin")
    (tmp_path / "test_it.py").write_text(UNSTEADY)
    return tmp_path


def test_an_unsteady_test_is_named_with_its_first_failure(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """An unsteady test passes the second time, when it runs alone."""
    assert suite.main([], folder) == 0
    said = capfd.readouterr().out
    assert "1 failed, 1 passed" in said
    assert said.rindex("1 passed") > said.index("each runs once more")
    assert "UNSTEADY (failed, then passed; each is a bug to mend):\n  test_it.py::test_uns" in said


def test_tests_of_a_file_that_belong_together_are_tried_together(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """If the tests of a file share a process, they run again together, because a test may need
    earlier tests of the file.
    """
    later = UNSTEADY.replace("def test_steady():", "def test_steady():\n    assert made\n")
    later = later.replace("def test_unsteady():", "def test_unsteady():\n    assert made")
    first = "made = []\n\ndef test_first():\n    made.append(1)\n"
    (folder / "test_it.py").write_text(first + later)
    assert suite.main([], folder) == 1
    (folder / "was-here").unlink()
    assert suite.main(["--dist", "loadfile"], folder) == 0
    assert "and with their files:\n  test_it.py" in capfd.readouterr().out


def test_away_from_a_build_machine_a_failure_is_a_failure(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of CI, a failure is reported at once."""
    monkeypatch.delenv("CI")
    assert suite.main([], folder) == 1


def test_a_broken_test_fails_both_times(folder: Path) -> None:
    """A broken test fails both times, also if the same run has an unsteady test."""
    (folder / "test_broken.py").write_text(BROKEN)
    assert suite.main([], folder) == 1


def test_failures_in_many_files_are_no_accident(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Failures in too many files are not retried."""
    for number in range(suite.AT_MOST + 1):
        (folder / f"test_broken_{number}.py").write_text(BROKEN.replace("broken", f"b{number}"))
    assert suite.main([], folder) == 1
    assert "once more" not in capfd.readouterr().out


def test_a_choice_that_leaves_nothing_is_no_failure(folder: Path) -> None:
    """`make test PYTEST_ARGS='-k name'` runs all suites, so a suite without a match is fine;
    without -k it is an error.
    """
    assert suite.main(["-k", "nothing_has_this_name"], folder) == 0
    (folder / "test_it.py").unlink()
    assert suite.main([], folder) == 5
