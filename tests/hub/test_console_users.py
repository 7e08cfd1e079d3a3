"""Users of a real hub in the admin console: list, import, overrides and notebook servers."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect
from support.hub.console_clients import (
    SLEEP,
    Console,
    looked_at,
    page,
    refused,
    shell,
    sign_in_to,
    token,
)
from support.hub.make_run import OWNER, PASSWORD, Hub, Visitor
from support.hub.markup import HTML
from support.hub.pages import accessible

__all__ = ["page"]  # a fixture used by the tests below
NAME = "<img src=x onerror=alert(1)>"
CLASS = f"""name,group,full name
kim,ml101,Kim
"a/b",ml101,Nobody
lee,,Lee
Kim,ml101,Kim again
zoë,ml 101,Zoë
"{NAME}",,"a
name of two lines"
noor,vision,Noor
"""
POLICY = """
default: {quota: {cpu: 2, memory: 8Gi, pods: 4}}
groups:
  ml101: {priority: 1, quota: {cpu: 4}}
  vision: {priority: 5, quota: {gpu: 2}}
"""


@pytest.fixture(scope="module")
def hub(start_hub: Callable[..., Hub]) -> Hub:
    """A hub below a base URL, with a policy."""
    hub = start_hub(base_url="/tf/")
    (hub.state / "hub" / "policy.yaml").write_text(POLICY)
    return hub


@pytest.fixture(scope="module")
def console(admin: Visitor) -> Console:
    """The console, open in the owner's browser."""
    return Console(admin)


def lines(console: Console, **words: object) -> dict[str, dict[str, object]]:
    """Import the class CLASS, and return the result of each line by the line's number."""
    answer = console.ask(
        "POST", "api/users/import", json={"csv": CLASS, "withoutNotebook": True, **words}
    )
    assert answer.status_code == 200, answer.text
    return {str(one["line"]): one for one in answer.json()["lines"]}


def users(console: Console, words: str = "") -> dict[str, dict[str, object]]:
    """Return the rows of the user list, by name."""
    answer = console.ask("GET", f"api/users{words}")
    assert answer.status_code == 200, answer.text
    return {one["name"]: one for one in answer.json()["items"]}


def test_a_class_is_imported_once(hub: Hub, console: Console) -> None:
    """An import has a dry run, reports wrong lines without skipping others, and can be repeated."""
    tried = lines(console, group="ml101", dryRun=True)
    assert users(console).keys() == {OWNER}
    done = lines(console, group="ml101")
    again = lines(console, group="ml101")
    found = users(console)

    assert [number for number, one in done.items() if one["ok"]] == ["2", "4", "7", "9"]
    assert "no /" in str(done["3"]["detail"]) and "'a/b'" in str(done["3"]["detail"])
    assert "line 2 already has this user" in str(done["5"]["detail"])
    assert "'ml 101'" in str(done["6"]["detail"]) and "without spaces" in str(done["6"]["detail"])
    assert [one["steps"] for one in tried.values()] == [one["steps"] for one in done.values()]
    assert done["2"]["steps"] == ["account", "group"]
    assert not any(one["steps"] or one["link"] for one in again.values())
    assert found.keys() == {OWNER, "kim", "lee", "noor", NAME}
    assert (found["noor"]["group"], found["noor"]["allowed"]["gpu"]) == ("vision", 2)
    assert (found["kim"]["group"], found["kim"]["allowed"]["cpu"]) == ("ml101", 4)
    kim = hub.visitor()
    kim.set_password(str(done["2"]["link"]))
    assert hub.visitor("kim").signed_in
    password = {"state": "password", "linkUntil": None}
    hub.until(lambda: users(console, "?q=kim")["kim"]["account"] == password, "a password")


def test_two_imports_at_once_leave_one_link_for_each(hub: Hub, console: Console) -> None:
    """The second of two simultaneous imports waits, and has nothing left to do."""
    text = "name\n" + "\n".join(f"pair{number}" for number in range(40))

    def one(_number: int) -> list[dict[str, object]]:
        found = console.ask(
            "POST",
            "api/users/import",
            json={"csv": text, "group": "ml101", "withoutNotebook": True},
        )
        assert found.status_code == 200, found.text
        return found.json()["lines"]

    with ThreadPoolExecutor(2) as both:
        told = sorted(both.map(one, range(2)), key=lambda lines: bool(lines[0]["link"]))
    assert not any(one["steps"] or one["link"] for one in told[0])
    assert all(one["link"] for one in told[1])
    assert hub.visitor().set_password(str(told[1][-1]["link"])).status_code == 302
    assert console.ask("GET", "api/users/import").json() == {"done": 0, "total": 0}


