"""The launch form in a browser with problems: refusals, mistakes, an unreachable server."""

from __future__ import annotations

import contextlib
import re
import urllib.parse

import pytest
from playwright.sync_api import Error, Locator, Route, expect
from support.ui import flows
from support.ui.launch_form import button, form, launch
from support.ui.page import LabPage

__all__ = ["form"]  # a fixture used by the tests below


def test_a_run_that_failed_is_not_told_as_one_that_goes_well(lab: LabPage) -> None:
    """The form shows the current state of its launched run until the run is deleted."""
    flows.launch_what_fails(lab)


def test_what_does_not_fit_says_what_would(lab: LabPage, form: Locator) -> None:
    """If there are not enough resources for the workers, a button enters the number of workers that
    fits; with it, the launch succeeds.
    """
    each = int(lab.server.manager.options().memory.free / 2.5 / 2**20)
    form.get_by_label("Path of the program").fill("hello.py")
    form.get_by_label("Workers").fill("6")
    form.get_by_text("Resources").click()
    form.get_by_label("Worker: Memory").fill(f"{each}Mi")
    expect(button(form)).to_have_attribute("aria-disabled", "true")
    expect(form.get_by_label("Workers")).to_have_attribute("aria-invalid", "true")
    lab.screenshot("refused")
    lab.theme("dark")
    lab.screenshot("refused-dark")
    form.get_by_role("button", name=re.compile(r"^Use \d+$")).click()
    launch(form)
    expect(form.get_by_text("hello-1 was launched.")).to_be_visible()


@pytest.mark.same_page
def test_every_mistake_stands_at_its_input(lab: LabPage, form: Locator) -> None:
    """Several mistakes are shown at once, each at its input."""
    form.get_by_label("Path of the program").fill("helo.py")
    form.get_by_label("Name", exact=True).fill("Not A Name")
    form.get_by_label("Arguments").fill("--epochs 'three")
    form.get_by_text("Limits").click()
    form.get_by_label("Maximum duration").fill("soon")
    expect(form.get_by_text(re.compile("did you mean hello.py"))).to_be_visible()
    expect(form.get_by_text("a quote is not closed")).to_be_visible()
    expect(form.get_by_label("Maximum duration")).to_have_accessible_description(
        re.compile("1h30m")
    )
    expect(form.get_by_label("Name", exact=True)).to_have_accessible_description(
        re.compile("lower-case")
    )
    expect(form.get_by_text("4 things have to be changed first.")).to_be_visible()
    button(form).press("Enter")  # a click would wait until the button is enabled
    expect(form.get_by_label("Path of the program")).to_be_focused()
    assert lab.server.manager.list() == []


@pytest.mark.same_page
def test_an_empty_form_does_not_scold(lab: LabPage, form: Locator) -> None:
    """A missing value is not a mistake until the user tries to launch."""
    expect(form.get_by_text("Choose a program first.")).to_be_visible()
    expect(form.locator("[aria-invalid='true']")).to_have_count(0)
    lab.screenshot("empty")
    lab.theme("dark")
    lab.screenshot("empty-dark")
    button(form).press("Enter")  # a click would wait until the button is enabled
    expect(form.get_by_label("Path of the program")).to_have_attribute("aria-invalid", "true")


def test_a_server_that_is_away_loses_nothing_that_was_typed(lab: LabPage, form: Locator) -> None:
    """While the server does not answer, the form says so, keeps the input, and recovers."""
    lab.console.allow("tfcluster/api")
    lab.page.route("**/tfcluster/api/clusters/plan*", lambda route: route.abort())
    form.get_by_label("Path of the program").fill("hello.py")
    expect(form.get_by_role("alert")).to_contain_text("Your input is kept.")
    expect(button(form)).to_have_attribute("aria-disabled", "true")
    form.get_by_role("button", name="Try again").click()
    lab.page.unroute("**/tfcluster/api/clusters/plan*")
    expect(form.get_by_role("alert")).to_have_count(0)
    expect(form.get_by_label("Path of the program")).to_have_value("hello.py")
    launch(form)
    expect(form.get_by_text("hello-1 was launched.")).to_be_visible()


def test_a_slow_answer_does_not_overwrite_a_newer_one(lab: LabPage, form: Locator) -> None:
    """A late answer about older input does not replace the answer about newer input."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        if '"slow"' in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    lab.page.route("**/tfcluster/api/clusters/plan*", hold)
    with lab.page.expect_request("**/clusters/plan*"):
        form.get_by_label("Name", exact=True).fill("slow")
    form.get_by_label("Name", exact=True).fill("quick")
    line = form.locator(".tfc-Line code")
    expect(line).to_contain_text("--name quick")
    for route in held:
        with contextlib.suppress(Error):  # the page has cancelled this request
            route.continue_()
    form.get_by_label("Arguments").fill("x")
    expect(line).to_have_text("%tfcluster launch --name quick -- x")
    assert held


def test_a_launch_that_is_asked_for_early_waits_for_the_answer(lab: LabPage, form: Locator) -> None:
    """If the user launches before the server has checked the form's program, the form waits for the
    result of the check, and then launches.
    """
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    lab.page.route("**/tfcluster/api/clusters/plan*", hold)
    with lab.page.expect_request("**/clusters/plan*"):
        form.get_by_label("Path of the program").fill("hello.py")
    button(form).press("Enter")  # a click would wait until the button is enabled
    expect(form.get_by_label("Path of the program")).not_to_be_focused()
    lab.page.unroute("**/tfcluster/api/clusters/plan*")
    for route in held:
        with contextlib.suppress(Error):  # the page has cancelled this request
            route.continue_()
    expect(form.get_by_text("hello-1 was launched.")).to_be_visible()


@pytest.mark.same_page
def test_what_came_from_a_name_is_text(lab: LabPage, form: Locator) -> None:
    """Markup in the input is shown as text, never run."""
    evil = "<img src=x onerror='window.__pwned=1'>.py"
    form.get_by_label("Path of the program").fill(evil)
    expect(form.locator(".tfc-Line code")).to_contain_text("<img src=x")
    assert lab.pwned() is None
    assert urllib.parse.unquote(lab.page.url).startswith(lab.server.url)
