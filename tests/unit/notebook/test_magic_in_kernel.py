"""`%tfcluster` in a real kernel: outputs, exported HTML, and interrupts."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from support.command_line import here

from tfcluster_magic import ClusterManager
from tfcluster_magic.output.run_card import MIME_TYPE
from tfcluster_magic.spec import Phase

__all__ = ["here"]  # a fixture used by the tests below


def test_a_notebook_shows_a_run_once_and_keeps_it_up_to_date(here: Path) -> None:
    """A run is shown as one output, as text, as HTML and as JSON for the JupyterLab extension. This
    output is updated in place; followed lines go to stdout.
    """
    waited, followed, last, error = _notebook(
        "%tfcluster launch hello.py --workers 1 --wait",
        "run = %tfcluster launch hello.py --workers 1 --follow\nrun",
        "run",
        "%tfcluster status nothing",
    )

    assert [output.output_type for output in waited] == ["display_data"]
    assert waited[0].data[MIME_TYPE]["cluster"]["status"]["phase"] == "Succeeded"
    assert "as of" in waited[0].data["text/html"]
    _card, above, lines = followed
    assert (above.data["text/plain"], lines.output_type) == ("Output of hello-2:", "stream")
    assert above.data[MIME_TYPE]["ended"] is True
    assert "hello from worker-0" in lines.text
    assert "\x1b[36mworker-0 |" in lines.text
    assert last[0].data["text/plain"].startswith("hello-2 Succeeded")
    assert error[0].ename == "NotFound"
    assert error[0].traceback == ["NotFound: " + error[0].evalue.replace("`tf", "`%tf")]


def test_a_notebook_as_html_shows_the_card_with_its_time(here: Path) -> None:
    """HTML that nbconvert exports shows the run's card and the time as of which it is valid; it
    does not show the JSON of the record.
    """
    notebook = _make("%load_ext tfcluster_magic", "%tfcluster launch hello.py --workers 1 --wait")
    NotebookClient(notebook, timeout=180, kernel_name="python3").execute()
    page, _ = HTMLExporter().from_notebook_node(notebook)

    assert re.search(r"<strong>hello-1</strong>\s*<span[^>]*>Succeeded</span>", page)
    assert "as of " in page
    assert "createdAt" not in page


def test_interrupting_a_cell_detaches_and_the_run_goes_on(
    here: Path, wait_for: Callable[..., None]
) -> None:
    """An interrupted cell ends without an error, says how to reconnect, and sets the variable to
    the run's handle.
    """
    _, cell, after = _interrupted(
        wait_for,
        "%load_ext tfcluster_magic",
        "run = %tfcluster launch sleep.py --workers 1 --follow",
        "print(run.name, run.status.phase.value)",
    )
    said = "".join(output.get("text", "") for output in cell)

    assert "detached; sleep-1 goes on: `%tfcluster logs -f sleep-1`" in said
    assert not [output for output in cell if output.output_type == "error"]
    assert after[0].text == "sleep-1 Running\n"


def test_interrupting_a_wait_says_in_one_line_that_the_run_goes_on(
    here: Path, wait_for: Callable[..., None]
) -> None:
    """An interrupted wait shows the run's card once and one line without a traceback, and skips the
    rest of the cell.
    """
    _, _, cell, after = _interrupted(
        wait_for,
        "%load_ext tfcluster_magic",
        "run = %tfcluster launch sleep.py --workers 1",
        "run.wait()\nprint('over')",
        "print(run.name, run.status.phase.value)",
    )
    card, error = cell

    assert card.data[MIME_TYPE]["cluster"]["status"]["phase"] == "Running"
    assert error.output_type == "error"
    (line,) = error.traceback
    assert line.startswith("detached; sleep-1 goes on: `%tfcluster logs -f sleep-1` shows")
    assert after[0].text == "sleep-1 Running\n"


def test_a_wait_brings_the_card_above_it_up_to_date(here: Path) -> None:
    """A wait updates the card of a launch in the same cell instead of showing a second card."""
    same, last = _notebook(
        "run = %tfcluster launch hello.py --workers 1\nrun.wait()",
        "again = %tfcluster launch hello.py --workers 1\nagain.wait()\nprint('over')",
    )

    assert [output.output_type for output in same] == ["display_data"]
    assert same[0].data[MIME_TYPE]["cluster"]["status"]["phase"] == "Succeeded"
    assert [output.output_type for output in last] == ["display_data", "stream"]


def _interrupted(wait_for: Callable[..., None], *cells: str) -> list[Any]:
    """Run cells; interrupt the cell that waits or follows once it shows its run; return all
    outputs.
    """
    notebook = _make(*cells)
    client = NotebookClient(notebook, timeout=180, kernel_name="python3", allow_errors=True)
    busy = next(n for n, cell in enumerate(cells) if "wait()" in cell or "--follow" in cell)

    def interrupt_the_cell() -> None:
        manager = ClusterManager()
        wait_for(lambda: [r for r in manager.list() if r.status.phase is Phase.RUNNING])
        shown = "Running" if "wait()" in cells[busy] else "up"
        wait_for(lambda: shown in str(notebook.cells[busy].outputs), "the cell shows the output")
        os.kill(client.km.provisioner.pid, signal.SIGINT)

    other = threading.Thread(target=interrupt_the_cell)
    other.start()
    client.execute()
    other.join()
    return [cell.outputs for cell in notebook.cells]


def _make(*cells: str) -> Any:
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


def _notebook(*cells: str) -> list[Any]:
    """Return the outputs of cells in a kernel with the extension."""
    notebook = _make("%load_ext tfcluster_magic", *cells)
    NotebookClient(notebook, timeout=180, kernel_name="python3", allow_errors=True).execute()
    return [cell.outputs for cell in notebook.cells[1:]]
