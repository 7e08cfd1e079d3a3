"""The systemd unit of the clock process, with a `systemctl` that records its calls."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from support.command_line import Run, runner
from support.fast_clock import FastClock, scheduler
from support.polling import wait_until

from tfcluster_magic import ClusterManager
from tfcluster_magic.backends.local import clock_service, schedule_store

__all__ = ["scheduler"]  # a fixture used by the tests below

YEARLY = "0 0 1 1 *"


@pytest.fixture
def tfcluster(scheduler: ClusterManager, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs `tfcluster` in a folder with programs. Schedules that a test
    creates are deleted after it.
    """
    return runner(capfd)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a `systemctl` that only writes its calls into a file, and a folder for units. Return
    that file.
    """
    file, programs = tmp_path / "calls", tmp_path / "a folder"
    programs.mkdir()
    (programs / "systemctl").write_text(f"#!/bin/sh\necho \"$@\" >>'{file}'\n")
    (programs / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return file


def test_an_installed_clock_starts_without_a_shell(
    scheduler: ClusterManager,
    tfcluster: Run,
    calls: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Systemd accepts the unit, and its command starts the clock process. A second install replaces
    the unit, and `--remove` removes everything.
    """
    monkeypatch.setenv(schedule_store.NO_CLOCK, "1")
    scheduler.schedules.create("nightly", "quick.sh", cron=YEARLY, workers=1)
    unit = tmp_path / "config" / "systemd" / "user" / clock_service.UNIT
    for _time in range(2):
        done = tfcluster("schedule", "install")
        assert (done.code, f"{unit} is enabled." in done.out) == (0, True)
    assert calls.read_text().splitlines()[1:3] == [
        "--user daemon-reload",
        f"--user enable {clock_service.UNIT}",
    ]
    text = unit.read_text()
    if shutil.which("systemd-analyze"):
        verify = ["systemd-analyze", "verify", "--user", "--man=no", unit]
        checked = subprocess.run(
            verify,
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (checked.returncode, clock_service.UNIT in checked.stderr) == (0, False)
    (line,) = [each for each in text.splitlines() if each.startswith("ExecStart=")]
    command = shlex.split(line.removeprefix("ExecStart="))
    clock = FastClock(scheduler.backend.schedules().state_dir, 0.0, 1.0)
    assert clock.pid() is None
    subprocess.run(command, env={"HOME": os.environ["HOME"]}, cwd="/", check=True)
    wait_until(clock.pid, "the unit's command starts the clock")
    assert "is deleted" in tfcluster("schedule", "install", "--remove").out
    assert not unit.exists()
    assert "Nothing was installed" in tfcluster("schedule", "install", "--remove").out


def test_a_refusal_of_systemd_is_told(tfcluster: Run, calls: Path) -> None:
    """If systemd refuses this account, the command says what to do instead and writes nothing."""
    systemctl = calls.parent / "a folder" / "systemctl"
    why = "Failed to connect to bus: No medium found"
    systemctl.write_text(f"#!/bin/sh\necho '{why}' >&2\nexit 1\n")
    done = tfcluster("schedule", "install")
    assert (done.code, "@reboot" in done.err, why in done.err) == (4, True, True)
    unit = clock_service.unit_file()
    assert not unit.exists()
    removed = tfcluster("schedule", "install", "--remove")
    assert (removed.code, removed.out) == (0, "Nothing was installed.\n")
    unit.parent.mkdir(parents=True)
    unit.touch()
    removed = tfcluster("schedule", "install", "--remove")
    assert (removed.code, "@reboot" in removed.err, why in removed.err) == (4, False, True)
    assert f"`rm {unit}`" in removed.err


def test_words_of_a_unit_are_quoted(
    tmp_path: Path, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Systemd takes no part of a path, or of PATH, for a specifier, a variable or the end of a
    line.
    """
    monkeypatch.setenv("PATH", '/a%h/$HOME/"b"\nExecStart=/bin/false')
    lines = clock_service.unit_text(tmp_path / "100%" / "$x").splitlines()
    assert [each for each in lines if each.startswith("Environment=")] == [
        'Environment="PATH=/a%%h/$HOME/\\"b\\"\\nExecStart=/bin/false"'
    ]
    (start,) = [each for each in lines if each.startswith("ExecStart=")]
    assert '/100%%/$$x"' in start
