"""Checks of the storage used in a user's folders: a warning at 80 % of the limit or more, a refusal
when full. Pure.

A warning or refusal says how much is used, how much is allowed, and which of the entries that you
could delete are the largest. A folder that was not measured prevents no launch.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import Problem
from ..i18n import _
from ..spec import Model
from ..spec.quantities import format_bytes

WARN_FROM = 0.8
"""A user who has used this fraction of the limit, or more, is warned."""
OWN_VOLUME_FACTOR = 1.1
"""A volume counts as the volume of one folder only if its size is at most this many times the limit
of that folder (or claim).
"""
FOLDER_NAMES = ("workspace", "data", "log")
_MOST_NAMED = 3


class FolderEntry(Model, frozen=True, omit_defaults=False):
    """A folder or file directly below one of the user's folders, with its size in bytes. In the log
    folder, each run's output is such a folder.
    """

    name: str
    used: int
    run: bool = False


class FolderUsage(Model, frozen=True, omit_defaults=False):
    """The usage of one of the folders `workspace`, `data` and `log`.

    `used` is None if it could not be measured, and `note` says why; if `at_least` is true, more is
    used than was counted. `allowed` is None if there is no limit.
    """

    name: str
    path: str = ""
    used: int | None = None
    allowed: int | None = None
    at_least: bool = False
    largest: tuple[FolderEntry, ...] = ()
    note: str = ""

    @property
    def share(self) -> float:
        """The used fraction of the limit; 0 if the usage or the limit is unknown."""
        if self.used is None or self.allowed is None:
            return 0.0
        return self.used / self.allowed if self.allowed else 1.0


def problems(volumes: Iterable[FolderUsage]) -> list[Problem]:
    """Return a problem for each full folder; with a full folder, no new run may start."""
    return [
        Problem(
            f"storage.{each.name}",
            _fill_text(each),
            _("it is full, and nothing new starts. {what}; for more, ask an administrator").format(
                what=what_to_do(each)
            ),
        )
        for each in volumes
        if each.share >= 1.0
    ]


def warnings(volumes: Iterable[FolderUsage]) -> list[str]:
    """Return a warning for each folder that will soon be full."""
    text = _("your {name} folder holds {held}: when it is full, nothing new starts. {what}")
    return [
        text.format(name=each.name, held=_fill_text(each), what=what_to_do(each))
        for each in volumes
        if WARN_FROM <= each.share < 1.0
    ]


def what_to_do(volume: FolderUsage) -> str:
    """Return the remedy for a full folder, with its largest contents."""
    largest = volume.largest[:_MOST_NAMED]
    most = ", ".join(f"{part.name} {format_bytes(part.used)}" for part in largest)
    if largest and largest[0].run:
        text = _("The largest are {most}: `tfcluster delete {run} --with-logs` makes room")
        return text.format(most=most, run=largest[0].name)
    if largest:
        text = _("The largest in {path} are {most}: delete what you do not need")
        return text.format(path=volume.path, most=most)
    return _("Delete what you do not need in {path}").format(path=volume.path or volume.name)


def _fill_text(volume: FolderUsage) -> str:
    used, allowed = format_bytes(volume.used or 0), format_bytes(volume.allowed or 0)
    text = _("at least {used} of {allowed}") if volume.at_least else _("{used} of {allowed}")
    return text.format(used=used, allowed=allowed)
