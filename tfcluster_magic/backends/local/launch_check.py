"""What may refuse a launch on this machine: options that only Kubernetes has, a missing Python or
library, folders, too little room, and what the hub allows.

`check` puts all of it together, and creates nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...errors import Problem
from ...i18n import _
from ...quota import preflight, storage
from ...quota.ledger import Account
from ...quota.preflight import Preflight
from ...spec import Spec
from ...spec.loopback import guard_path
from . import allowance, capacity, elsewhere, interpreters, quota

NEEDED_DISK = 1 << 20


def check(
    spec: Spec,
    active: capacity.Active,
    folders: Mapping[str, Path],
    state_dir: Path,
    resume_from: Path | None,
    account: Account | None,
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
    verdict = preflight.check(spec, there)
    missing = obstacles(spec, folders["log"], state_dir, resume_from)
    over = allowance.refused(spec, [(c, capacity.holding(c)) for _folder, c in active])
    filled = allowance.storage(folders, state_dir)
    problems = (
        *elsewhere.problems(spec),
        *missing,
        *verdict.problems,
        *over,
        *storage.problems(filled),
    )
    warned = (*warnings(folders["log"]), *storage.warnings(filled))
    found = Preflight(problems, (*warned, *verdict.warnings))
    if account is not None:
        found = quota.judged(spec, found, account, time.time())
    return found, free_gpus


def obstacles(
    spec: Spec, log_dir: Path, state_dir: Path, resume_from: Path | None
) -> list[Problem]:
    """What is missing here before any number matters; `resume_from` has the old checkpoints."""
    found = []
    runs_python = spec.program is None or spec.program.entrypoint.endswith(".py")
    if missing := interpreters.obstacle(spec.interpreter, runs_python):
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
        if why := unwritable(folder):
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


def warnings(log_dir: Path) -> list[str]:
    """What is bad here, but not bad enough to refuse a launch."""
    found = []
    if sys.platform != "linux":
        found.append(
            _("TensorFlow listens on every network interface: this platform has no loopback guard")
        )
    with contextlib.suppress(OSError):
        if shutil.disk_usage(_existing(log_dir)).free < NEEDED_DISK:
            found.append(
                _(
                    "the disk of the log folder {log_dir} is full: "
                    "logs and checkpoints will be lost"
                ).format(log_dir=log_dir)
            )
    return found


def unwritable(folder: Path) -> str | None:
    """Why nothing could be written in `folder`, which may not exist yet; None when it could."""
    there = _existing(folder)
    if not there.is_dir():
        return _("{there} is not a folder").format(there=there)
    if not os.access(there, os.W_OK | os.X_OK):
        return _("user {user} may not write in {there}").format(user=_user(), there=there)
    with contextlib.suppress(OSError):
        if os.statvfs(there).f_flag & os.ST_RDONLY:
            return _("{there} is on a read-only file system").format(there=there)
    return None


def _existing(folder: Path) -> Path:
    while not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    return folder


def _user() -> str:
    return os.environ.get("USER") or str(os.getuid())
