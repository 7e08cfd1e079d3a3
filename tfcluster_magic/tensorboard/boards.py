"""TensorBoards of one backend's runs: what they show, starting and ending them.

Promises that every face asks for boards in the same words and shares their processes. Owns the way
from runs to folders; `tensorboard_view.py` remembers what is shown, `tensorboard.py` the processes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from ..backends.base import Backend
from ..errors import NotFound
from ..i18n import _
from . import process, views
from .registry import Board
from .views import View


class Boards:
    """The door to TensorBoards; `state_dir` is the environment's when None."""

    def __init__(self, backend: Backend, state_dir: str | None = None) -> None:
        self._backend = backend
        self._state_dir = state_dir

    def view(self, *refs: str) -> View:
        """What a board on these runs shows, or one on all runs. Starts nothing.

        Raises:
            NotFound: a run is not there, or its output is not, or not on this machine.
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
            return views.of_runs(folders, state_dir=self._state_dir)
        return views.of_folder(root, state_dir=self._state_dir)

    def folder_view(self, folder: str, asked: str) -> View:
        """What a board on `folder` shows, which was asked for as `asked`."""
        return views.of_folder(folder, asked=asked, state_dir=self._state_dir)

    def find(self, its_id: str) -> View | None:
        """The view that has this id, if it is remembered."""
        return views.find(its_id, state_dir=self._state_dir)

    def views(self) -> list[View]:
        """Every view that is remembered, the latest used first."""
        return views.remembered(state_dir=self._state_dir)

    def open(self, view: View) -> Board:
        """The board of a view, started when it does not run. Raises as `tensorboard.open`."""
        return process.open(
            view.folder,
            exact=True,
            shown=view.shown,
            log_root=self.log_root,
            state_dir=self._state_dir,
        )

    def living(self) -> list[Board]:
        """The boards that run, of whatever folder."""
        return process.list_boards(self._state_dir)

    def stop(self, folders: Iterable[str] | None = None) -> list[str]:
        """End the boards on these folders, or every one of this user; say what they showed."""
        wanted = {board.folder for board in self.living()} if folders is None else set(folders)
        shown = {view.folder: view.shown for view in self.views()}
        ended = [f for f in sorted(wanted) if process.stop(f, state_dir=self._state_dir)]
        return [shown.get(folder, folder) for folder in ended]

    @cached_property
    def log_root(self) -> str:
        """The folder of all runs' output; asked once, for where it is does not change."""
        return self._backend.options().log_dir

    def outputs(self) -> list[str]:
        """The output folders of all runs."""
        paths = (run.status.paths.get("output") for run in self._backend.list())
        return [path for path in paths if path]
