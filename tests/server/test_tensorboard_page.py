"""While a TensorBoard starts, our server sends TensorBoard's page from the installed package. It is
the page that the running TensorBoard sends.
"""

from __future__ import annotations

import asyncio
import json
import re
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from support import event_writer as ev
from support.server.calls import Ask
from tornado.httpclient import HTTPResponse

from tfcluster_magic.paths import private
from tfcluster_magic.server import tensorboard_routes
from tfcluster_magic.server.service import Service
from tfcluster_magic.tensorboard import process
from tfcluster_magic.tensorboard.process import RegistryEntry, registry_folder

FONT = "font-roboto/Hgo13k-tfSpn0qi1SFdUfZBw1xU1rKptJj_0jans920.woff2"


@pytest.fixture(autouse=True)
def no_board_is_left(service: Service) -> Iterator[None]:
    """End the boards of a test."""
    yield
    service.manager.boards.stop()


@pytest.fixture
def logs(jp_root_dir: Path) -> Path:
    """Create a folder with the events of one run."""
    folder = jp_root_dir / "logs"
    ev.event_file(folder / "1").write_bytes(ev.version() + ev.event(1, {"loss": 0.5}))
    return folder


async def begun(ask: Ask) -> str:
    """Return the path of a starting board's page, below `tfcluster/`."""
    answer = await ask("api/tensorboards", "POST", {"folder": "logs", "wait": False})
    assert answer.code == 202, answer.body
    told = json.loads(answer.body)
    assert told["running"] is False
    page: str = told["path"].removeprefix("tfcluster/")
    return page


def told(answer: HTTPResponse) -> dict[str, list[str]]:
    """Return the headers of the answer that concern a file's type and caching."""
    names = ("Cache-Control", "Content-Security-Policy", "Content-Type")
    return {name: answer.headers.get_list(name) for name in names}


async def test_the_page_is_there_before_its_board(
    ask: Ask, logs: Path, http_server_client: Any, jp_base_url: str
) -> None:
    """While a board starts, its page and scripts are served exactly as the board would serve them,
    and requests for data wait.
    """
    paths = ("", "index.html", "index.js", "chart_worker.js", "icon_bundle.svg", FONT)
    hashed = {"params": {"_file_hash": "1"}}
    # The start of the board waits for this lock.
    with RegistryEntry(private(registry_folder(None)), str(logs)).locked():
        page = await begun(ask)
        early = {path: await ask(page + path) for path in paths}
        kept = await ask(f"{page}index.js", **hashed)
        plain = await ask(f"{page}index.js", decompress_response=False)
        data = asyncio.ensure_future(ask(f"{page}data/runs"))
        refused = await http_server_client.fetch(
            f"{jp_base_url}tfcluster/{page}index.js", raise_error=False, follow_redirects=False
        )
        assert "/login" in refused.headers["Location"]
        assert not data.done()
        assert process.list_boards() == []
    assert (await data).code == 200
    opened = await ask("api/tensorboards", "POST", {"folder": "logs", "wait": False})
    assert (opened.code, json.loads(opened.body)["running"]) == (201, True)
    for path in paths:
        itself = await ask(page + path)
        assert (itself.code, early[path].code) == (200, 200)
        assert early[path].body == itself.body
        assert told(early[path]) == told(itself)
    assert told(kept) == told(await ask(f"{page}index.js", **hashed)) != told(early["index.js"])
    assert plain.body == early["index.js"].body
    assert "Content-Encoding" not in plain.headers
    assert "gzip" in str(early["index.js"].headers)


async def test_a_start_that_fails_is_told(
    ask: Ask, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a board fails to start, its page shows the reason, and its files are not served."""
    broken = tmp_path / "broken" / "tensorboard"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('boom')")
    monkeypatch.setenv("PYTHONPATH", str(broken.parent))
    with RegistryEntry(private(registry_folder(None)), str(logs)).locked():
        page = await begun(ask)
        assert b"<title>TensorBoard</title>" in (await ask(page)).body
        data = asyncio.ensure_future(ask(f"{page}data/runs"))
        waited = asyncio.ensure_future(ask("api/tensorboards", "POST", {"folder": "logs"}))
        await ask(f"{page}index.js")
    for answer in (await data, await waited):
        assert answer.code == 500
        assert "boom" in json.loads(answer.body)["detail"]
    assert (await ask(f"{page}index.js")).code == 500


async def test_a_package_of_another_layout(
    ask: Ask, logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the page is not at its usual place in TensorBoard's package, it comes from the running
    board.
    """
    scripts = []
    with RegistryEntry(private(registry_folder(None)), str(logs)).locked():
        for layout in ("none", "other", "broken"):
            package = tmp_path / layout / "tensorboard"
            package.mkdir(parents=True)
            (package / "__init__.py").touch()
            if layout == "other":
                with zipfile.ZipFile(package / "webfiles.zip", "w") as archive:
                    archive.writestr("index.html", "<script src=main.js></script>")
            elif layout == "broken":
                (package / "webfiles.zip").write_text("no archive")
            with monkeypatch.context() as patch:
                patch.syspath_prepend(package.parent)
                page = await begun(ask)
                script = asyncio.ensure_future(ask(f"{page}index.js"))
                assert (await ask(page)).code == 202, layout
                assert not script.done(), layout
            scripts.append(script)
    for script in scripts:
        assert len((await script).body) > 1_000_000


def test_only_files_of_the_package() -> None:
    """Folders, unknown files and files outside the package are not served."""
    for path in ("font-roboto/", "none.js", "../version.py", "/etc/passwd", "\0"):
        assert tensorboard_routes.packaged_file(path, hashed=False, gzip=True) is None


def test_the_script_says_what_its_contents_are() -> None:
    """The page of this TensorBoard names its script by a hash of the content, so that browsers can
    cache the script.
    """
    spec = find_spec("tensorboard")
    assert spec is not None
    page = tensorboard_routes.packaged_file("", hashed=False, gzip=True)
    assert page is not None
    assert re.search(rb'<script src="index.js\?_file_hash=\w+">', page.body)
    script = tensorboard_routes.packaged_file("index.js", hashed=True, gzip=True)
    assert script is not None
    assert "max-age=86400" in script.headers["Cache-Control"]
