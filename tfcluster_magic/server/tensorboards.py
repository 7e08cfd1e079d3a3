"""The TensorBoards of one server, and the folders that they may show.

Pages can show only folders below the server's root, the log folder, and output folders of runs.
Concurrent requests for a board start it once. Boards that this server started end with the server,
even if it is killed. A board's address is known only here and never taken from a request.
`tensorboard/process.py` owns the processes.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import Conflict, NotAllowed, NotFound
from ..i18n import _
from ..runs.manager import ClusterManager
from ..tensorboard.child_process import has_event_files, start_time
from ..tensorboard.process import START_TIMEOUT, Board
from ..tensorboard.views import View
from .worker import Worker

OPEN_WITHIN = START_TIMEOUT + 15.0
STOP_WITHIN = 15.0
CLOSE_WITHIN = 5.0
A_MOMENT = 3.0


@dataclass(frozen=True)
class _RunningBoard:
    board: Board
    began: str | None
    seen: float

    @property
    def lives(self) -> bool:
        return self.began is not None and start_time(self.board.pid) == self.began


class ServerBoards:
    """The boards that pages of this server show; used only from the server's loop.

    Args:
        manager: the cluster manager, whose `boards` are all TensorBoards of this user.
        worker: runs calls that may block.
        files_root: returns the root of the file browser; None if it shows no files.
    """

    def __init__(
        self, manager: ClusterManager, worker: Worker, files_root: Callable[[], Path | None]
    ) -> None:
        self._manager, self._worker, self._files_root = manager, worker, files_root
        self._living: dict[str, _RunningBoard] = {}
        self._opening: dict[str, asyncio.Task[Board]] = {}
        self._started: dict[str, Board] = {}
        self._stopped: set[str] = set()
        self._early: set[str] = set()

    async def open(
        self, refs: tuple[str, ...], folder: str | None, *, wait: bool = True
    ) -> tuple[View, bool]:
        """Return a view, and whether its board is running. The view shows these runs or this
        folder; if both are missing, it shows all runs.

        Without `wait`, a board that does not run is only started.

        Raises:
            NotAllowed: the folder may not be shown.
            NotFound: there is no such run or folder.
            TFClusterError: TensorBoard does not start; the message has the last lines of its
                output.
        """
        view = await self._worker.call(self._view, refs, folder)
        if not wait and await self.running_board(view.id) is None:
            self.begin(view.id)
            # Without event files, the board will answer with a page of our own, so do not show
            # TensorBoard's page.
            if await self._worker.call(has_event_files, view.folder):
                self._early.add(view.id)
            return view, False
        await asyncio.shield(self.begin(view.id))
        return view, True

    def is_early(self, its_id: str) -> bool:
        """Return whether the board is starting while a tab already shows its page."""
        return its_id in self._early

    def begin(self, its_id: str) -> asyncio.Task[Board]:
        """Start the board if it is not running; concurrent callers share one task."""
        self._stopped.discard(its_id)
        if its_id not in self._opening:
            task = asyncio.get_running_loop().create_task(self._open(its_id))
            self._opening[its_id] = task
            task.add_done_callback(lambda done: self._opened(its_id, done))
        return self._opening[its_id]

    def just_opened(self, its_id: str) -> Board | None:
        """Return the board if it answered a moment ago, for the tab that is loading it."""
        living = self._living.get(its_id)
        if living is None or time.monotonic() > living.seen + A_MOMENT or not living.lives:
            return None
        return living.board

    async def running_board(self, its_id: str) -> Board | None:
        """Return the board if it is running, whoever started it. Raises NotFound."""
        living = self._living.get(its_id)
        if living is not None and living.lives:
            return living.board
        return await self._worker.call(self._found_running, its_id)

    async def reach(self, its_id: str) -> Board:
        """Return the board; start it if it is not running, for example after half an hour without
        use.

        Raises:
            Conflict: a user stopped the board; only its page starts it again.
            TFClusterError: TensorBoard does not start.
        """
        living = self._living.get(its_id)
        if living is not None and living.lives:
            return living.board
        if its_id in self._stopped:
            raise Conflict(_("this TensorBoard was stopped; reload its page to start it again"))
        return await asyncio.shield(self.begin(its_id))

    def lost(self, its_id: str) -> None:
        """Forget a board that does not answer."""
        self._living.pop(its_id, None)

    async def stop(self, its_id: str) -> None:
        """Stop a board, whoever started it. Raises NotFound."""
        view = await self._worker.call(self._found, its_id)
        while (opening := self._opening.get(its_id)) is not None:  # otherwise it would start later
            await asyncio.wait([opening])
            await asyncio.sleep(0)  # lets `_opened` record the board
        self._stopped.add(its_id)
        self._living.pop(its_id, None)
        self._started.pop(its_id, None)
        await self._worker.call(self._stop, view.folder, within=STOP_WITHIN)

    async def running(self) -> list[View]:
        """Return the views whose boards run."""
        return await self._worker.call(self._running)

    async def close(self) -> None:
        """Stop the boards that this server started. A board that another process has restarted
        since then keeps running.
        """
        if self._opening:  # a starting board would outlive the server
            await asyncio.wait(self._opening.values(), timeout=CLOSE_WITHIN)
            await asyncio.sleep(0)  # lets `_opened` record the board
        mine = {board.pid: board for board in self._started.values()}
        self._started.clear()
        if mine:
            await self._worker.call(self._end, mine, within=STOP_WITHIN)

    # -- in the loop -------------------------------------------------------------------------------

    async def _open(self, its_id: str) -> Board:
        return await self._worker.call(self._opened_view, its_id, within=OPEN_WITHIN)

    def _opened(self, its_id: str, done: asyncio.Task[Board]) -> None:
        self._opening.pop(its_id, None)
        self._early.discard(its_id)
        if done.cancelled() or done.exception() is not None:
            self._living.pop(its_id, None)
            return
        board = done.result()
        self._living[its_id] = _RunningBoard(board, start_time(board.pid), time.monotonic())
        if board.fresh:
            self._started[its_id] = board

    # -- in a thread -------------------------------------------------------------------------------

    def _view(self, refs: tuple[str, ...], folder: str | None) -> View:
        boards = self._manager.boards
        if folder is None:
            return boards.view(*refs)
        return boards.folder_view(self._allowed(folder), folder)

    def _stop(self, folder: str) -> None:
        self._manager.boards.stop([folder])

    def _found(self, its_id: str) -> View:
        view = self._manager.boards.find(its_id)
        if view is None:
            raise NotFound(
                _(
                    "this TensorBoard is no longer known; open it again from the "
                    "list of runs, or from the folder's menu in the file browser"
                )
            )
        return view

    def _opened_view(self, its_id: str) -> Board:
        view = self._found(its_id)
        if not view.runs:  # a view of runs needs no check: its folder has only links that we made
            self._allowed(view.folder)
        return self._manager.boards.open(view, until=os.getpid())

    def _found_running(self, its_id: str) -> Board | None:
        folder = self._found(its_id).folder
        boards = self._manager.boards.living()
        return next((board for board in boards if board.folder == folder), None)

    def _running(self) -> list[View]:
        boards = self._manager.boards
        folders = {board.folder for board in boards.living()}
        return [view for view in boards.views() if view.folder in folders]

    def _end(self, mine: dict[int, Board]) -> None:
        boards = self._manager.boards
        boards.stop(board.folder for board in boards.living() if board.pid in mine)

    def _allowed(self, folder: str) -> str:
        """Return the real path of a folder that may be shown; `folder` is relative to the server's
        root.
        """
        contents = self._files_root()
        try:
            real = os.path.realpath(os.path.join(contents or "/", folder))
            os.fsencode(real)
            if any(_within(real, root) for root in self._roots(contents)):
                return real
        except ValueError:  # the path has a NUL or a lone surrogate
            pass
        log_root = self._manager.boards.log_root
        raise NotAllowed(
            _(
                "TensorBoard may not show {folder}: use a folder below {root} (this"
                " server's files) or {log_root} (the log folder), or an output "
                "folder of a run; links are followed"
            ).format(folder=ascii(folder), root=contents or "-", log_root=log_root)
        )

    def _roots(self, contents: Path | None) -> Iterator[str]:
        if contents is not None:
            yield str(contents)
        if log_root := self._manager.boards.log_root:
            yield log_root
        yield from self._manager.boards.outputs()


def _within(path: str, root: str) -> bool:
    return os.path.commonpath((path, real := os.path.realpath(root))) == real
