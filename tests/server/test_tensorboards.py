"""Real TensorBoards of a server: how they start, die, restart and end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.polling import wait_until_async
from support.server.calls import Ask
from support.server.real_boards import loaded, logs, no_board_is_left, opened
from support.server.routes import ReadOnly
from traitlets.config import Config

from tfcluster_magic.runs.manager import Until
from tfcluster_magic.server import tensorboard_routes
from tfcluster_magic.server.service import Service, files_root
from tfcluster_magic.server.tensorboards import ServerBoards
from tfcluster_magic.tensorboard import process
from tfcluster_magic.tensorboard.child_process import start_time

__all__ = ["no_board_is_left"]  # a fixture used by the tests below


async def runs_of(ask: Ask, board: dict[str, Any]) -> list[str]:
    """Return the runs that the board shows."""
    answer = await ask(board["path"].removeprefix("tfcluster/") + "data/runs")
    assert answer.code == 200, answer.body
    return json.loads(answer.body)


async def test_a_board_on_a_folder(ask: Ask, jp_root_dir: Path) -> None:
    """A folder has one board, however often it is requested, and its page shows the runs."""
    logs(jp_root_dir / "my logs" / "a")
    first = await opened(ask, folder="my logs")
    assert (first["title"], first["folder"], first["refs"]) == ("my logs", "my logs", [])
    assert await opened(ask, folder="my logs/../my logs/") == {
        **first,
        "folder": "my logs/../my logs/",
    }
    assert len(process.list_boards()) == 1

    async def shown() -> bool:
        return await runs_of(ask, first) == ["a/1"]

    await wait_until_async(shown, "the run is not shown")
    page = await loaded(ask, first["path"].removeprefix("tfcluster/"))
    assert b"<title>TensorBoard</title>" in page.body
    ours, of_the_board = page.headers.get_list("Content-Security-Policy")
    assert ours == "frame-ancestors 'self'"
    assert "script-src" in of_the_board
    listed = json.loads((await ask("api/tensorboards")).body)["tensorboards"]
    assert [board["id"] for board in listed] == [first["id"]]


async def test_boards_on_runs(ask: Ask, service: Service) -> None:
    """One run, several runs and all runs each have a board of their own, which is shared with
    commands in a shell.
    """
    manager = service.manager
    for name in ("one", "two"):
        run = manager.launch(cell="print('x')", name=name, workers=1, ps=0)
        logs(Path(run.status.paths["output"]), "train")
    for name in ("one", "two"):
        manager.wait(name, until=Until.RELEASED)
    single = await opened(ask, refs=["one"])
    assert (single["title"], single["refs"]) == ("one-1", ["one-1"])
    assert manager.tensorboard("one").pid in {b.pid for b in process.list_boards()}
    assert len(process.list_boards()) == 1

    both = await opened(ask, refs=["two-1", "one"])
    assert both["title"] == "one-1, two-1"
    assert (await opened(ask, refs=["one", "two"]))["id"] == both["id"]
    everything = await opened(ask)

    async def shown() -> bool:
        return (
            await runs_of(ask, both) == ["one-1/train", "two-1/train"]
            and await runs_of(ask, everything) == ["one/1/train", "two/1/train"]
            and await runs_of(ask, single) == ["one-1/train"]
        )

    await wait_until_async(shown, "the runs are not shown")


async def test_a_board_that_died_comes_back(ask: Ask, jp_root_dir: Path) -> None:
    """A board that was killed or timed out starts again without a click when its page or its data
    is requested.
    """
    logs(jp_root_dir / "logs")
    board = await opened(ask, folder="logs")
    for path in ("data/runs", ""):
        (found,) = process.list_boards()
        os.kill(found.pid, signal.SIGKILL)
        answer = await loaded(ask, board["path"].removeprefix("tfcluster/") + path)
        assert answer.code == 200
        assert start_time(found.pid) is None


async def test_an_old_tab_after_a_restart_of_the_server(
    ask: Ask, service: Service, jp_root_dir: Path
) -> None:
    """A restarted server knows the boards of the server before it."""
    logs(jp_root_dir / "logs")
    board = await opened(ask, folder="logs")
    await service.boards.close()
    assert process.list_boards() == []
    root = partial(files_root, service.serverapp)
    service.boards = ServerBoards(service.manager, service.worker, root)
    assert (await loaded(ask, board["path"].removeprefix("tfcluster/"))).code == 200


async def test_boards_end_with_the_server_that_started_them(
    ask: Ask, service: Service, jp_root_dir: Path
) -> None:
    """When the server ends, its boards end; boards that existed before the server stay."""
    before = process.open(logs(jp_root_dir / "before"))
    await opened(ask, folder="before")
    await opened(ask, folder=str(logs(jp_root_dir / "mine")))
    assert len(process.list_boards()) == 2
    await service.boards.close()
    assert process.list_boards() == [before]


async def test_a_stopped_board(ask: Ask, jp_root_dir: Path) -> None:
    """Data requests of an open page do not restart a board that was stopped; opening the page again
    does.
    """
    logs(jp_root_dir / "logs")
    board = await opened(ask, folder="logs")
    page = board["path"].removeprefix("tfcluster/")
    assert (await ask(f"api/tensorboards/{board['id']}", "DELETE")).code == 204
    assert process.list_boards() == []
    answer = await ask(page + "data/runs")
    assert (answer.code, json.loads(answer.body)["title"]) == (409, "Conflict")
    assert (await loaded(ask, page)).code == 200
    assert (await ask(page + "data/runs")).code == 200
    assert (await ask(f"api/tensorboards/{'0' * 16}", "DELETE")).code == 404


async def test_many_who_ask_at_once_start_one(ask: Ask, jp_root_dir: Path) -> None:
    """Ten simultaneous requests start one board."""
    logs(jp_root_dir / "logs")
    boards = await asyncio.gather(*(opened(ask, folder="logs") for _ in range(10)))
    assert len({board["id"] for board in boards}) == 1
    assert len(process.list_boards()) == 1


async def test_a_tensorboard_that_does_not_start(
    ask: Ask, jp_root_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The problem response and the page contain TensorBoard's last lines as text."""
    broken = tmp_path / "broken" / "tensorboard"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('<b>boom</b>')")
    monkeypatch.setenv("PYTHONPATH", str(broken.parent))
    logs(jp_root_dir / "logs")
    answer = await ask("api/tensorboards", "POST", {"folder": "logs"})
    assert answer.code == 500
    assert "ImportError: <b>boom</b>" in json.loads(answer.body)["detail"]
    view = tensorboard_id(jp_root_dir / "logs")
    page = (await loaded(ask, f"tensorboard/{view}/")).body.decode()
    assert "ImportError: &lt;b&gt;boom&lt;/b&gt;" in page
    assert "<b>boom" not in page


