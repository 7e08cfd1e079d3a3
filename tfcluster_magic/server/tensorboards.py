"""TensorBoards of one server: the routes, which folders may be shown, and the boards it started.

Promises that a page only ever gets at folders below the server's root, the log folder and output
folders of runs; that many who want the same board start it once; and that the boards which this
server started end with it. Which board is meant, and where it listens, is known here alone: never
from a request. Owns no process; `tensorboard.py` does.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from ..errors import Conflict, NotAllowed, NotFound, UsageError
from ..i18n import _
from ..spec import Model
from ..tensorboard.process import START_TIMEOUT
from ..tensorboard.registry import Board
from ..tensorboard.server import started
from ..tensorboard.views import View
from .base import TFClusterHandler, guarded
from .files import files_root

if TYPE_CHECKING:
    from .service import Service

PAGE = "tfcluster/tensorboard"
"""Below base_url and followed by an id: where `proxy.py` serves a board."""
OPEN_WITHIN = START_TIMEOUT + 15.0
STOP_WITHIN = 15.0
CLOSE_WITHIN = 5.0
A_MOMENT = 3.0


@dataclass(frozen=True)
class _Living:
    board: Board
    began: str | None
    seen: float

    @property
    def lives(self) -> bool:
        return self.began is not None and started(self.board.pid) == self.began


class ServerBoards:
    """The boards that pages of this server see; used from its loop only."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._living: dict[str, _Living] = {}
        self._opening: dict[str, asyncio.Task[Board]] = {}
        self._started: dict[str, Board] = {}
        self._stopped: set[str] = set()
        self._early: set[str] = set()

    async def open(
        self, refs: tuple[str, ...], folder: str | None, *, wait: bool = True
    ) -> tuple[View, bool]:
        """The view of these runs, of a folder, or of all runs; and whether its board runs.

        Unless told to `wait`, one that has to be started first is only begun with.

        Raises:
            NotAllowed: the folder is none that may be shown.
            NotFound: there is no such run or folder.
            TFClusterError: TensorBoard does not start; its last lines say why.
        """
        view = await self._service.worker.call(self._view, refs, folder)
        if not wait and await self.running_board(view.id) is None:
            self.begin(view.id)
            self._early.add(view.id)
            return view, False
        await asyncio.shield(self.begin(view.id))
        return view, True

    def is_early(self, its_id: str) -> bool:
        """Whether the board is being started for a tab that shows its page meanwhile."""
        return its_id in self._early

    def begin(self, its_id: str) -> asyncio.Task[Board]:
        """See to it that the board runs and answers; one effort for all who ask meanwhile."""
        self._stopped.discard(its_id)
        if its_id not in self._opening:
            task = asyncio.get_running_loop().create_task(self._open(its_id))
            self._opening[its_id] = task
            task.add_done_callback(lambda done: self._opened(its_id, done))
        return self._opening[its_id]

    def just_opened(self, its_id: str) -> Board | None:
        """The board, if it was seen to answer a moment ago: the tab that asked for it loads it."""
        living = self._living.get(its_id)
        if living is None or time.monotonic() > living.seen + A_MOMENT or not living.lives:
            return None
        return living.board

    async def running_board(self, its_id: str) -> Board | None:
        """The board if it runs, whoever started it. Raises NotFound."""
        living = self._living.get(its_id)
        if living is not None and living.lives:
            return living.board
        return await self._service.worker.call(self._found_running, its_id)

    async def reach(self, its_id: str) -> Board:
        """The board, started when it does not run, as after half an hour without use.

        Raises:
            Conflict: it was ended on purpose: only its page starts it again.
            TFClusterError: as `open`.
        """
        living = self._living.get(its_id)
        if living is not None and living.lives:
            return living.board
        if its_id in self._stopped:
            raise Conflict(_("this TensorBoard was stopped; reload its page to start it again"))
        return await asyncio.shield(self.begin(its_id))

    def lost(self, its_id: str) -> None:
        """Somebody found that it does not answer."""
        self._living.pop(its_id, None)

    async def stop(self, its_id: str) -> None:
        """End a board, whoever started it. Raises NotFound."""
        view = await self._service.worker.call(self._found, its_id)
        while (opening := self._opening.get(its_id)) is not None:  # else it would come up after
            await asyncio.wait([opening])
            await asyncio.sleep(0)  # `_opened` is called
        self._stopped.add(its_id)
        self._living.pop(its_id, None)
        self._started.pop(its_id, None)
        await self._service.worker.call(self._stop, view.folder, within=STOP_WITHIN)

    async def running(self) -> list[View]:
        """The views whose boards run."""
        return await self._service.worker.call(self._running)

    async def close(self) -> None:
        """End the boards that this server started and that nobody has started anew since."""
        if self._opening:  # what is being started would outlive us
            await asyncio.wait(self._opening.values(), timeout=CLOSE_WITHIN)
            await asyncio.sleep(0)  # `_opened` is called
        mine = {board.pid: board for board in self._started.values()}
        self._started.clear()
        if mine:
            await self._service.worker.call(self._end, mine, within=STOP_WITHIN)

    # -- in the loop -------------------------------------------------------------------------------

    async def _open(self, its_id: str) -> Board:
        worker = self._service.worker
        board: Board = await worker.call(self._opened_view, its_id, within=OPEN_WITHIN)
        return board

    def _opened(self, its_id: str, done: asyncio.Task[Board]) -> None:
        self._opening.pop(its_id, None)
        self._early.discard(its_id)
        if done.cancelled() or done.exception() is not None:
            self._living.pop(its_id, None)
            return
        board = done.result()
        self._living[its_id] = _Living(board, started(board.pid), time.monotonic())
        if board.fresh:
            self._started[its_id] = board

    # -- in a thread -------------------------------------------------------------------------------

    def _view(self, refs: tuple[str, ...], folder: str | None) -> View:
        boards = self._service.manager.boards
        if folder is None:
            return boards.view(*refs)
        return boards.folder_view(self._allowed(folder), folder)

    def _stop(self, folder: str) -> None:
        self._service.manager.boards.stop([folder])

    def _found(self, its_id: str) -> View:
        view = self._service.manager.boards.find(its_id)
        if view is None:
            raise NotFound(
                _(
                    "this TensorBoard is not known any more; open it again from the list of runs, "
                    "or from the folder's menu in the file browser"
                )
            )
        return view

    def _opened_view(self, its_id: str) -> Board:
        view = self._found(its_id)
        if not view.runs:  # runs are links of ours, to output folders
            self._allowed(view.folder)
        return self._service.manager.boards.open(view)

    def _found_running(self, its_id: str) -> Board | None:
        folder = self._found(its_id).folder
        boards = self._service.manager.boards.living()
        return next((board for board in boards if board.folder == folder), None)

    def _running(self) -> list[View]:
        boards = self._service.manager.boards
        folders = {board.folder for board in boards.living()}
        return [view for view in boards.views() if view.folder in folders]

    def _end(self, mine: dict[int, Board]) -> None:
        boards = self._service.manager.boards
        boards.stop(board.folder for board in boards.living() if board.pid in mine)

    def _allowed(self, folder: str) -> str:
        """The folder that is meant, without links; a path is one below the server's root."""
        contents = files_root(self._service.serverapp)
        try:
            real = os.path.realpath(os.path.join(contents or "/", folder))
            os.fsencode(real)
            if any(_within(real, root) for root in self._roots(contents)):
                return real
        except ValueError:  # NUL, half a character
            pass
        log_root = self._service.manager.boards.log_root
        raise NotAllowed(
            _(
                "TensorBoard does not show {folder}: it shows folders below {root} (where this "
                "server's files are) and below {log_root} (the log folder), and output folders of "
                "runs, links followed"
            ).format(folder=ascii(folder), root=contents or "-", log_root=log_root)
        )

    def _roots(self, contents: Path | None) -> Iterator[str]:
        if contents is not None:
            yield str(contents)
        if log_root := self._service.manager.boards.log_root:
            yield log_root
        yield from self._service.manager.boards.outputs()


