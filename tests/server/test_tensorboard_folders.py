"""The folders that a server's TensorBoards may show, directly or through links and stored views."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.server.calls import Ask
from support.server.real_boards import loaded, logs, no_board_is_left, opened

from tfcluster_magic.server.service import Service
from tfcluster_magic.server.tensorboards import ServerBoards
from tfcluster_magic.tensorboard import process

__all__ = ["no_board_is_left"]  # a fixture used by the tests below

OUTSIDE = [
    "..",
    "../outside",
    "logs/../../outside",
    "logs/./.././../outside",
    "/etc",
    "//etc",
    "/proc/self/cwd/../etc",
    "{outside}",
    "link",
    "link/..",
    "link/deeper",
    "chain",
    "logs/\0",
    "\0",
    "logs/../../outside\0.png",
]
MISSING = [
    "%2e%2e",
    "%2e%2e%2foutside",
    "..%2foutside",
    "logs%2f..%2f..%2foutside",
    "..\\outside",
    "~",
    "~root",
    "~/../outside",
    "file:///etc",
    "logs/1/none",
    "x" * 300,
]


async def test_folders_outside_are_refused(ask: Ask, jp_root_dir: Path) -> None:
    """A folder outside of the allowed folders is refused in any spelling; the message says what is
    allowed, and no board starts.
    """
    outside = logs(jp_root_dir.parent / "outside")
    logs(jp_root_dir / "logs")
    (outside / "deeper").mkdir()
    (jp_root_dir / "link").symlink_to(outside)
    (jp_root_dir / "chain").symlink_to("link")
    for folder in OUTSIDE:
        named = folder.replace("{outside}", str(outside))
        answer = await ask("api/tensorboards", "POST", {"folder": named})
        told = json.loads(answer.body)
        assert (answer.code, told["title"]) == (403, "NotAllowed"), folder
        for allowed in (str(jp_root_dir), "the log folder", "an output folder of a run"):
            assert allowed in told["detail"], folder
        assert process.list_boards() == [], folder


async def test_names_are_taken_as_they_are(ask: Ask, jp_root_dir: Path) -> None:
    """Paths are neither decoded nor expanded, so a folder with an encoded path, or with `~`, does
    not exist.
    """
    logs(jp_root_dir.parent / "outside")
    logs(jp_root_dir / "logs")
    for folder in MISSING:
        answer = await ask("api/tensorboards", "POST", {"folder": folder})
        assert answer.code == 404, folder
        assert "cannot show" in json.loads(answer.body)["detail"], folder
        assert process.list_boards() == [], folder


async def test_wishes_that_are_none(ask: Ask) -> None:
    """A request that cannot be carried out gets a problem response that says so."""
    wishes: list[tuple[Any, int]] = [
        ({"folder": 1}, 422),
        ({"folder": "x" * 5000}, 422),
        ({"refs": "one"}, 422),
        ({"refs": ["../.."]}, 404),
        ({"refs": ["nobody"]}, 404),
        ({"refs": ["one"], "folder": "."}, 400),
        ({"url": "http://127.0.0.1:1/"}, 422),
        ([], 400),
    ]
    for wish, code in wishes:
        answer = await ask("api/tensorboards", "POST", wish)
        assert answer.code == code, (wish, answer.body)
        assert answer.headers["Content-Type"] == "application/problem+json", wish


async def test_links_to_allowed_folders(ask: Ask, jp_root_dir: Path, service: Service) -> None:
    """Links that lead to the log folder, or to another folder below the root, are followed."""
    logs(Path(service.manager.boards.log_root) / "digits")
    (jp_root_dir / "runs").symlink_to(service.manager.boards.log_root)
    logs(jp_root_dir / "here")
    (jp_root_dir / "there").symlink_to("here")
    board = await opened(ask, folder="runs/digits")
    assert board["title"] == "digits"
    first, second = await opened(ask, folder="here"), await opened(ask, folder="there")
    assert first["id"] == second["id"]
    assert (await opened(ask, folder="runs"))["id"] == (await opened(ask))["id"]


async def test_a_link_that_changes_after_the_check(
    ask: Ask, jp_root_dir: Path, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a folder becomes a link between the check and its use, the link is not followed."""
    outside = logs(jp_root_dir.parent / "outside", "secret")
    inside = logs(jp_root_dir / "logs")
    check = ServerBoards._allowed

    def checked_then_swapped(self: ServerBoards, folder: str) -> str:
        found = check(self, folder)
        if not inside.is_symlink():
            inside.rename(jp_root_dir / "old")
            inside.symlink_to(outside)
        return found

    monkeypatch.setattr(ServerBoards, "_allowed", checked_then_swapped)
    answer = await ask("api/tensorboards", "POST", {"folder": "logs"})
    assert answer.code in (403, 404)
    assert process.list_boards() == []


async def test_a_remembered_view_is_checked_again(
    ask: Ask, jp_root_dir: Path, service: Service, tmp_path: Path
) -> None:
    """A view that another server was allowed to open is refused by a server with another root."""
    outside = logs(tmp_path / "elsewhere")
    view = service.manager.boards.folder_view(str(outside), "x")
    answer = await loaded(ask, f"tensorboard/{view.id}/")
    assert answer.code == 403
    assert "may not show" in answer.body.decode()
    assert (await ask(f"tensorboard/{view.id}/data/runs")).code == 403
