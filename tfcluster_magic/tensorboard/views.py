"""What a TensorBoard shows: one folder, or runs beside each other, each under its name.

Promises that the same wish has the same id in every process, also after the notebook server was
started again, so that an old tab finds its board. It owns `<state dir>/tensorboard/views/`: a file
for each view, and for runs a folder of links, which TensorBoard follows and names the runs by.
(`--logdir_spec` would turn its data server off, a minute for 50 MB; a filter in the address of a
board on all runs would still read all of them.) It starts and ends nothing, and never asks who may
see a folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from .. import paths, state_files
from ..errors import TFClusterError
from ..i18n import _
from .registry import registry, said

KEPT = 200
"""Views that are remembered, the latest used; a tab of an older one is opened anew."""
_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class View:
    """A wish: `folder` is what TensorBoard is started on, `title` what a tab says.

    `runs` are the names of runs it was asked for, none for all runs or a folder; `asked` is the
    folder as it was asked for.
    """

    id: str
    title: str
    folder: str
    runs: tuple[str, ...] = ()
    asked: str | None = None

    @property
    def shown(self) -> str:
        """Where the data are, as TensorBoard tells it."""
        return self.title if self.runs else self.folder


def of_folder(
    folder: str | os.PathLike[str],
    *,
    asked: str | None = None,
    state_dir: str | os.PathLike[str] | None = None,
) -> View:
    """The view of one folder, remembered."""
    real = os.path.realpath(folder)
    view = View(_id(real), os.path.basename(real) or real, real, (), asked)
    return _remembered(_views(state_dir), view)


def of_runs(folders: Mapping[str, str], *, state_dir: str | os.PathLike[str] | None = None) -> View:
    """The view of these runs, `{"digits-2": its output folder}`, in any order, remembered."""
    named = {name: os.path.realpath(folder) for name, folder in sorted(folders.items())}
    names = tuple(named)
    where = _views(state_dir)
    its_id = _id(*(part for pair in named.items() for part in pair))
    links = where / its_id
    try:
        links.mkdir(mode=0o700, exist_ok=True)
        for name, folder in named.items():
            _link(links / name, folder)
    except OSError as error:
        raise _cannot(links, error) from None
    return _remembered(where, View(its_id, ", ".join(names), os.path.realpath(links), names))


def find(its_id: str, *, state_dir: str | os.PathLike[str] | None = None) -> View | None:
    """The view that has this id, if it is remembered."""
    return _read(_views(state_dir) / f"{its_id}.json") if _ID.fullmatch(its_id) else None


def remembered(*, state_dir: str | os.PathLike[str] | None = None) -> list[View]:
    """Every view, the latest used first."""
    return [view for path in _latest(_views(state_dir)) if (view := _read(path))]


def _id(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _views(state_dir: str | os.PathLike[str] | None) -> Path:
    return paths.private(registry(state_dir) / "views")


def _read(path: Path) -> View | None:
    view = said(path, View)
    if view is None or view.id != path.stem or "\0" in f"{view.folder}{view.asked}":
        return None  # no such file, or not one of ours
    return view


def _own() -> str:
    """The ending of a file that nobody else writes at this moment."""
    return f".{os.getpid()}-{threading.get_ident()}"


def _link(link: Path, folder: str) -> None:
    with contextlib.suppress(OSError):
        if os.readlink(link) == folder:
            return
    fresh = link.with_name(f".{link.name}{_own()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(folder)
    fresh.replace(link)


def _latest(where: Path) -> list[Path]:
    known = []
    for path in where.glob("*.json"):
        with contextlib.suppress(OSError):
            known.append((path.lstat().st_mtime, path))
    return [path for _time, path in sorted(known, reverse=True)]


def _remembered(where: Path, view: View) -> View:
    path = where / f"{view.id}.json"
    try:
        state_files.write(path, json.dumps(asdict(view)).encode())
    except OSError as error:
        raise _cannot(path, error) from None
    for old in _latest(where)[KEPT:]:
        _forget(old)
    return view


def _forget(path: Path) -> None:
    """Remove a view and its links; what is no link, and so not ours, stays."""
    links = path.with_suffix("")
    with contextlib.suppress(OSError):
        for link in filter(Path.is_symlink, links.iterdir()):
            link.unlink()
        links.rmdir()
    with contextlib.suppress(OSError):  # a folder is not ours
        path.unlink()


def _cannot(path: Path, error: OSError) -> TFClusterError:
    return TFClusterError(
        _(
            "cannot write {path}: {why}; make it writable, or name another state folder in "
            "TFCLUSTER_STATE_DIR"
        ).format(path=path, why=error.strerror or error)
    )
