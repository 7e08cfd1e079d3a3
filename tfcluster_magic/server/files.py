"""The files that people see in the file browser, as files of this machine. Pure, but for links.

Promises that a path never leads out of the folder that the file browser shows, and that a server
which keeps its contents elsewhere (in a database, say) is not taken for one that shows the disk.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from jupyter_server.services.contents.fileio import FileManagerMixin

from ..errors import InvalidRequest, Problem
from ..i18n import _


def files_root(serverapp: Any) -> Path | None:
    """The folder in which the file browser begins; None when what it shows are no files."""
    contents = serverapp.contents_manager
    if not isinstance(contents, FileManagerMixin):
        return None  # its root_dir, if it has one, is that of the disk
    return Path(os.path.abspath(contents.root_dir))  # type: ignore[attr-defined]


def inside(root: Path | None, said: str, field: str) -> Path:
    """The file that the file browser calls `said`: below `root`, whatever links lead out of it.

    A full path is taken, too, when it lies there.

    Raises:
        InvalidRequest: it leads out of the root, or there is none.
    """
    if root is None:
        allowed = _(
            "what the file browser of this server shows are no files of this machine: give a URL, "
            "or use `%tfcluster launch` in a notebook"
        )
        raise InvalidRequest([Problem(field, said, allowed)])
    top = os.path.abspath(root)
    browsed, full = (os.path.normpath(p) for p in (os.path.join(top, said.lstrip("/")), said))
    if os.path.isabs(full) and not os.path.lexists(browsed):
        browsed = full  # as it is written in a shell
    if os.path.commonpath([top, browsed]) == top:
        return Path(browsed)
    allowed = _(
        "a path here begins in {root}, the folder of the file browser; "
        "`%tfcluster launch` in a notebook takes any other"
    ).format(root=top)
    raise InvalidRequest([Problem(field, said, allowed)])