def tensorboard_id(folder: Path) -> str:
    """Return the id of the board on a folder."""
    from tfcluster_magic.tensorboard.views import view_of_folder

    return view_of_folder(folder).id


async def test_a_slow_start_is_a_page(
    ask: Ask, jp_root_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page of a slow board says that it is starting, and refreshes by itself."""
    logs(jp_root_dir / "logs")
    monkeypatch.setattr(tensorboard_routes, "PATIENCE", 0.0)
    page = f"tensorboard/{tensorboard_id(jp_root_dir / 'logs')}/"
    answer = await ask(page)
    assert answer.code == 202
    assert b"is starting" in answer.body
    assert b'http-equiv="refresh" content="1"' in answer.body
    monkeypatch.setattr(tensorboard_routes, "PATIENCE", 60.0)
    assert (await ask(page)).code == 200


async def test_a_board_that_is_stopped_while_it_starts(
    ask: Ask, service: Service, jp_root_dir: Path
) -> None:
    """A board that is stopped while it starts stays stopped."""
    folder = logs(jp_root_dir / "logs")
    its_id = service.manager.boards.folder_view(str(folder), "logs").id
    opening = asyncio.ensure_future(ask("api/tensorboards", "POST", {"folder": "logs"}))

    async def starts() -> bool:
        return its_id in service.boards._opening

    await wait_until_async(starts, "it does not start")
    assert (await ask(f"api/tensorboards/{its_id}", "DELETE")).code == 204
    assert (await opening).code == 201
    assert process.list_boards() == []


class TestSomebodyWhoMayOnlyLook:
    """The server's Authorizer allows `read` on `tfcluster` and nothing else."""

    @pytest.fixture
    def jp_server_config(self) -> Config:
        """Configure a server with that Authorizer."""
        return Config(
            {
                "ServerApp": {
                    "jpserver_extensions": {"tfcluster_magic.server": True},
                    "authorizer_class": ReadOnly,
                }
            }
        )

    async def test_a_board_is_seen_and_not_started(
        self, ask: Ask, service: Service, jp_root_dir: Path
    ) -> None:
        """The page of a board that is not running says so; a running board shows all its data."""
        folder = logs(jp_root_dir / "logs")
        view = service.manager.boards.folder_view(str(folder), "logs")
        page = f"tensorboard/{view.id}/"
        for path in (page, f"{page}data/runs"):
            refused = await ask(path)
            assert refused.code == 409
            assert "is not running, and you may not start it" in refused.body.decode()
        assert process.list_boards() == []
        await asyncio.to_thread(service.manager.boards.open, view)
        assert (await ask(page)).code == 200
        read = await ask(f"{page}data/plugin/timeseries/timeSeries", "POST", [])
        assert read.code not in (403, 409)
        assert (await ask(f"api/tensorboards/{view.id}", "DELETE")).code == 403
