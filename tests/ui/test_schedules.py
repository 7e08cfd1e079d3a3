"""Schedules in a browser: the form that creates and changes them, the sidebar and the calendar."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone

import pytest
from playwright.sync_api import Locator, expect
from support.polling import wait_until
from support.ui.accessibility import Findings
from support.ui.lab_server import LabServer
from support.ui.launch_form import form
from support.ui.page import LabPage

from tfcluster_magic.schedules import CatchUp

__all__ = ["form"]  # a fixture used by the tests below
LOCALE = "@jupyterlab/translation-extension/plugin.jupyterlab-settings"


@pytest.fixture
def schedules(lab: LabPage) -> Locator:
    """Return the sidebar's section of schedules."""
    return lab.sidebar.locator(".tfc-Fold", has_text="Schedules")


@pytest.fixture(autouse=True)
def no_schedule_stays(server: LabServer) -> Iterator[None]:
    """Delete the schedules of a test."""
    yield
    delete_all(server)


def delete_all(server: LabServer) -> None:
    verbs = server.manager.schedules
    for each in verbs.list():
        verbs.delete(each.name)


def field(form: Locator, label: str) -> Locator:
    return form.get_by_label(label, exact=True)


def test_a_launch_becomes_a_schedule_and_is_changed(
    lab: LabPage, form: Locator, schedules: Locator
) -> None:
    """Repeat… asks for name, time and time zone, shows the next five due times and the line for a
    notebook, and saves the schedule. Edit… opens the same form filled in; a cleared input removes
    its option.
    """
    found = Findings(lab)
    form.get_by_label("Path of the program").fill("hello.py")
    form.get_by_role("button", name="Repeat…").click()
    expect(form.get_by_role("heading", name="Repeat this launch")).to_be_focused()
    expect(field(form, "Name")).to_have_value("hello")
    field(form, "Name").fill("nightly")
    expect(form).to_contain_text("Its runs are called nightly-1, nightly-2 and so on.")
    field(form, "Time zone").fill("Asia/Shanghai")
    field(form, "at time").fill("03:30")
    coming = form.locator(".tfc-Coming li")
    expect(coming).to_have_count(5)
    expect(coming.first).to_contain_text("3:30")
    form.get_by_text("Overlaps, retries and failures").click()
    field(form, "If the previous run is still active").select_option("replace")
    field(form, "Retries in a new run").fill("2")
    line = form.locator(".tfc-Line code")
    words = "--time-zone Asia/Shanghai --overlap replace --retries 2 hello.py"
    expect(line).to_have_text(f"%tfcluster schedule create nightly --cron '30 3 * * *' {words}")
    found.look(".tfc-Launch", "repeat")
    save = form.get_by_role("button", name="Save schedule")
    expect(save).not_to_have_attribute("aria-disabled", "true")
    save.click()
    expect(form).to_contain_text("The schedule nightly was saved. It is due at")
    expect(form.get_by_role("button", name="Launch", exact=True)).to_be_visible()
    expect(schedules).to_contain_text("Asia/Shanghai")
    found.look(".tfc-Launch", "saved")
    verbs = lab.server.manager.schedules
    rules = verbs.show("nightly").rules
    assert (rules.cron, rules.time_zone, rules.retries) == ("30 3 * * *", "Asia/Shanghai", 2)

    schedules.get_by_role("button", name="Edit nightly…").click()
    expect(form.get_by_role("heading", name="Change the schedule nightly")).to_be_focused()
    expect(field(form, "at time")).to_have_value("03:30")
    expect(field(form, "Retries in a new run")).to_have_value("2")
    missed = field(form, "Missed due times").locator("option:checked")
    expect(missed).to_have_text("last")
    field(form, "Retries in a new run").fill("")
    form.get_by_label("When").select_option("cron")
    expression = form.get_by_label("Cron expression", exact=True)
    expect(expression).to_have_value("30 3 * * *")
    expression.fill("0 0 30 2 *")
    expect(form).to_contain_text("it never matches a date")
    expect(save).to_have_attribute("aria-disabled", "true")
    found.look(".tfc-Launch", "repeat-wrong")
    expression.fill("@weekly")
    expect(coming).to_have_count(5)
    expect(save).not_to_have_attribute("aria-disabled", "true")
    save.click()
    expect(form).to_contain_text("The schedule nightly was saved.")
    rules = verbs.show("nightly").rules
    assert (rules.cron, rules.retries, rules.overlap.value) == ("@weekly", 0, "replace")
    assert not found.all, "\n".join(found.all)


