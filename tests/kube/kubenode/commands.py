"""Functions that run commands, hold locks and wait. A failed command's last lines are shown."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from .errors import NodeError

LAST_LINES = 15
REST = 0.5
"""Longest pause, in seconds, after a slow check. A pause is needed because checks take CPU time
from the work that is awaited.
"""
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def say(text: str) -> None:
    """Print progress to stderr, because stdout is for results."""
    print(text, file=sys.stderr, flush=True)


def run(
    arguments: Sequence[str | os.PathLike[str]],
    *,
    stdin: str = "",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
    hint: str = "",
) -> str:
    """Run a command to its end and return its stdout.

    Raises:
        NodeError: the command cannot be started, fails, or takes longer than `timeout` seconds. The
            message has the command's last lines and `hint`.
    """
    words = [os.fspath(word) for word in arguments]
    try:
        done = subprocess.run(
            words,
            input=stdin,
            capture_output=True,
            text=True,
            env=env,
            cwd=cwd,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as error:
        raise NodeError(f"{words[0]} is not installed.{_and(hint)}") from error
    except subprocess.TimeoutExpired as error:
        raise NodeError(
            f"`{' '.join(words)}` did not end within {timeout:g} s.{_and(hint)}"
        ) from error
    if done.returncode:
        said = "\n".join((done.stdout + "\n" + done.stderr).strip().splitlines()[-LAST_LINES:])
        raise NodeError(f"`{' '.join(words)}` failed ({done.returncode}):\n{said}{_and(hint)}")
    return done.stdout


def succeeds(
    arguments: Sequence[str], *, seconds: float, env: Mapping[str, str] | None = None
) -> bool:
    """Return whether a command exits with 0 within `seconds`."""
    try:
        done = subprocess.run(arguments, capture_output=True, env=env, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _and(hint: str) -> str:
    return f"\n{hint}" if hint else ""


@contextmanager
def locked(path: Path, *, waiting_for: str) -> Iterator[None]:
    """Hold a lock on `path`; a waiting process says what it waits for. The kernel releases the lock
    when the holder dies.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another process: {waiting_for}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def wait_until(
    condition: Callable[[], object], what: str, *, seconds: float, every: float = 0.1
) -> None:
    """Wait until `condition()` is true.

    Raises:
        NodeError: it is not true within `seconds`; the message has the last error of `condition`.
    """
    deadline = time.monotonic() + seconds
    last = ""
    while True:
        began = time.monotonic()
        try:
            if condition():
                return
        except NodeError as error:
            last = f"\n{error}"
        now = time.monotonic()
        if now > deadline:
            raise NodeError(f"{what}: not so after {seconds:g} s.{last}")
        time.sleep(max(every, min(now - began, REST)))