def test_what_is_no_class_is_refused_as_a_whole(console: Console) -> None:
    """A file that is not a class list is refused with the line, its text and what is allowed."""
    for text in ("surname\nkim", "", 'name\n"kim'):
        answer = console.ask("POST", "api/users/import", json={"csv": text})
        assert refused(answer, 422)
        assert "line" in answer.text
    assert refused(console.ask("GET", "api/users?server=asleep"), 422)
    body = {"csv": "name\nkim", "group": "a b"}
    assert refused(console.ask("POST", "api/users/import", json=body), 422)


def test_a_class_that_is_too_large_is_refused_with_the_limit(console: Console) -> None:
    """The administrator gets the refusal of a class that is too large, although the hub's proxy is
    in between. If the console broke the connection instead, the proxy would answer 503.
    """
    text = "name\n" + "student\n" * 400_000
    assert console.ask("GET", "api/users/import").json() == {"done": 0, "total": 0}
    answer = console.ask("POST", "api/users/import", json={"csv": text})
    assert refused(answer, 413)
    assert "at most 1 MiB" in answer.json()["detail"]
    assert console.ask("GET", "api/users/import").json() == {"done": 0, "total": 0}


def test_one_user_is_allowed_more_until_then(hub: Hub, console: Console) -> None:
    """A running notebook gets an override at once. A launch beyond the override is refused with
    advice.
    """
    body = {"users": [OWNER], "do": "start"}
    assert console.ask("POST", "api/users/servers", json=body).json()["results"][0]["ok"]
    hub.until(lambda: users(console)[OWNER]["server"] == "running", "a server", 150)
    file = hub.state / "hub" / "limits" / f"{OWNER}.json"
    env = {"TFCLUSTER_LIMITS": str(file)}
    program = hub.folder / "sleep.py"
    program.write_text(SLEEP)
    words = ("launch", str(program), "--workers", "3", "--worker-cpu", "1", "--name", "more")
    too_much = shell(hub, *words, **env)
    until = time.time() + 3600
    made = {"until": until, "reason": HTML, "quota": {"cpu": 6}}
    assert refused(console.ask("PUT", "api/overrides/nobody", json=made), 404)
    wrong = console.ask("PUT", f"api/overrides/{OWNER}", json={**made, "quota": {"cpu": "six"}})
    assert refused(wrong, 422) and "a number of cores" in wrong.text
    assert console.ask("PUT", f"api/overrides/{OWNER}", json=made).status_code == 200
    launched = shell(hub, *words, **env)
    row = users(console)[OWNER]
    hub.until(lambda: users(console)[OWNER]["used"]["cpu"] == 3, "counted as used")

    assert too_much.returncode == 3, too_much.stderr
    assert "your limit is 2 CPU cores at the same time" in too_much.stderr
    assert launched.returncode == 0, launched.stderr
    assert row["allowed"] == {**row["allowed"], "cpu": 6, "pods": 4}
    assert row["override"] == {"until": until, "reason": HTML}
    assert console.ask("DELETE", f"api/overrides/{OWNER}").status_code == 200
    assert json.loads(file.read_bytes())["quota"] == {"cpu": 2, "memory": "8Gi", "pods": 4}
    assert refused(console.ask("DELETE", f"api/overrides/{OWNER}"), 404)
    environ = [one.environ() for one in hub.processes("jupyterhub.singleuser")]
    assert [one.get("TFCLUSTER_LIMITS") for one in environ] == [str(file)]


def test_servers_are_stopped(hub: Hub, console: Console) -> None:
    """A stop gets one answer for each user, with the reason of a failure; clusters continue."""
    body = {"users": [OWNER, "nobody"], "do": "stop"}
    told = console.ask("POST", "api/users/servers", json=body).json()["results"]
    hub.until(lambda: users(console)[OWNER]["server"] == "stopped", "stopped")

    assert [one["ok"] for one in told] == [True, False]
    assert hub.manager.status("more").active
    delete = {"users": [OWNER], "do": "delete"}
    assert refused(console.ask("POST", "api/users/servers", json=delete), 422)
    log = console.ask("GET", "api/audit?limit=200").json()["items"]
    assert {"import", "override", "clear override", "start server", "stop server"} <= {
        one["what"] for one in log
    }
    assert next(one for one in log if one["what"] == "override")["reason"] == HTML


