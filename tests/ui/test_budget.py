"""A budget of hours in the launch form in a browser: the hours left, a warning, a refusal."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect
from support.ui.lab_server import LabServer
from support.ui.launch_form import button, launch, opened
from support.ui.page import LabPage

from tfcluster_magic.quota.ledger import Hours, Ledger
from tfcluster_magic.spec import to_json


def allow(server: LabServer, cpu_hours: float, spent: float) -> str:
    """Set the weekly budget and the hours spent today; return when hours become free again."""
    today = datetime.now(timezone.utc).date()
    held = Ledger(days={today.isoformat(): {"ml101": {"digits": Hours(cpu=spent)}}})
    server.state.mkdir(mode=0o700, exist_ok=True)
    (server.state / "hours.json").write_bytes(to_json(held))
    budget = {"group": "ml101", "budget": {"cpuHours": cpu_hours}}
    server.limits.write_text(json.dumps(budget))
    return (today + timedelta(days=7)).isoformat()


def test_what_is_left_of_a_budget_stands_in_the_form(lab: LabPage) -> None:
    """The form shows what is left of the budget, as a warning once 80 % are used. If nothing is
    left, the launch is disabled, and the form says when hours become free and whom to ask. A higher
    budget appears without a reload.
    """
    allow(lab.server, 20, spent=12)
    form = opened(lab)
    form.get_by_label("Path of the program").fill("hello.py")
    name = form.get_by_label("Name", exact=True)
    warning = form.locator(".tfc-mod-warning")
    expect(form.get_by_text("8 of 20 CPU·h left this week")).to_be_visible()
    expect(warning).to_have_count(0)
    lab.screenshot("left")

    back = allow(lab.server, 20, spent=16.8)
    name.fill("little")
    expect(form.get_by_text("3.2 of 20 CPU·h left this week")).to_be_visible()
    expect(warning).to_have_text(
        "16.8 of 20 CPU·h this week are used: with none left, nothing new starts; "
        f"16.8 CPU·h come back on {back} (0:00 UTC)"
    )
    expect(button(form)).not_to_have_attribute("aria-disabled", "true")
    lab.screenshot("little")

    back = allow(lab.server, 20, spent=20)
    name.fill("none")
    refusal = form.locator(".tfc-mod-wrong")
    expect(refusal).to_have_text(
        "20 of 20 CPU·h this week are used, and nothing new starts; "
        f"20 CPU·h come back on {back} (0:00 UTC); for more, ask an administrator of the hub"
    )
    expect(button(form)).to_have_attribute("aria-disabled", "true")
    button(form).press("Enter")  # a click would wait until the button is enabled
    assert lab.server.manager.list() == []
    lab.screenshot("none")
    lab.theme("dark")
    lab.screenshot("none-dark")
    found = Axe().run(lab.page, context=".tfc-LaunchForm").response["violations"]
    assert [(v["id"], v["nodes"][0]["html"]) for v in found] == []

    allow(lab.server, 40, spent=20)  # the form updates without any input
    expect(refusal).to_have_count(0)
    expect(form.get_by_text("20 of 40 CPU·h left this week")).to_be_visible()
    launch(form)
    expect(form.get_by_text("none-1 was launched.")).to_be_visible()
