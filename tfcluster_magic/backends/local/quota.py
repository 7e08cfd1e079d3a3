"""Limits that the hub sets for this user on this machine: sizes, storage and hours.

The environment variable TFCLUSTER_LIMITS names a file in which the hub has written the limits.
Without such a file there are no limits; an unreadable file is an error. `hours_file` has the hours
that count towards a budget.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ... import state_files
from ...errors import TFClusterError
from ...i18n import _
from ...quota import budgets
from ...quota.limits import LIMITS_VARIABLE, Limits
from ...quota.storage import FolderUsage
from ...spec import conversion
from ...spec.quantities import parse_memory
from .. import folder_sizes


def hub_limits(environ: Mapping[str, str] | None = None) -> Limits | None:
    """Return the limits of this process's user; None if there are none. Raises TFClusterError."""
    file = (os.environ if environ is None else environ).get(LIMITS_VARIABLE)
    if not file:
        return None
    try:
        return state_files.load(Path(file), Limits, exact=True)
    except (FileNotFoundError, state_files.Unreadable) as error:
        text = _("the limits of the hub cannot be read from {file}: {why}; ask its administrator")
        raise TFClusterError(text.format(file=file, why=error)) from None


def bounded_volumes(
    folders: Mapping[str, Path], state_dir: Path, said: Limits | None
) -> list[FolderUsage]:
    """Return the usage of the folders that the hub limits. `folders` has the user's folders by the
    names in `storage.FOLDER_NAMES`; `said` are the hub's limits.
    """
    if said is None:
        return []
    allowed = {}
    for name, amount in said.storage.items():
        with contextlib.suppress(ValueError, TypeError):  # a hub of another release wrote it
            allowed[name] = parse_memory(amount)
    bounded = [
        folder_sizes.MeasuredFolder(name, path, allowed[name], runs=name == "log")
        for name, path in folders.items()
        if name in allowed
    ]
    inside = [
        folder_sizes.MeasuredFolder(name, path)
        for name, path in folders.items()
        if name not in allowed
    ]
    return folder_sizes.measure(bounded, state_dir, but=inside) if bounded else []


def group_and_budget(said: Limits | None) -> tuple[str, budgets.Budget | None]:
    """Return the group and the budget of this process's user, as the hub set them."""
    if said is None:
        return "", None
    with contextlib.suppress(msgspec.ValidationError):  # a hub of another release wrote it
        return said.group, budgets.effective_budget(conversion.convert(said.budget, budgets.Budget))
    return said.group, None


def has_budget(said: Limits | None) -> bool:
    """Return whether the hub limits the hours of this process's user."""
    return group_and_budget(said)[1] is not None