def test_a_mistake_in_the_policy_changes_nothing(hub: Hub, console: Console) -> None:
    """After a mistake in the policy, the next notebook has the old limits, and the log has the line
    number.
    """
    policy = hub.state / "hub" / "policy.yaml"
    file = hub.state / "hub" / "limits" / f"{OWNER}.json"
    file.unlink()
    policy.write_text("default: {quota: {cpu: two}}")
    try:
        body = {"users": [OWNER], "do": "start"}
        assert console.ask("POST", "api/users/servers", json=body).json()["results"][0]["ok"]
        hub.until(file.exists, "limits", 150)
        assert json.loads(file.read_bytes())["quota"] == {"cpu": 2, "memory": "8Gi", "pods": 4}
        assert "line 1: default.quota.cpu" in hub.said()
    finally:
        policy.write_text(POLICY)


def test_the_command_line_has_users_and_overrides(hub: Hub, admin: Visitor, tmp_path: Path) -> None:
    """`tfcluster admin` has the functions of the page; it writes links to a private file."""
    env = {"TFCLUSTER_HUB_TOKEN": token(admin, OWNER, ["access:services!service=admin"])}
    (file := tmp_path / "class.csv").write_text("name\nmax\n..\n")
    links = tmp_path / "links.csv"
    words = ("admin", "users", "import", str(file), "--group", "ml101", "--without-notebook")
    tried = shell(hub, *words, "--dry-run", **env)
    done = shell(hub, *words, "--links", str(links), **env)
    again = shell(hub, *words, **env)
    listed = shell(hub, "admin", "users", "--filter", "max", "-o", "json", **env)
    more = ("admin", "override", "set", "max", "--cpu", "32", "--until")
    given = shell(hub, *more, "24h", "--reason", "a thesis", **env)
    wrong = shell(hub, *more, "tomorrow", "--reason", "a thesis", **env)
    table = shell(hub, "admin", "users", **env)
    overrides = shell(hub, "admin", "override", "list", **env)
    cleared = shell(hub, "admin", "override", "clear", "max", **env)

    assert "would be imported" in tried.stdout and "1 of 2" in tried.stdout
    assert done.returncode == 1 and "line 3" in done.stderr, done.stderr
    assert links.stat().st_mode & 0o777 == 0o600
    assert f"max,{hub.url}/hub/set-password?code=" in links.read_text()
    assert "max: nothing to do" in again.stdout
    assert [one["groups"] for one in json.loads(listed.stdout)["items"]] == [["ml101"]]
    assert given.returncode == 0, given.stderr
    assert wrong.returncode == 2 and "2026-11-23" in wrong.stderr
    assert "a thesis" in table.stdout and "[ml101]" in table.stdout
    assert "cpu 32" in overrides.stdout and cleared.returncode == 0


def test_an_administrator_sees_users_on_the_page(hub: Hub, page: Page, shots: Path) -> None:
    """Users are listed, imported and given overrides; HTML is shown as text; axe finds no fault."""
    page.goto(f"{hub.url}/hub/login?next=/tf/services/admin/users")
    page.get_by_label("Username").fill(OWNER)
    page.locator("#password_input").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    row = page.get_by_role("row", name="kim").first
    expect(row).to_contain_text("ml101", timeout=90_000)
    expect(page.get_by_role("link", name="Users", exact=True)).to_have_attribute(
        "aria-current", "page"
    )
    expect(page.get_by_role("rowheader", name=NAME).first).to_be_visible()

    page.get_by_role("button", name="Import a class…").click()
    page.get_by_label("Or its text").fill("name,group\numa,ml101\n..,ml101\n")
    page.get_by_label("Include people who would get no notebook").check()
    page.get_by_role("button", name="Try without changing anything").click()
    expect(page.locator("#import-said")).to_contain_text(
        "1 of 2 lines would be imported. Wrong: 1."
    )
    page.screenshot(path=shots.with_name(f"{shots.name}-import.png"))
    accessible(page, "#ask-import")
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.locator("#lines")).to_contain_text(f"{hub.url}/hub/set-password?code=")
    expect(page.get_by_role("link", name="Save the links")).to_be_visible()
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_role("row", name="uma").first).to_be_visible()

    page.get_by_role("button", name="Invite…").press("Enter")
    page.get_by_label("User name").fill("tfc-guest")
    page.get_by_label("User name").press("Enter")
    expect(page.locator("#invite-said")).to_have_text(
        # the commands after it are shown without backticks
        re.compile(r"tfc-guest would get no notebook\.[^`]*$")
    )
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    accessible(page, "#ask-invite")
    page.screenshot(path=shots.with_name(f"{shots.name}-refused.png"))
    page.get_by_role("button", name="Invite without a notebook").press("Enter")
    link = page.get_by_label("Give this link to tfc-guest.")
    expect(link).to_have_value(re.compile(f"^{hub.url}/hub/set-password"))
    expect(page.get_by_role("button", name="Copy")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == link.input_value()
    accessible(page, "#ask-invite")
    page.screenshot(path=shots.with_name(f"{shots.name}-invite.png"))
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="New link for tfc-guest")).to_be_visible()
    expect(page.get_by_role("row", name="tfc-guest").first).to_contain_text("link until")

    page.get_by_role("button", name="Invite…").press("Enter")
    page.get_by_label("User name").fill(OWNER)
    page.get_by_label("User name").press("Enter")
    expect(page.locator("#invite-said")).to_contain_text("already has a password")
    expect(page.get_by_role("button", name="Invite without a notebook")).to_be_hidden()
    page.keyboard.press("Escape")
    page.get_by_role("button", name=f"New link for {OWNER}").click()
    expect(page.locator("#invite-what")).to_contain_text(
        "The password, all sessions and all tokens stop working"
    )
    page.keyboard.press("Escape")

    page.get_by_role("button", name="Override for kim").click()
    page.get_by_label("CPU cores").fill("32")
    page.get_by_label("Reason, shown to the user").fill(HTML)
    accessible(page, "#ask-override")
    page.screenshot(path=shots.with_name(f"{shots.name}-override.png"))
    page.get_by_role("button", name="Set", exact=True).click()
    expect(row).to_contain_text("0 of 32")
    expect(row).to_contain_text(HTML)
    looked_at(page, shots, row)
    page.get_by_label("Filter by name").fill("no such user")
    expect(page.get_by_text("No user matches.")).to_be_visible()


