"""The systemd user unit that starts the clock process at login or at boot.

The unit starts the same single clock process that a shell would start. The process ends when no
schedule and no notification rule is left. See systemd.service(5) and systemd.unit(5).
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from ... import state_files
from ...errors import BackendUnavailable, Conflict
from ...i18n import _
from .schedule_store import clock_command

UNIT = "tfcluster-clock.service"
_PATIENCE = 30.0
"""Timeout in seconds of one call of systemctl."""


def unit_file() -> Path:
    """Return the path of the user's unit file."""
    config = os.environ.get("XDG_CONFIG_HOME", "")
    home = Path(config) if os.path.isabs(config) else Path.home() / ".config"
    return home / "systemd" / "user" / UNIT


def unit_text(state_dir: Path) -> str:
    """Return the text of the unit for the clock process of a state folder, with the Python and the
    PATH of this process.

    Raises:
        BackendUnavailable: this Python does not know its own executable.
    """
    command = clock_command(state_dir)
    return f"""\
# Written by `tfcluster schedule install`; `tfcluster schedule install --remove` deletes it.
[Unit]
Description=Clock of TFCluster: launches what is due in {_escaped(str(state_dir))}
# Without this Python, systemd skips the unit and says so.
ConditionFileIsExecutable={_escaped(command[0])}

[Service]
Type=forking
ExecStart={" ".join(map(_quoted, command))}
Environment={_quoted("PATH=" + os.environ.get("PATH", os.defpath), is_command=False)}
WorkingDirectory=/
# Runs go on when the clock is stopped.
KillMode=process
Restart=on-failure
RestartSec=30

[Install]
WantedBy=default.target
"""


def install(state_dir: Path) -> Path:
    """Write the unit and enable it; return its path. An existing unit is replaced.

    Raises:
        Conflict: no systemd manages this account's services.
        BackendUnavailable: systemd refused, or the file cannot be written.
    """
    if (why := _missing_systemd()) is not None:
        text = _(
            "no systemd manages your services here ({why}). To start the clock with the machine, "
            "run `tfcluster schedule list` in a crontab line that begins with @reboot"
        )
        raise Conflict(text.format(why=why))
    file = unit_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        state_files.write(file, unit_text(state_dir).encode(), mode=0o644)
    except OSError as error:
        text = _("{path} cannot be written: {why}")
        raise BackendUnavailable(text.format(path=file, why=error.strerror)) from None
    _systemctl("daemon-reload")
    _systemctl("enable", UNIT)
    return file


def remove() -> Path | None:
    """Disable the unit and delete it; return its path; None if there was no unit. A running clock
    process continues.

    Raises:
        Conflict: no systemd manages this account's services.
        BackendUnavailable: systemd refused, or the file cannot be deleted.
    """
    file = unit_file()
    if not file.exists():
        return None
    if (why := _missing_systemd()) is not None:
        text = _(
            "no systemd manages your services here ({why}), so the unit has no effect. Delete its "
            "file: `rm {path}`"
        )
        raise Conflict(text.format(why=why, path=shlex.quote(str(file))))
    _systemctl("disable", UNIT)
    try:
        file.unlink()
    except OSError as error:
        text = _("{path} cannot be deleted: {why}")
        raise BackendUnavailable(text.format(path=file, why=error.strerror)) from None
    _systemctl("daemon-reload")
    return file


def lingers() -> bool:
    """Return whether the account's services start with the machine, before anybody logs in."""
    return Path("/var/lib/systemd/linger", Path.home().owner()).exists()


def _missing_systemd() -> str | None:
    """Return why no systemd manages this account's services; None if one does."""
    try:
        _systemctl("show", "--property=Version")
    except BackendUnavailable as error:
        return str(error)
    return None


def _systemctl(*words: str) -> None:
    command = ["systemctl", "--user", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)  # noqa: PLW1510 - the exit code is read below
        why = (done.stderr or done.stdout).strip() if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        why = getattr(error, "strerror", None) or str(error)
        done = None
    if done is None or done.returncode:
        raise BackendUnavailable(f"{' '.join(command)}: {why.splitlines()[0] if why else '?'}")


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(text: str, *, is_command: bool = True) -> str:
    """Quote a word for a unit file. Without quoting, systemd would replace specifiers and, in
    commands, variables.
    """
    text = _escaped(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + (text.replace("$", "$$") if is_command else text) + '"'
