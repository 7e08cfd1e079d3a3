"""Paths on this machine: the state directory and the user's folders.

Paths are absolute and depend only on the environment, so processes with the same environment agree.
An empty variable counts as unset. This module reads no file. Only its function `private` creates
folders. The other functions return these paths, where "else" means that the variable before it is
unset:

  state_dir()   $TFCLUSTER_STATE_DIR, else $XDG_STATE_HOME/tfcluster,
                else ~/.local/state/tfcluster
  home_dir()    $TFCLUSTER_HOME, else ~/tfcluster
  data_dir()    $TFCLUSTER_DATA_DIR, else <home_dir>/data
  log_dir()     $TFCLUSTER_LOG_DIR, else <home_dir>/log
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from .errors import TFClusterError
from .i18n import _


def state_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of records, supervisors and TensorBoards; private to the user (see
    `private`).

    Raises:
        TFClusterError: no variable is set and the user has no home directory.
    """
    env = os.environ if environ is None else environ
    if given := env.get("TFCLUSTER_STATE_DIR"):
        return _absolute(given, env)
    xdg = env.get("XDG_STATE_HOME", "")
    if os.path.isabs(xdg):  # the XDG specification says to ignore relative paths
        return Path(xdg, "tfcluster")
    return _user_home(env) / ".local" / "state" / "tfcluster"


def home_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder that holds the user's `data` and `log` folders. Raises TFClusterError, as
    `state_dir` does.
    """
    env = os.environ if environ is None else environ
    given = env.get("TFCLUSTER_HOME")
    return _absolute(given, env) if given else _user_home(env) / "tfcluster"


def data_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return the user's data folder. Every task gets its path in TFCLUSTER_DATA_DIR. Raises
    TFClusterError, as `state_dir` does.
    """
    env = os.environ if environ is None else environ
    given = env.get("TFCLUSTER_DATA_DIR")
    return _absolute(given, env) if given else home_dir(env) / "data"


def log_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Return the log root; a run's folder is `<log_dir>/<cluster>/<n>`. Raises TFClusterError, as
    `state_dir` does.
    """
    env = os.environ if environ is None else environ
    given = env.get("TFCLUSTER_LOG_DIR")
    return _absolute(given, env) if given else home_dir(env) / "log"


def private(folder: Path) -> Path:
    """Create `folder` and its missing parents with mode 0700, and return it.

    Existing folders are not changed.

    Raises:
        TFClusterError: it cannot be created.
    """
    try:
        for missing in reversed([f for f in (folder, *folder.parents) if not f.is_dir()]):
            missing.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise TFClusterError(
            _(
                "cannot create the folder {folder}: {why}; "
                "make it writable, or name another state folder in TFCLUSTER_STATE_DIR"
            ).format(folder=folder, why=error.strerror or error)
        ) from None
    return folder


def _user_home(env: Mapping[str, str]) -> Path:
    home = env.get("HOME") or os.path.expanduser("~")
    if not os.path.isabs(home):
        raise TFClusterError(
            _(
                "this user has no home directory: set HOME, "
                "or name folders in TFCLUSTER_STATE_DIR and TFCLUSTER_HOME"
            )
        )
    return Path(home)


def _absolute(given: str, env: Mapping[str, str]) -> Path:
    if given == "~" or given.startswith("~/"):
        given = str(_user_home(env)) + given[1:]
    return Path(os.path.abspath(given))
