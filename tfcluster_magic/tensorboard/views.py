"""Views of a TensorBoard: one folder, or several runs under their names; and the TensorBoards of a
backend's runs.

A view has an id that depends only on what it shows. The id is the same in every process, even after
a restart of the notebook server, so that an old tab finds its board. The folder `<state
dir>/tensorboard/views/` has a file for each view. A view of runs also has a folder with links to
the runs' output, which TensorBoard follows and whose names it shows. TensorBoard's option
`--logdir_spec` cannot replace the links: it turns off the data server, and loading 50 MB then takes
a minute. A board for all runs whose address has a filter cannot replace them either: it would still
read the files of all runs. Views do not check who may see a folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from .. import paths, state_files
from ..backends.base import Backend
from ..errors import NotFound, TFClusterError
from ..i18n import _
from . import process
from .process import Board, read_file, registry_folder

MOST_VIEWS = 200
"""Maximum number of stored views; only the most recently used ones are kept. After a view was
removed, its tab must be opened anew.
"""
_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class View:
    """A request for a TensorBoard: `folder` is the folder to show, `title` the title of the tab.
    `runs` are the requested runs; empty for all runs or a folder. `asked` is the folder as the user
    specified it.
    """

    id: str
    title: str
    folder: str
    runs: tuple[str, ...] = ()
    asked: str | None = None

    @property
    def shown(self) -> str:
        """The location of the data that TensorBoard shows."""
        return self.title if self.runs else self.folder


def view_of_folder(
    folder: str | os.PathLike[str],
    *,
    asked: str | None = None,
    state_dir: str | os.PathLike[str] | None = None,
) -> View:
    """Return the view of one folder, and store it."""
    real = os.path.realpath(folder)
    view = View(_view_id(real), os.path.basename(real) or real, real, (), asked)
    return _store_view(paths.private(_views_folder(state_dir)), view)


def view_of_runs(
    folders: Mapping[str, str], *, state_dir: str | os.PathLike[str] | None = None
) -> View:
    """Store and return the view of runs; `folders` are their output folders by name, in any
    order.
    """
    named = {name: os.path.realpath(folder) for name, folder in sorted(folders.items())}
    names = tuple(named)
    where = paths.private(_views_folder(state_dir))
    its_id = _view_id(*(part for pair in named.items() for part in pair))
    links = where / its_id
    try:
        links.mkdir(mode=0o700, exist_ok=True)
        for name, folder in named.items():
            _link(links / name, folder)
    except OSError as error:
        raise _write_error(links, error) from None
    return _store_view(where, View(its_id, ", ".join(names), os.path.realpath(links), names))


def find_view(its_id: str, *, state_dir: str | os.PathLike[str] | None = None) -> View | None:
    """Return the stored view with this id; None if there is none."""
    return (
        _read_view(_views_folder(state_dir) / f"{its_id}.json") if _ID.fullmatch(its_id) else None
    )


def stored_views(*, state_dir: str | os.PathLike[str] | None = None) -> list[View]:
    """Return every stored view, the latest used first."""
    return [view for path in _newest_files(_views_folder(state_dir)) if (view := _read_view(path))]


def _view_id(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _views_folder(state_dir: str | os.PathLike[str] | None) -> Path:
    return registry_folder(state_dir) / "views"


def _read_view(path: Path) -> View | None:
    view = read_file(path, View)
    if view is None or view.id != path.stem or "\0" in f"{view.folder}{view.asked}":
        return None  # no such file, or not a view
    return view


def _unique_suffix() -> str:
    """Return a file suffix that no other thread uses at this moment."""
    return f".{os.getpid()}-{threading.get_ident()}"


def _link(link: Path, folder: str) -> None:
    with contextlib.suppress(OSError):
        if os.readlink(link) == folder:
            return
    fresh = link.with_name(f".{link.name}{_unique_suffix()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(folder)
    fresh.replace(link)


def _newest_files(where: Path) -> list[Path]:
    known = []
    for path in where.glob("*.json"):
        with contextlib.suppress(OSError):
            known.append((path.lstat().st_mtime, path))
    return [path for _time, path in sorted(known, reverse=True)]


def _store_view(where: Path, view: View) -> View:
    path = where / f"{view.id}.json"
    try:
        state_files.write(path, json.dumps(asdict(view)).encode())
    except OSError as error:
        raise _write_error(path, error) from None
    for old in _newest_files(where)[MOST_VIEWS:]:
        _remove_view(old)
    return view


def _remove_view(path: Path) -> None:
    """Remove a view and its links. A file in its folder that is not a link is kept, because this
    module did not make it.
    """
    links = path.with_suffix("")
    with contextlib.suppress(OSError):
        for link in filter(Path.is_symlink, links.iterdir()):
            link.unlink()
        links.rmdir()
    with contextlib.suppress(OSError):  # fails for a folder in the file's place, which is not ours
        path.unlink()


def _write_error(path: Path, error: OSError) -> TFClusterError:
    return TFClusterError(
        _(
            "cannot write {path}: {why}; make it writable, or name another state folder in "
            "TFCLUSTER_STATE_DIR"
        ).format(path=path, why=error.strerror or error)
    )


# -- TensorBoards of one backend's runs ------------------------------------------------------------


class TensorBoards:
    """The TensorBoards of a backend's runs. If `state_dir` is None, the state folder of the
    environment is used.
    """

    def __init__(self, backend: Backend, state_dir: str | None = None) -> None:
        self._backend = backend
        self._state_dir = state_dir

    def view(self, *refs: str) -> View:
        """Return the view of these runs, or of all runs without refs. Starts nothing.

        Raises:
            NotFound: a run does not exist, its output does not exist, or its output is not on this
                machine.
        """
        folders = {}
        for run in map(self._backend.get, refs):
            if not (output := run.status.paths.get("output")):
                raise NotFound(_("{ref} has no output folder yet").format(ref=run.metadata.name))
            folders[run.metadata.name] = output
        root = "" if folders else self.log_root
        for folder in folders.values() or [root]:
            if why := self._backend.unseen(folder):
                raise NotFound(why)
        if folders:
            return view_of_runs(folders, state_dir=self._state_dir)
        return view_of_folder(root, state_dir=self._state_dir)

    def folder_view(self, folder: str, asked: str) -> View:
        """Return the view of `folder`, which was requested as `asked`."""
        return view_of_folder(folder, asked=asked, state_dir=self._state_dir)

    def find(self, its_id: str) -> View | None:
        """Return the stored view with this id; None if there is none."""
        return find_view(its_id, state_dir=self._state_dir)

    def views(self) -> list[View]:
        """Return every stored view, the latest used first."""
        return stored_views(state_dir=self._state_dir)

    def open(self, view: View, until: int | None = None) -> Board:
        """Return the board of a view, started if necessary; a new one ends with the process
        `until`. Raises the errors of `tensorboard.open`.
        """
        return process.open(
            view.folder,
            exact=True,
            shown=view.shown,
            looked_at=self.looked_at(view),
            log_root=self.log_root,
            state_dir=self._state_dir,
            until=until,
        )

    def looked_at(self, view: View) -> list[str]:
        """Return the folders of a view as users know them; for a view of runs, the targets of its
        links.
        """
        if not view.runs:
            return [view.folder]
        return [os.path.realpath(os.path.join(view.folder, name)) for name in view.runs]

    def living(self) -> list[Board]:
        """Return the running boards, of any folder."""
        return process.list_boards(self._state_dir)

    def stop(self, folders: Iterable[str] | None = None) -> list[str]:
        """End the boards on these folders, or, without `folders`, all boards of this user. Return
        the locations of the data that the ended boards showed.
        """
        wanted = {board.folder for board in self.living()} if folders is None else set(folders)
        shown = {view.folder: view.shown for view in self.views()}
        ended = [f for f in sorted(wanted) if process.stop(f, state_dir=self._state_dir)]
        return [shown.get(folder, folder) for folder in ended]

    def forget(self, name: str, output: str) -> None:
        """End the boards that show nothing but the deleted output of a run, and forget their views,
        so that a tab that is still open does not start them again.
        """
        where, gone = _views_folder(self._state_dir), os.path.realpath(output)
        for view in self.views():
            if view.runs == (name,) or view.folder == gone or view.folder.startswith(f"{gone}/"):
                process.stop(view.folder, state_dir=self._state_dir)
                _remove_view(where / f"{view.id}.json")

    @cached_property
    def log_root(self) -> str:
        """The folder of all runs' output; it does not change, so it is read once."""
        return self._backend.options().log_dir

    def outputs(self) -> list[str]:
        """Return the output folders of all runs."""
        paths = (run.status.paths.get("output") for run in self._backend.list())
        return [path for path in paths if path]
