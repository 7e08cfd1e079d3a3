"""What the hub of this machine allows its user: read from the file that it names, before a launch.

Promises that who has no such file, as without a hub, has no limits, and that one which cannot be
read is told and not passed over.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ... import state_files
from ...errors import Problem, TFClusterError
from ...i18n import _
from ...quota.limits import VARIABLE, Limits, held, problems
from ...quota.storage import Volume
from ...spec import Spec, TaskType, TFCluster
from ...spec.quantities import parse_memory
from .. import folder_sizes


def limits(environ: Mapping[str, str] | None = None) -> Limits | None:
    """What this process' user may have; None: nobody said anything. Raises TFClusterError."""
    file = (os.environ if environ is None else environ).get(VARIABLE)
    if not file:
        return None
    try:
        return state_files.load(Path(file), Limits, exact=True)
    except (FileNotFoundError, state_files.Unreadable) as error:
        text = _("what the hub allows cannot be read from {file}: {why}; ask its administrator")
        raise TFClusterError(text.format(file=file, why=error)) from None


def refused(
    spec: Spec, running: Sequence[tuple[TFCluster, Sequence[TaskType]]]
) -> Sequence[Problem]:
    """Why this launch is more than the user may have, beside what runs hold of it by type.

    Raises:
        TFClusterError: what they may have cannot be read.
    """
    said = limits()
    if said is None:
        return ()
    others = [held(one.metadata.name, one.spec, types) for one, types in running]
    return problems(held("", spec), others, said)


def storage(folders: Mapping[str, Path], state_dir: Path) -> list[Volume]:
    """How full those of a user's folders are that the hub bounds, by `storage.NAMES`.

    Raises:
        TFClusterError: what they may have cannot be read.
    """
    said = limits()
    if said is None:
        return []
    allowed = {}
    for name, amount in said.storage.items():
        with contextlib.suppress(ValueError, TypeError):  # of another release
            allowed[name] = parse_memory(amount)
    bounded = [
        folder_sizes.Folder(name, path, allowed[name], runs=name == "log")
        for name, path in folders.items()
        if name in allowed
    ]
    inside = [
        folder_sizes.Folder(name, path) for name, path in folders.items() if name not in allowed
    ]
    return folder_sizes.measure(bounded, state_dir, but=inside) if bounded else []
