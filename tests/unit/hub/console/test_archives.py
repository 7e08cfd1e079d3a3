"""Archives of users' data: their content, and the state after failures."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from support.archived_files import workspace

from tfcluster_magic.errors import Conflict, NotFound
from tfcluster_magic.hub.console.archives import Archive, Archives
from tfcluster_magic.hub.console.packer import pack

__all__ = ["workspace"]  # a fixture used by the tests below


async def nothing() -> None:
    """Do nothing; stands for ending the user's runs."""


async def fine(detail: str) -> None:
    """Do nothing; stands for the step after packing."""


def archived(
    archives: Archives, after: Callable[[str], Awaitable[None]] = fine
) -> tuple[Archive, list[Archive]]:
    """Make an archive of Ada's data; return its final state and the states in between."""

    async def whole() -> tuple[Archive, list[Archive]]:
        made, seen = archives.begin("ada", nothing, after), []
        deadline = time.monotonic() + 90
        while True:
            now = next(one for one in archives.list() if one.file == made.file)
            if now.state != "packing":
                return now, seen
            seen.append(now)
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    return asyncio.run(whole())


def of_folder(folder: Path) -> Callable[[str, int, Callable[[str], None]], Awaitable[None]]:
    """Return a function that packs a folder."""

    async def packs(_user: str, out: int, tell: Callable[[str], None]) -> None:
        tell("its image is being fetched")
        await asyncio.sleep(0.1)  # long enough for `archived` to see this detail
        with os.fdopen(os.dup(out), "wb") as file:
            pack({"workspace": folder}, file)

    return packs


def test_an_archive_is_listed_and_deleted(tmp_path: Path, workspace: Path) -> None:
    """An archive in progress shows what it waits for; a deleted archive leaves no file."""
    folder = tmp_path / "archives"
    archives = Archives(folder, of_folder(workspace))
    one, seen = archived(archives)
    assert (one.state, one.detail, one.files) == ("done", "", 2)
    assert "its image is being fetched" in {each.detail for each in seen}
    assert [each.file for each in Archives(folder, of_folder(workspace)).list()] == [one.file]
    archives.remove(one.file)
    assert list(folder.iterdir()) == [] == archives.list()
    with pytest.raises(NotFound):
        archives.remove(one.file)
    for other in ("../x.tar.gz", "x"):
        with pytest.raises(NotFound):
            archives.remove(other)


def test_what_was_not_done_afterwards_stays_beside_a_whole_archive(
    tmp_path: Path, workspace: Path
) -> None:
    """If a step after packing fails, such as removing the user, the archive is kept. Its entry in
    the list says what failed, also after a restart of the console.
    """

    async def refuses(_detail: str) -> None:
        raise Conflict("the data was packed, but the user was not removed: the hub is away")

    folder = tmp_path / "archives"
    archived(Archives(folder, of_folder(workspace)), refuses)
    (one,) = Archives(folder, of_folder(workspace)).list()
    assert (one.state, one.files) == ("done", 2)
    assert one.detail == "the data was packed, but the user was not removed: the hub is away"


def test_a_full_volume_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    """A full volume is reported with a remedy, and no partial archive is left."""

    async def full(_user: str, out: int, _tell: Callable[[str], None]) -> None:
        os.write(out, b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    archives = Archives(tmp_path / "a", full)
    one, _seen = archived(archives)
    assert one.state == "failed" and "delete other archives" in one.detail
    assert list((tmp_path / "a").iterdir()) == []


def test_what_a_killed_console_left_is_removed(tmp_path: Path, workspace: Path) -> None:
    """A console that starts deletes partial files of archives, and keeps complete archives."""
    one, _seen = archived(Archives(tmp_path / "a", of_folder(workspace)))
    left = (".ada-1.tar.gz", "ada-1.tar.gz.json", "ada-1.tar.gz.sha256")
    for name in left:
        (tmp_path / "a" / name).write_text("{}")
    Archives(tmp_path / "a", of_folder(workspace))
    names = sorted(each.name for each in (tmp_path / "a").iterdir())
    assert names == [one.file, f"{one.file}.json", f"{one.file}.sha256"]


# -- on Kubernetes -------------------------------------------------------------------------------
