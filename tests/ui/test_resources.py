"""The usage of tasks in a browser: small lines in rows, a tab of graphs, what a saved notebook
shows, and the stacks of a run that stalls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, expect
from support.polling import wait_until
from support.ui.accessibility import Findings
from support.ui.lab_server import LabServer
from support.ui.page import LabPage

from tfcluster_magic.runs.manager import Until

LOCALE = "@jupyterlab/translation-extension/plugin.jupyterlab-settings"
TRAINS = """
import os, signal, time
task = os.environ["TFCLUSTER_TASK"]
first = f"{os.environ['TFCLUSTER_OUTPUT_DIR']}/{task}.started"
begins = not os.path.exists(first)
open(first, "w").close()
pace = 0.02 if task == "worker-2" else 0.2
kept = bytearray(os.urandom(1 << 20) * (160 if task == "worker-2" else 40))
began = time.monotonic()
for step in range(1, 100_000):
    until = time.process_time() + pace / 2
    while time.process_time() < until:
        pass
    time.sleep(0.2 - pace / 2)
    print(f"step {step} loss {1 / step:.4f}", flush=True)
    if task == "worker-1" and begins and time.monotonic() - began > 9:
        os.kill(os.getpid(), signal.SIGKILL)
"""
HANGS = """
import threading
first = threading.Lock()
first.acquire()
print("step 1", flush=True)
first.acquire()  # it waits here
"""


def row(lab: LabPage, name: str) -> Locator:
    """Return the row of a run in the sidebar."""
    return lab.sidebar.locator(f'[data-run="{name}"]')


def trains(lab: LabPage) -> None:
    """Launch three workers, of which one uses little CPU and one is killed and started again."""
    (lab.server.root / "uses.py").write_text(TRAINS)
    lab.server.launch("uses.py", name="uses", workers=3, worker_cpu=0.5, worker_memory="600Mi")


def test_rows_of_tasks_have_small_lines(lab: LabPage) -> None:
    """The visible rows of tasks show CPU and memory beside what was requested, with one request for
    all of them; a closed row causes no request.
    """
    asked: list[str] = []
    lab.page.on("request", lambda r: asked.append(r.url) if "/usage?" in r.url else None)
    trains(lab)
    expect(row(lab, "uses-1")).to_contain_text("3 of 3 running", timeout=60_000)
    assert not asked, "no row of a task is shown"
    row(lab, "uses-1").click()
    uses = lab.sidebar.locator(".tfc-Use")
    expect(uses).to_have_count(6, timeout=60_000)
    label = re.compile(r"^CPU: [\d.]+ of 0\.5 now; [\d.]+ to [\d.]+ over time$")
    expect(lab.sidebar.get_by_role("img", name=label).first).to_be_visible(timeout=60_000)
    assert all(url.count("task=worker-") == 3 for url in asked), asked
    lab.screenshot("lines", lab.sidebar)
    found = Findings(lab)
    found.look("#tfcluster-sidebar", "lines")
    assert not found.all, "\n".join(found.all)
    row(lab, "uses-1").locator(".tfc-RunRow-name").click()
    expect(uses).to_have_count(0)
    count = len(asked)
    # when the row shows the run's next change, any request for usage would have been sent too
    lab.server.manager.stop("uses")
    expect(row(lab, "uses-1")).to_have_attribute("data-phase", "Stopped", timeout=60_000)
    assert len(asked) == count


def test_a_tab_shows_what_each_type_uses(lab: LabPage) -> None:
    """The tab of a run has graphs that show outlying tasks and events, opens the logs of a task,
    and is restored with the layout.
    """
    trains(lab)
    lab.execute("tfcluster:top", name="uses-1")
    tab = lab.page.locator(".tfc-Resources")
    expect(tab).to_contain_text("No task has been sampled yet.")
    lab.screenshot("empty")
    graphs = tab.locator("svg[role=img]")
    expect(graphs).to_have_count(4, timeout=60_000)
    expect(tab).to_contain_text("Started again: worker-0, worker-1, worker-2", timeout=60_000)
    expect(tab).to_contain_text(re.compile(r"asked for 0\.5 CPU, used 0\.\d+"))
    memory = re.compile("^Memory: .* differ from the others: worker-2$")
    expect(tab.get_by_role("img", name=memory)).to_be_visible(timeout=60_000)
    graphs.first.hover()
    expect(tab.locator(".tfc-Graph-pointed").first).to_be_attached()
    found = Findings(lab)
    found.look(".tfc-Resources", "graphs")
    lab.page.emulate_media(forced_colors="active")
    lab.screenshot("forced-colours")
    lab.page.emulate_media(forced_colors="none")
    assert not found.all, "\n".join(found.all)
    lab.layout_saved("tfcluster-resources:uses-1")
    lab.reload()
    expect(graphs).to_have_count(4, timeout=60_000)
    tab.get_by_role("button", name="worker-2").first.click()
    expect(lab.page.get_by_role("log", name="Output of uses-1")).to_contain_text("step ")


def test_the_resources_of_a_run_are_opened_from_its_row_and_the_palette(lab: LabPage) -> None:
    """The menu of a row and the palette open the tab; a run without samples says what to do."""
    lab.server.launch("hello.py", name="early", workers=1, ps=0)
    lab.server.manager.wait("early", 180, until=Until.RELEASED)
    row(lab, "early-1").click(button="right")
    lab.page.get_by_role("menuitem", name="Resources").click()
    tab = lab.page.locator(".tfc-Resources")
    expect(tab).to_contain_text("early-1")
    lab.empty()
    lab.palette("Resources of a Cluster…")
    expect(lab.dialog).to_contain_text("Resources")
    lab.dialog.get_by_role("button", name="Resources").click()
    expect(tab).to_contain_text("early-1")


def test_a_saved_notebook_has_what_was_used(lab: LabPage) -> None:
    """After the run's end, the output below the cell shows the requested and the used resources of
    each task type: in the card, and in the HTML and text that need no extension.
    """
    (lab.server.root / "short.py").write_text(
        "import time\nuntil = time.time() + 6\nwhile time.time() < until: time.sleep(0.01)"
    )
    output = lab.run(
        "%load_ext tfcluster_magic\n%tfcluster launch short.py --name short --workers 2 --cpu 0.5"
    )
    card = output.locator(".tfc-RunCard")
    expect(card).to_have_attribute("data-phase", "Succeeded", timeout=120_000)
    expect(card).to_contain_text("asked for 0.5 CPU, used 0", timeout=60_000)
    lab.screenshot("card", output)

    def saved() -> dict[str, str]:
        lab.execute("docmanager:save")
        cells = json.loads((lab.server.root / "notebook.ipynb").read_text())["cells"]
        data = next(out["data"] for cell in cells for out in cell["outputs"])
        return {kind: "".join(data[kind]) for kind in ("text/html", "text/plain")}

    wait_until(lambda: "asked for 0.5 CPU" in saved()["text/html"], "what was used, in the file")
    for kind in ("text/html", "text/plain"):
        used = r"worker: asked for 0\.5 CPU, used 0(\.\d+)?; peak of memory \d"
        assert re.search(used, saved()[kind])


def test_the_logs_of_a_run_that_stalls_have_its_stacks(lab: LabPage) -> None:
    """When all tasks stand still, their stacks are taken automatically; the tab of the logs shows
    the line at which each task hangs.
    """
    (lab.server.root / "hangs.py").write_text(HANGS)
    lab.server.launch("hangs.py", name="hangs", workers=1, ps=0)
    expect(row(lab, "hangs-1")).to_contain_text(
        "has printed nothing, written no event file", timeout=150_000
    )
    lab.execute("tfcluster:logs", name="hangs-1")
    fold = lab.page.locator(".tfc-Log-stacks")
    fold.get_by_text("The line at which each task hangs").click()
    expect(fold.locator("pre")).to_contain_text("line 6 in <module>")
    found = Findings(lab)
    found.look(".tfc-Log", "stalled")
    assert not found.all, "\n".join(found.all)


@pytest.fixture
def chinese(fresh_server: LabServer, open_page: Callable[..., LabPage]) -> LabPage:
    """A page whose language is 简体中文."""
    setting = fresh_server.settings / LOCALE
    setting.parent.mkdir(parents=True, exist_ok=True)
    setting.write_text(json.dumps({"locale": "zh_CN"}))
    return open_page(fresh_server)


def test_resources_are_shown_in_chinese(chinese: LabPage) -> None:
    """The small lines and the tab are Chinese."""
    trains(chinese)
    chinese.execute("tfcluster:top", name="uses-1")
    tab = chinese.page.locator(".tfc-Resources")
    expect(tab).to_contain_text("尚未对任何任务采样")
    expect(tab).to_contain_text(re.compile("重新启动.worker-0, worker-1"), timeout=60_000)
    expect(tab).to_contain_text("申请了 0.5 个 CPU")
    row(chinese, "uses-1").click()
    expect(chinese.sidebar.locator(".tfc-Use").first).to_contain_text("CPU", timeout=60_000)
    found = Findings(chinese)
    found.look(".tfc-Resources", "chinese")
    assert not found.all, "\n".join(found.all)
