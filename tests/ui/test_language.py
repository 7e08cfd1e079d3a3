"""JupyterLab in Chinese: the extension, its settings and the server's messages are Chinese too."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, expect
from support.ui.accessibility import Findings
from support.ui.lab_server import LabServer
from support.ui.page import LabPage

LOCALE = "@jupyterlab/translation-extension/plugin.jupyterlab-settings"


@pytest.fixture(scope="module")
def server(start_lab: Callable[..., LabServer]) -> LabServer:
    """The JupyterLab of this file."""
    return start_lab()


@pytest.fixture
def chinese(server: LabServer, open_page: Callable[..., LabPage]) -> Iterator[LabPage]:
    """A JupyterLab page whose language is set to 简体中文."""
    setting = server.settings / LOCALE
    setting.parent.mkdir(parents=True, exist_ok=True)
    setting.write_text(json.dumps({"locale": "zh_CN"}))
    yield open_page(server)
    server.clean()


def test_the_sidebar_and_a_run_are_shown_in_chinese(chinese: LabPage) -> None:
    """The empty sidebar is Chinese, and so are a run's details and actions."""
    sidebar = chinese.sidebar
    expect(sidebar).to_contain_text("还没有集群")
    expect(sidebar.get_by_role("button", name="启动集群…")).to_be_visible()
    assert english(sidebar) == []

    chinese.server.launch(mode="in-graph", workers=1, ps=1)

    expect(sidebar).to_contain_text("运行中")
    chinese.screenshot("run", sidebar)
    sidebar.locator(".tfc-RunRow").click()
    expect(sidebar.get_by_role("table", name="worker")).to_contain_text("worker-0")
    assert english(sidebar) == []
    found = Findings(chinese)
    found.look("#tfcluster-sidebar", "tasks")
    assert not found.all, "\n".join(found.all)


def test_compared_and_running_runs_are_shown_in_chinese(chinese: LabPage) -> None:
    """The table of compared runs and JupyterLab's Running panel are Chinese; axe finds nothing
    serious in either theme.
    """
    found = Findings(chinese)
    for name in ("one", "two"):
        chinese.server.launch("sleep.py", name=name, workers=1, ps=0)
    chinese.execute("running:show-panel")
    running = chinese.page.locator("#jp-running-sessions")
    expect(running).to_contain_text("one-1")
    found.look(".jp-RunningSessions-item", "running")
    chinese.execute("tfcluster:compare", refs=["one-1", "two-1"], curves=False)
    table = chinese.page.locator(".tfc-Comparison table")
    expect(table).to_contain_text("two-1")
    found.look(".tfc-Comparison", "compared")
    assert english(table) == []
    assert not found.all, "\n".join(found.all)


def test_the_form_and_what_the_server_finds_wrong_are_in_chinese(chinese: LabPage) -> None:
    """The fields of the launch form are Chinese, and so is the reason for a refusal."""
    chinese.execute("tfcluster:launch")
    form = chinese.page.get_by_role("form", name="启动 TFCluster")

    expect(form).to_contain_text("在每个 worker 上运行我的程序")
    form.get_by_label("名称", exact=True).fill("Not_Good")

    expect(form).to_contain_text("最多 40 个小写字母、数字和 '-'")
    chinese.screenshot("form", form)
    assert english(form) == []
    found = Findings(chinese)
    found.look(".tfc-Launch", "form")
    assert not found.all, "\n".join(found.all)


def test_the_settings_are_in_chinese(chinese: LabPage) -> None:
    """The settings editor shows our settings with Chinese titles and descriptions."""
    chinese.execute("settingeditor:open", query="TFCluster")

    editor = chinese.page.locator(".jp-SettingsPanel")
    expect(editor).to_contain_text("停止前询问")
    expect(editor).to_contain_text("集群失败时是否显示含原因的通知。")
    chinese.screenshot("settings", editor)


def english(place: Locator) -> list[str]:
    """Return the lines in a part of the page that have two adjacent English words; code does not
    count.
    """
    place.locator(":scope").wait_for()
    text: str = place.evaluate(
        """node => {
            const copy = node.cloneNode(true);
            copy.querySelectorAll('code, pre, option, textarea').forEach(e => e.remove());
            document.body.append(copy);
            const text = copy.innerText;
            copy.remove();
            return text;
        }"""
    )
    return [line for line in text.splitlines() if re.search(r"[a-z]{2,} [a-z]{2,}", line)]
