"""The cost of the Lab extension in the browser: a real JupyterLab and Chromium. Runs are simulated
at the HTTP boundary (list responses and events), so only the page is measured.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import tfcluster_magic

from .rows import Row, bounded

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

    from tests.support.ui.lab_server import LabServer

RUNS = 200
CHANGES = 10
"""Number of changes per second, counted over all runs together."""
BUILT = Path(tfcluster_magic.__file__).parent / "labextension"
SCHEMA = "https://tfcluster.dev/events/run/v1"
STARTS = 7


def busy(quick: bool) -> list[Row]:
    """Measure the load of the sidebar on the page's main thread while 10 of 200 runs change each
    second.
    """
    seconds = 5.0 if quick else 20.0
    with _browser() as browser, _lab(BUILT) as server:
        page = browser.new_page()
        page.route("**/tfcluster/api/clusters*", _list)
        _open(page, server)
        page.evaluate("() => window.jupyterapp.commands.execute('tfcluster:open-sidebar')")
        page.wait_for_selector(".tfc-RunRow")
        still = _share(page, server, seconds, changes=0)
        share = _share(page, server, seconds, changes=CHANGES)
    note = f"{RUNS} runs, {CHANGES} changes a second; beside it: none changes"
    row = bounded("page_busy", "% of main thread", [share], at_most=20.0, baseline=[still])
    return [Row(**{**row.__dict__, "note": note})]


def start(quick: bool) -> list[Row]:
    """Measure how much later JupyterLab is ready with the extension than without it."""
    rounds = 2 if quick else STARTS
    with (
        _browser() as browser,
        tempfile.TemporaryDirectory() as nothing,
        _lab(BUILT) as with_it,
        _lab(Path(nothing)) as without,
    ):
        for server in (with_it, without):
            _started(browser, server)  # not measured: the first start fills caches
        pairs = [(_started(browser, with_it), _started(browser, without)) for _ in range(rounds)]
    added = median(ours - plain for ours, plain in pairs)
    plain = median(plain for _, plain in pairs)
    note = f"beside JupyterLab's own {plain:.0f} ms"
    return [bounded("page_start", "ms added", [added], at_most=100.0, note=note)]


@contextmanager
def _browser() -> Iterator[Browser]:
    # imported here, because the other benchmarks need no browser
    from playwright.sync_api import sync_playwright

    from tools import browser as chromium

    found = chromium.find()
    assert found, "no Chromium: python tools/browser.py"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def _lab(built: Path) -> Iterator[LabServer]:
    from tests.support.ui.lab_server import LabServer

    with tempfile.TemporaryDirectory() as folder:
        assets = Path(folder, "labextensions")
        assets.mkdir()
        if (built / "package.json").is_file():
            shutil.copytree(built, assets / "tfcluster-labextension")
        server = LabServer(Path(folder), assets)
        server.start()
        try:
            yield server
        finally:
            server.close()


def _open(page: Page, server: LabServer) -> float:
    """Return the milliseconds from navigation until JupyterLab is complete."""
    page.goto(f"{server.url}lab?token={server.token}&reset")
    page.wait_for_function("() => window.jupyterapp !== undefined")
    there = "async () => { await window.jupyterapp.restored; return performance.now(); }"
    milliseconds: float = page.evaluate(there)
    return milliseconds


def _started(browser: Browser, server: LabServer) -> float:
    page = browser.new_page()
    try:
        return _open(page, server)
    finally:
        page.close()


def _share(page: Page, server: LabServer, seconds: float, changes: int) -> float:
    """Push `changes` changes a second for `seconds` seconds; return the main thread's CPU time as a
    percentage of this interval.
    """
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before, began, sent = _work(session), time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        while sent < passed * changes:
            sent += 1
            _push(server, sent)
        page.wait_for_timeout(20)
    spent = _work(session) - before
    session.detach()
    return spent / (time.monotonic() - began) * 100


def _work(session: Any) -> float:
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(float(m["value"]) for m in metrics if m["name"] == "TaskDuration")


def _list(route: Route) -> None:
    runs = [_run(number, 0) for number in range(RUNS)]
    answer = {"runs": runs, "at": time.time(), "stream": "bench", "sequence": 0, "problem": None}
    route.fulfill(status=200, content_type="application/json", body=json.dumps(answer))


def _push(server: LabServer, sequence: int) -> None:
    run = _run(sequence * 7 % RUNS, sequence)
    data = {"type": "changed", "name": run["cluster"]["metadata"]["name"], "run": run}
    data |= {"at": time.time(), "stream": "bench", "sequence": sequence, "problem": None}
    server.ask("POST", "api/events", {"schema_id": SCHEMA, "version": "1", "data": data})


def _run(number: int, step: int) -> dict[str, Any]:
    """Return the JSON of a simulated training run. Its launch lies up to some days ago, depending
    on `number`.
    """
    name = f"bench{number}"
    history = [[at, 2.0 / (1 + at)] for at in range(step, step + 60)]
    return {
        "cluster": {
            "metadata": {
                "name": f"{name}-1",
                "cluster": name,
                "run": 1,
                "uid": name,
                "createdAt": time.time() - number**2 * 10,
            },
            "spec": {"mode": "between-graph", "replicas": {"worker": {"count": 2}}},
            "status": {"phase": "Running", "reason": "Running", "message": "2 tasks are running."},
        },
        "ready": {"ready": 2, "total": 2},
        "progress": {
            "step": step,
            "total": 10_000,
            "stepsPerSecond": 187.4,
            "loss": 0.5,
            "etaSeconds": 60.0,
            "at": time.time(),
            "unit": "step",
            "epoch": None,
            "history": history,
        },
        "notes": [],
    }
