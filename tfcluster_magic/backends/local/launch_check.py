"""Checks that may refuse a launch on this machine: options that only Kubernetes has, a missing
Python or library, folders, too little capacity, and what the hub allows.

`check_launch` puts all of it together and creates nothing. Nothing that was asked for is silently
left out. Whether a Python has TensorFlow is known without importing it, and is remembered for a
moment, so that a form can ask while a user types.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ...errors import Problem
from ...i18n import _, mark
from ...quota import preflight, storage
from ...quota.ledger import HoursAccount
from ...quota.preflight import Preflight
from ...spec import Spec
from ...spec.task_file import guard_path
from . import capacity, quota
from .task_processes import scrubbed

_ALTERNATIVES = {
    "image": mark("tasks run with a Python of this machine, see --python"),
    "image_pull_secret": mark("nothing is pulled on this machine"),
    "volume": mark("tasks see the folders of this machine as you do"),
    "secret": mark("give the tasks variables with --env"),
    "annotation": mark("there are no pods on this machine"),
    "data_claim": mark("tasks find data in TFCLUSTER_DATA_DIR"),
}


def unsupported_options(spec: Spec) -> list[Problem]:
    """Each part of `spec` that only Kubernetes has, called by its option."""
    from ...launch import options  # with what reads programs, which only launches do
    from ...launch.command_line import field_at
    from ...launch.options import OPTIONS, Kind

    found = []
    for option in OPTIONS:
        if not option.only_kubernetes or not (value := field_at(spec, option.path)):
            continue
        said = (
            [str(value)]
            if option.kind is Kind.IMAGE
            else options.pod_option_texts(option.kind, value)
        )
        allowed = _("only on Kubernetes: {instead}").format(instead=_(_ALTERNATIVES[option.key]))
        found.append(Problem(option.flag, " ".join(said), allowed))
    return found


# -- the Python of the tasks -----------------------------------------------------------------------

CACHE_SECONDS, CACHE_SECONDS_OF_FAILURE = 60.0, 5.0
"""Seconds in which it is not asked again; a person who installs TensorFlow does not wait long."""
_INTERPRETER_TIMEOUT = 10.0
_NO_TENSORFLOW = 3
_TENSORFLOW_PROBE = (
    "import importlib.util, sys; "
    f"sys.exit(0 if importlib.util.find_spec('tensorflow') else {_NO_TENSORFLOW})"
)
_probed: dict[tuple[str, float], tuple[float, bool, str | None]] = {}


def interpreter_problem(path: str | None, wants_tensorflow: bool) -> Problem | None:
    """What stands against tasks that run with this Python; None for the one that launches."""
    if path is None or path == sys.executable:
        if not wants_tensorflow or importlib.util.find_spec("tensorflow") is not None:
            return None
        return Problem("tensorflow", sys.executable, _without_tensorflow(sys.executable))
    if not os.path.isfile(path):
        allowed = _("there is no such file: name a Python by its path")
        return Problem("--python", path, allowed)
    if not os.access(path, os.X_OK):
        return Problem("--python", path, _("it is not executable: name a Python by its path"))
    has_tensorflow, trouble = _probe_cached(path)
    if trouble is not None:
        allowed = _("it does not start as a Python: {trouble}").format(trouble=trouble)
        return Problem("--python", path, allowed)
    if wants_tensorflow and not has_tensorflow:
        return Problem("--python", path, _without_tensorflow(path))
    return None


def _without_tensorflow(path: str) -> str:
    return _(
        "this Python has no TensorFlow, and the tasks run with it: "
        "install it with `{python} -m pip install tensorflow-cpu`"
    ).format(python=path)


def _probe_cached(
    path: str, clock: Callable[[], float] = time.monotonic
) -> tuple[bool, str | None]:
    """Whether it has TensorFlow, and why it does not start."""
    key = (path, os.stat(path).st_mtime)
    found = _probed.get(key)
    if found is not None and clock() < found[0]:
        return found[1:]
    has, trouble = _probe(path)
    _probed[key] = (clock() + (CACHE_SECONDS if has else CACHE_SECONDS_OF_FAILURE), has, trouble)
    return has, trouble


def _probe(path: str) -> tuple[bool, str | None]:
    try:
        done = subprocess.run(
            [path, "-c", _TENSORFLOW_PROBE],
            env=scrubbed(os.environ),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_INTERPRETER_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, _("it said nothing for {seconds:g} s").format(seconds=_INTERPRETER_TIMEOUT)
    except OSError as error:
        return False, error.strerror or str(error)
    if done.returncode in (0, _NO_TENSORFLOW):
        return done.returncode == 0, None
    last = done.stderr.strip().splitlines()[-1:]
    return False, last[0] if last else f"exit {done.returncode}"


# -- all checks of a launch ------------------------------------------------------------------------

NEEDED_DISK = 1 << 20


def check_launch(
    spec: Spec,
    active: capacity.ActiveRuns,
    folders: Mapping[str, Path],
    state_dir: Path,
    resume_from: Path | None,
    account: HoursAccount | None,
) -> tuple[Preflight, Sequence[str]]:
    """Everything that stands against `spec` now, and the free GPUs.

    Args:
        spec: what is to be launched.
        active: the runs that hold something.
        folders: the user's folders, by `storage.NAMES`.
        state_dir: the folder of the records.
        resume_from: the folder with the old checkpoints.
        account: hours until now, where they are bounded.
    """
    wants_gpus = any(spec.replicas.of(t).resources.gpu for t in spec.replicas.counts)
    there, free_gpus = capacity.measure(active, with_gpus=wants_gpus)
    verdict = preflight.check_fit(spec, there)
    missing = setup_problems(spec, folders["log"], state_dir, resume_from)
    over = quota.limit_problems(spec, [(c, capacity.occupied_types(c)) for _folder, c in active])
    filled = quota.bounded_volumes(folders, state_dir)
    problems = (
        *unsupported_options(spec),
        *missing,
        *verdict.problems,
        *over,
        *storage.problems(filled),
    )
    warned = (*host_warnings(folders["log"]), *storage.warnings(filled))
    found = Preflight(problems, (*warned, *verdict.warnings))
    if account is not None:
        found = quota.with_budget(spec, found, account, time.time())
    return found, free_gpus


def setup_problems(
    spec: Spec, log_dir: Path, state_dir: Path, resume_from: Path | None
) -> list[Problem]:
    """What is missing here before any number matters; `resume_from` has the old checkpoints."""
    found = []
    runs_python = spec.program is None or spec.program.entrypoint.endswith(".py")
    if missing := interpreter_problem(spec.interpreter, runs_python):
        found.append(missing)
    if sys.platform == "linux" and guard_path() is None:
        allowed = _(
            "the library is missing, and without it TensorFlow would be open to the whole network: "
            "reinstall tfcluster_magic, with a C compiler (cc) where there is no wheel"
        )
        found.append(Problem(_("loopback guard"), None, allowed))
    for what, folder, variable in (
        (_("log folder"), log_dir, "TFCLUSTER_LOG_DIR"),
        (_("state folder"), state_dir, "TFCLUSTER_STATE_DIR"),
    ):
        if why := why_not_writable(folder):
            found.append(
                Problem(
                    what,
                    str(folder),
                    _("{why}: make it writable, or name another folder in {variable}").format(
                        why=why, variable=variable
                    ),
                )
            )
    if resume_from is not None and not resume_from.is_dir():
        allowed = _("its folder {resume_from} is gone: launch without it").format(
            resume_from=resume_from
        )
        found.append(Problem("resumeFrom", spec.resume_from, allowed))
    return found


def host_warnings(log_dir: Path) -> list[str]:
    """What is bad here, but not bad enough to refuse a launch."""
    found = []
    if sys.platform != "linux":
        found.append(
            _("TensorFlow listens on every network interface: this platform has no loopback guard")
        )
    with contextlib.suppress(OSError):
        if shutil.disk_usage(_nearest_existing(log_dir)).free < NEEDED_DISK:
            found.append(
                _(
                    "the disk of the log folder {log_dir} is full: "
                    "logs and checkpoints will be lost"
                ).format(log_dir=log_dir)
            )
    return found


def why_not_writable(folder: Path) -> str | None:
    """Why nothing could be written in `folder`, which may not exist yet; None when it could."""
    there = _nearest_existing(folder)
    if not there.is_dir():
        return _("{there} is not a folder").format(there=there)
    if not os.access(there, os.W_OK | os.X_OK):
        return _("user {user} may not write in {there}").format(user=_user_name(), there=there)
    with contextlib.suppress(OSError):
        if os.statvfs(there).f_flag & os.ST_RDONLY:
            return _("{there} is on a read-only file system").format(there=there)
    return None


def _nearest_existing(folder: Path) -> Path:
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    return folder


def _user_name() -> str:
    return os.environ.get("USER") or str(os.getuid())