def test_the_page_says_how_far_an_import_is(hub: Hub, admin: Visitor, page: Page) -> None:
    """The page shows the progress of an import, and then its result."""
    sign_in_to(page, hub, "users")
    page.get_by_role("button", name="Import a class…").click()
    page.get_by_label("Or its text").fill("name\nida\n")
    page.get_by_label("Include people who would get no notebook").check()
    page.get_by_role("button", name="Try without changing anything").click()
    held: list[Route] = []

    def answer(route: Route) -> None:
        if route.request.method == "GET":
            route.fulfill(json={"done": 25, "total": 500})
        else:
            held.append(route)

    page.route("**/api/users/import", answer)
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.locator("#import-said")).to_have_text("25 of 500 are imported…")
    held[0].continue_()
    expect(page.locator("#import-said")).to_have_text("1 of 1 lines were imported.")


def test_the_page_uploads_no_class_that_is_too_large(hub: Hub, admin: Visitor, page: Page) -> None:
    """The page names the size limit, for a file and for text."""
    sign_in_to(page, hub, "users")
    page.get_by_role("button", name="Import a class…").click()
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url) if one.method == "POST" else None)
    text = "name\n" + ("student" * 150 + "\n") * 1_100
    file = {"name": "class.csv", "mimeType": "text/csv", "buffer": text.encode()}
    page.get_by_label("A file").set_input_files(file)  # type: ignore[arg-type]
    expect(page.locator("#import-said")).to_contain_text("larger than 1 MiB")
    # Typing so much text would take a browser minutes, so a script sets it.
    page.get_by_label("Or its text").evaluate(
        "one => { one.value = 'name\\n' + ('student'.repeat(150) + '\\n').repeat(1100) }"
    )
    page.locator("#import-said").evaluate("one => { one.textContent = '' }")
    page.get_by_role("button", name="Try without changing anything").click()
    expect(page.locator("#import-said")).to_contain_text("larger than 1 MiB")
    assert asked == []


def test_who_is_no_administrator_changes_nobody(hub: Hub, console: Console) -> None:
    """A user without rights can change nothing by page or request, nor can a forged request."""
    hub.visitor().set_password(hub.accounts("invite", "guest").strip())
    guest = Console(hub.visitor("guest"))
    doors = (
        ("GET", "api/users"),
        ("GET", "api/users/import"),
        ("POST", "api/users/import"),
        ("POST", "api/users/links"),
        ("POST", "api/users/servers"),
        ("PUT", "api/overrides/guest"),
        ("POST", "api/archives"),
        ("GET", "api/archives/x.tar.gz"),
        ("DELETE", "api/archives/x.tar.gz"),
    )
    for method, path in doors:
        assert guest.ask(method, path, json={}).status_code in (401, 403)
        assert refused(console.ask(method, path, xsrf="forged", json={}), 403)
    assert guest.visitor.get(guest.url + "users").status_code == 403