def test_a_schedule_is_made_by_keyboard_with_each_problem_at_its_input(
    lab: LabPage, form: Locator
) -> None:
    """Without a mouse, a name in use, an invalid time zone and a missing file are reported at their
    inputs and can be corrected there.
    """
    verbs = lab.server.manager.schedules
    verbs.create("taken", str(lab.server.root / "hello.py"), cron="@yearly", workers=1)
    form.get_by_label("Path of the program").fill("gone.py")
    repeat = form.get_by_role("button", name="Repeat…")
    repeat.focus()
    keys = lab.page.keyboard
    keys.press("Enter")
    expect(form.get_by_role("heading", name="Repeat this launch")).to_be_focused()
    keys.press("Tab")
    expect(field(form, "Name")).to_be_focused()
    keys.type("taken")
    zone = field(form, "Time zone")
    zone.focus()
    keys.press("ControlOrMeta+A")
    keys.type("Mars/Olympus")
    wrong = form.locator(".tfc-Mark.tfc-mod-wrong")
    expect(wrong).to_have_count(3)
    for option, words in (
        ("name", "there is a schedule taken"),
        ("time_zone", "there is no such time zone"),
        ("program", "no such file"),
    ):
        expect(form.locator(f"[data-option={option}]")).to_contain_text(words)
    keys.press("ControlOrMeta+A")
    keys.type("Europe/Berlin")
    field(form, "Name").focus()
    keys.press("ControlOrMeta+A")
    keys.type("fresh")
    form.get_by_label("Path of the program").fill("hello.py")
    expect(wrong).to_have_count(0)
    expect(form.get_by_role("button", name="Save schedule")).not_to_have_attribute(
        "aria-disabled", "true"
    )
    field(form, "Name").focus()
    keys.press("Enter")
    expect(form).to_contain_text("The schedule fresh was saved.")
    assert verbs.show("fresh").rules.time_zone == "Europe/Berlin"


def test_a_schedule_is_run_paused_and_deleted_in_the_sidebar(
    lab: LabPage, schedules: Locator
) -> None:
    """The sidebar offers to create a schedule, shows it with its last due times, and has all its
    actions. The schedule's name opens the calendar, whose runs link to the sidebar and to their
    logs.
    """
    schedules.locator("summary").click()
    expect(schedules.get_by_role("button", name="New schedule…")).to_be_visible()
    found = Findings(lab)
    found.look("#tfcluster-sidebar", "schedules-empty")
    verbs = lab.server.manager.schedules
    hello = str(lab.server.root / "hello.py")
    verbs.create("nightly", hello, cron="0 2 1 1 *", time_zone="Asia/Shanghai", workers=1)
    lab.sidebar.get_by_role("button", name="Refresh").click()
    expect(schedules).to_contain_text("Asia/Shanghai")
    schedules.get_by_role("button", name="Run nightly now").click()
    dots = schedules.get_by_role("img")
    expect(dots).to_have_attribute("aria-label", "Last due times: Succeeded", timeout=60_000)
    found.look("#tfcluster-sidebar", "schedules")
    schedules.get_by_role("button", name="nightly", exact=True).click()
    calendar = lab.page.locator(".tfc-Calendar")
    expect(calendar.get_by_role("gridcell", selected=True)).to_contain_text("●")
    expect(calendar.locator(".tfc-Calendar-list")).to_contain_text("Succeeded")
    found.look(".tfc-Calendar", "calendar")
    calendar.get_by_role("button", name="nightly-1", exact=True).click()
    expect(lab.sidebar.get_by_role("row", name="nightly-1")).to_have_attribute(
        "aria-expanded", "true"
    )
    calendar.get_by_role("button", name="Logs of nightly-1").click()
    expect(lab.page.get_by_role("log", name="Output of nightly-1")).to_be_visible()
    schedules.get_by_role("button", name="Pause nightly").click()
    expect(schedules).to_contain_text("paused")
    assert verbs.show("nightly").status.paused is not None
    schedules.get_by_role("button", name="Resume nightly").click()
    expect(schedules).to_contain_text("next")
    schedules.get_by_role("button", name="Delete nightly").click()
    lab.page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(schedules.get_by_role("button", name="New schedule…")).to_be_visible()
    assert verbs.list() == []
    assert not found.all, "\n".join(found.all)


