"""Idle notebooks and second notebooks, on a real hub with its culler."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from support.hub.real_hub import RealHub

IDLE = 12
"""Seconds without activity after which the hub stops a notebook."""
LAUNCH = """
program = '''
import os, time
while not os.path.exists({end!r}):
    time.sleep(0.1)
'''
get_ipython().run_line_magic("load_ext", "tfcluster_magic")
get_ipython().run_cell_magic("tfcluster", "launch --workers 1 --ps 0 --name long", program)
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealHub]:
    """A hub that ends idle notebooks, where each user may have one named notebook."""
    environ = {"TFCLUSTER_HUB_IDLE": str(IDLE), "TFCLUSTER_HUB_NAMED_SERVERS": "1"}
    made = RealHub(tmp_path_factory.mktemp("hub"), ["ada", "bob"], environ)
    try:
        made.start()
        yield made
    finally:
        made.close()


def status(hub: RealHub, name: str) -> dict[str, str]:
    """Return the status of a user's run from its record."""
    runs = hub.homes / name / ".local" / "state" / "tfcluster" / "runs"
    file = runs / "long" / "1" / "status.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


@pytest.fixture(scope="module")
def works(hub: RealHub) -> Iterator[Future[tuple[str, bool]]]:
    """Run a cell of Bob's for twice the idle time; yield its output, and whether his notebook was
    running at its end.
    """
    bob = hub.visitor("bob")
    text = "import time\nfor _ in range({}):\n    print(1, flush=True)\n    time.sleep(1)"

    def work() -> tuple[str, bool]:
        said = bob.run(bob.spawn(), text.format(2 * IDLE))
        return said, bob.servers()[""]["ready"]

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(work)


@pytest.mark.usefixtures("works")  # starts Bob's cell, whose end the next test awaits
def test_running_cluster_is_no_use(
    hub: RealHub, tmp_path: Path, wait_for: Callable[..., None]
) -> None:
    """A notebook without work is stopped while its cluster continues and succeeds."""
    ada = hub.visitor("ada")
    end = tmp_path / "end"
    told = ada.run(ada.spawn(), LAUNCH.format(end=str(end)))
    wait_for(lambda: status(hub, "ada").get("phase") == "Running", told)

    wait_for(lambda: not ada.servers(), "the notebook is ended")

    assert "Culling server ada" in hub.log.read_text()
    assert status(hub, "ada")["phase"] == "Running"
    end.touch()
    wait_for(lambda: status(hub, "ada")["phase"] == "Succeeded", "success")


def test_work_is_use(works: Future[tuple[str, bool]]) -> None:
    """A notebook whose cells are running is not stopped."""
    said, is_there = works.result()
    assert said.count("1") == 2 * IDLE
    assert is_there


def test_second_notebook(hub: RealHub) -> None:
    """If named notebooks are enabled, a user may have one next to the unnamed notebook; a second
    named notebook is refused.
    """
    bob = hub.visitor("bob")
    assert bob.run(bob.spawn("second"), "print(6 * 7)") == "42\n"
    refused = bob.ask("POST", "hub/api/users/bob/servers/third")
    assert refused.status_code == 400
    assert "already has the maximum" in refused.json()["message"]
    assert bob.ask("DELETE", "hub/api/users/bob/servers/second").status_code in {202, 204}
