"""The oldest and the newest supported JupyterLab, and Notebook 7. `make test-jupyters` makes their
environments, a minute each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect
from support.ui import workspace
from support.ui.environments import JUPYTERS, python_of
from support.ui.lab_server import LabServer
from support.ui.page import LabPage

Start = Callable[..., LabServer]
Open = Callable[..., LabPage]

# These environments have no TensorFlow, so tasks run with the tests' Python.
LAUNCH = f"%load_ext tfcluster_magic\n%tfcluster launch hello.py --python {sys.executable} --name "

pytestmark = pytest.mark.timeout(900)  # pip may have to make an environment first


@pytest.fixture(scope="module", params=JUPYTERS)
def python(request: pytest.FixtureRequest) -> Path:
    """The Python of an environment with another Jupyter."""
    return python_of(request.param)


@pytest.fixture
def other_server(
    python: Path, start_lab: Start, request: pytest.FixtureRequest
) -> Iterator[LabServer]:
    """A server of that environment."""
    server = start_lab(python=python, program=request.param)
    yield server
    server.close()


@pytest.mark.parametrize("other_server", ["jupyterlab"], indirect=True)
def test_the_sidebar_works_in_jupyterlab(other_server: LabServer, open_page: Open) -> None:
    """The list shows a run launched by code, and the output of a cell is drawn."""
    lab = open_page(other_server)
    other_server.launch("hello.py", workers=2, name="digits")

    expect(lab.sidebar.get_by_role("row", name="digits-1")).to_be_visible()
    output = lab.run(LAUNCH + "fromcell")
    expect(output.locator(".tfc-RunCard")).to_contain_text("fromcell-1")
    lab.screenshot("both")


@pytest.mark.parametrize("other_server", ["notebook"], indirect=True)
def test_output_and_panel_work_in_notebook_7(other_server: LabServer, open_page: Open) -> None:
    """A launch is drawn live, and bare %tfcluster shows its form."""
    workspace.notebook(other_server.root / "first.ipynb", [LAUNCH + "digits", "%tfcluster"])
    notebook = open_page(other_server, load=False)
    notebook.load("notebooks/first.ipynb", reset=False)
    notebook.idle()

    expect(notebook.run_cell(0).locator(".tfc-RunCard")).to_contain_text("Succeeded")
    panel = notebook.run_cell(1)
    panel.get_by_text("Launch a cluster").click()
    expect(panel.get_by_label("Program")).to_be_visible()
    notebook.screenshot("both")