def _within(path: str, root: str) -> bool:
    return os.path.commonpath((path, real := os.path.realpath(root))) == real


class BoardBody(Model, frozen=True):
    """What `POST /tensorboards` takes: runs, or a folder, or nothing for all runs."""

    refs: Annotated[tuple[str, ...], Meta(max_length=100)] = ()
    folder: Annotated[str, Meta(max_length=4096)] | None = None
    wait: bool = True


def told(view: View, running: bool = True) -> dict[str, Any]:
    """A view as the page gets it; `path` is below the server's base_url."""
    return {
        "id": view.id,
        "path": f"{PAGE}/{view.id}/",
        "title": view.title,
        "refs": list(view.runs),
        "folder": view.asked,
        "running": running,
    }


class BoardsHandler(TFClusterHandler):
    """`/tensorboards`."""

    @guarded
    async def get(self) -> None:
        """The boards that run."""
        views = await self.service.boards.running()
        self.reply({"tensorboards": [told(view) for view in views]})

    @guarded
    async def post(self) -> None:
        """Open the board on runs or a folder: the same one each time."""
        wish = self.read(BoardBody)
        if wish.refs and wish.folder is not None:
            raise UsageError(_("name runs or a folder, not both"))
        view, running = await self.service.boards.open(wish.refs, wish.folder, wait=wish.wait)
        self.reply(told(view, running), 201 if running else 202)


class BoardHandler(TFClusterHandler):
    """`/tensorboards/{id}`."""

    @guarded
    async def delete(self, its_id: str) -> None:
        """End a board; what it showed stays, and its page starts it again."""
        await self.service.boards.stop(its_id)
        self.set_status(204)
        self.finish()


ROUTES = [(r"tensorboards", BoardsHandler), (r"tensorboards/([0-9a-f]{16})", BoardHandler)]
