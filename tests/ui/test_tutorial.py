"""The tutorial, followed by a user: each cell in a notebook, each command in a shell. This test
makes the pictures of the pages; `make pictures` copies them to docs/pictures.
"""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect
from support import doc_pages
from support.doc_pages import Block
from support.project import ROOT
from support.ui.flows import row
from support.ui.lab_server import LabServer
from support.ui.page import LabPage

TUTORIAL = ROOT / "docs" / "tutorial" / "first-cluster.md"
BOARD = ".jp-MainAreaWidget:not(.lm-mod-hidden) > .tfc-Board iframe"
FONTS = r"\.woff2"
"""Fonts that TensorBoard requests but its package lacks."""


def blocks(page: Path = TUTORIAL) -> list[Block]:
    return [block for block in doc_pages.blocks(page) if not block.language.startswith("{")]


@pytest.fixture
def server(assets: Path) -> Iterator[LabServer]:
    """A new JupyterLab, in a folder whose name is short in pictures."""
    with tempfile.TemporaryDirectory(prefix="lab-") as folder:
        server = LabServer(Path(folder), assets)
        server.start()
        try:
            yield server
        finally:
            server.close()


@pytest.fixture
def lab(server: LabServer, open_page: Callable[..., LabPage]) -> LabPage:
    """A page whose console may report TensorBoard's missing fonts."""
    page = open_page(server)
    page.console.allow(FONTS)
    return page


@pytest.mark.long  # test_launch, test_output and test_tensorboard cover the steps of this test
def test_the_tutorial_works_from_the_first_cell_to_the_last(lab: LabPage) -> None:
    """Each cell and each command of the tutorial works as the page says, in order."""
    cells = [block for block in blocks() if block.language == "python"]
    lab.notebook(*(block.text.rstrip() for block in cells))
    number = 0
    for block in blocks():
        if block.language == "console":
            in_a_shell(lab.server, block)
            continue
        lab.open("notebook.ipynb")
        output = lab.run_cell(number, wait=False)
        number += 1
        ended = lab.cell(number - 1).locator(".jp-InputPrompt").first
        if "cluster = %tfcluster launch" in block.text:
            expect(row(lab, "digits-1")).to_contain_text("loss", timeout=180_000)
            lab.screenshot("running")
        if "%tfcluster tensorboard" in block.text:
            board = lab.page.frame_locator(BOARD).locator("scalar-card").first
            expect(board.locator("line-chart canvas, line-chart svg").first).to_be_visible(
                timeout=60_000
            )
            lab.screenshot("tensorboard")
            lab.open("notebook.ipynb")
        expect(ended).to_have_text(f"[{number}]:", timeout=180_000)
        told = output.inner_text() if output.count() else ""
        assert ("ClusterFailed" in told) == ("raises ClusterFailed" in block.comment), told
        if block.text.startswith("%tfcluster status broken"):
            assert "--rate must be above 0" in told
            lab.screenshot("failed")
        if block.text.startswith("%tfcluster logs hello"):
            assert "worker-0" in told
            assert "worker-1" in told
    assert lab.server.manager.list(all_runs=True) == []


def in_a_shell(server: LabServer, block: Block) -> None:
    """Run each command of a console block; all must succeed."""
    for line in block.text.splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        done = subprocess.run(
            words,
            cwd=server.root,
            env=server.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