def test_a_schedule_is_read_in_cells(lab: LabPage) -> None:
    """Cells list schedules, and show one with its due times, its rules and its history."""
    verbs = lab.server.manager.schedules
    hello = str(lab.server.root / "hello.py")
    verbs.create("nightly", hello, cron="0 2 * * *", time_zone="Asia/Shanghai", workers=1)
    verbs.run_now("nightly")
    wait_until(lambda: verbs.history("nightly")[0].state.is_settled, "its first run")
    asked = ("list", "show nightly", "history nightly")
    lab.notebook(*(f"%tfcluster schedule {words}" for words in asked))
    for number, said in enumerate(("Asia/Shanghai", "next: ", "nightly-1")):
        expect(lab.run_cell(number)).to_contain_text(said)
    lab.screenshot("cells")
    lab.theme("dark")
    lab.screenshot("cells-dark")


def test_an_hourly_schedule_is_read_by_month(lab: LabPage) -> None:
    """For a day with many due times, the calendar shows how many had each result. One request loads
    a month, and arrow keys move between days.
    """
    now = datetime.now(timezone.utc)
    start = (now - timedelta(days=3)).strftime("%Y-%m-%d")
    end = (now - timedelta(days=2)).strftime("%Y-%m-%d")
    verbs = lab.server.manager.schedules
    hello = str(lab.server.root / "hello.py")
    rules = {"cron": "0 */3 * * *", "time_zone": "UTC", "catch_up": CatchUp.NONE.value}
    verbs.create("often", hello, workers=1, **rules)
    verbs.backfill("often", start, end, parallel=4)
    wait_until(
        lambda: all(each.finished_at for each in verbs.show("often").status.backfills), within=240
    )
    asked: list[str] = []
    lab.page.on("request", lambda request: asked.append(request.url))
    lab.execute("tfcluster:schedule-history", name="often")
    calendar = lab.page.locator(".tfc-Calendar")
    day = calendar.locator(f'[aria-label*="{int(start[8:])}"][data-due="true"]').first
    expect(day).to_contain_text("8")
    assert len([url for url in asked if "/schedules/often" in url]) == 2
    day.click()
    expect(calendar.locator(".tfc-Calendar-list tbody tr")).to_have_count(8)
    expect(calendar.locator(".tfc-Calendar-list tbody tr").first).to_contain_text("21:00")
    found = Findings(lab)
    found.look(".tfc-Calendar", "calendar-hourly")
    lab.page.keyboard.press("ArrowLeft")
    expect(calendar).to_contain_text("Nothing was due")
    calendar.get_by_role("button", name="Previous month").click()
    assert not found.all, "\n".join(found.all)


def test_schedules_in_chinese(fresh_server: LabServer, open_page: Callable[..., LabPage]) -> None:
    """The schedule part of the form, and the calendar, are in 简体中文."""
    setting = fresh_server.settings / LOCALE
    setting.parent.mkdir(parents=True, exist_ok=True)
    setting.write_text(json.dumps({"locale": "zh_CN"}))
    lab = open_page(fresh_server)
    hello = str(fresh_server.root / "hello.py")
    fresh_server.manager.schedules.create("nightly", hello, cron="@daily", workers=1)
    lab.execute("tfcluster:launch", repeat=True, program="hello.py")
    form = lab.page.locator(".tfc-LaunchForm")
    expect(form.get_by_role("heading", name="重复这次启动")).to_be_visible()
    expect(form.locator(".tfc-Coming li")).to_have_count(5)
    dates = re.compile(r"\d{4}年\d{1,2}月\d{1,2}日")  # although the browser is English
    expect(form.locator(".tfc-Coming li").first).to_have_text(dates)
    form.get_by_text("重叠、重试与失败").click()
    lab.screenshot("repeat-zh")
    lab.execute("tfcluster:schedule-history", name="nightly")
    calendar = lab.page.locator(".tfc-Calendar")
    expect(calendar).to_contain_text("这个月没有计划时间。")
    expect(calendar).to_contain_text(dates)
    lab.screenshot("calendar-zh")
    delete_all(fresh_server)
