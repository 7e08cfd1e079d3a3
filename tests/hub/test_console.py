"""The admin console of a real hub: what an administrator sees and does, and who is refused."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from jupyterhub.utils import wait_for_http_server
from msgspec.structs import replace
from playwright.sync_api import Page, Route, expect
from support.hostile_requests import Attack, all_wrong, huge_bodies, unclear_lengths
from support.hub.console_clients import (
    SLEEP,
    Console,
    by_token,
    looked_at,
    page,
    refused,
    said_in_log,
    shell,
    sign_in_to,
    token,
)
from support.hub.make_run import OWNER, PASSWORD, Hub, Visitor
from support.hub.markup import HTML
from support.hub.pages import accessible

from tfcluster_magic.backends.local.schedule_store import LocalSchedules, with_status
from tfcluster_magic.hub.console.routes import ROUTES
from tfcluster_magic.schedules import Occurrence, OccurrenceState, Schedule

__all__ = ["page"]  # a fixture used by the tests below
PLANS = (("nightly", "0 2 * * *", "Asia/Shanghai"), ("hourly", "@hourly", "UTC"))


@pytest.fixture(scope="module")
def hub(start_hub: Callable[..., Hub]) -> Hub:
    """A hub below a base URL."""
    return start_hub(base_url="/tf/")


@pytest.fixture(scope="module")
def guest(hub: Hub, admin: Visitor) -> Visitor:
    """A user of the hub who is not an administrator."""
    hub.visitor().set_password(hub.accounts("invite", "guest").strip())
    return hub.visitor("guest")


@pytest.fixture(scope="module")
def console(admin: Visitor) -> Console:
    """The console, open in the owner's browser."""
    return Console(admin)


def test_an_administrator_stops_a_cluster_and_its_owner_reads_why(
    hub: Hub, admin: Visitor, page: Page, shots: Path
) -> None:
    """An administrator sees, filters, reads and stops clusters; HTML is shown as text; axe finds no
    fault.
    """
    hub.launch(SLEEP, "digits", workers=1)
    hub.launch(SLEEP, "other", workers=1)
    page.goto(f"{hub.url}/hub/login?next=/tf/hub/home")
    page.get_by_label("Username").fill(OWNER)
    page.locator("#password_input").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("link", name="Clusters").click()
    row = page.get_by_role("row", name="digits-1")
    expect(row).to_contain_text("Running", timeout=90_000)
    looked_at(page, shots, row)

    page.get_by_label("Filter by owner").fill("dig")
    expect(page.get_by_role("row", name="other-1")).to_have_count(0)
    page.locator("th[data-key=age] button").click()
    expect(page.locator("th[data-key=age]")).to_have_attribute("aria-sort", "descending")
    row.get_by_role("button", name="last lines").click()
    expect(page.locator("#log")).to_contain_text("<b>line</b> of")
    accessible(page, "#show-log")
    page.get_by_role("button", name="Close").click()

    row.get_by_role("checkbox").check()
    page.get_by_role("button", name="Stop 1…").click()
    asking = page.get_by_role("dialog")
    expect(asking).to_contain_text(f"digits-1 of {OWNER}")
    asking.get_by_role("button", name="Stop", exact=True).click()
    expect(asking).to_contain_text("Give a reason")
    asking.get_by_label("Reason").fill(HTML)
    accessible(page, "#ask")
    page.screenshot(path=shots.with_name(f"{shots.name}-stop.png"))
    asking.get_by_role("button", name="Stop", exact=True).click()
    expect(row).to_have_count(0, timeout=90_000)
    page.get_by_role("button", name="Show ended").press("Enter")
    expect(row).to_contain_text(f"Stopped by admin {OWNER}: {HTML}", timeout=90_000)
    expect(row).to_contain_text("1 worker")
    looked_at(page, shots.with_name(f"{shots.name}-ended"))

    page.get_by_role("link", name="Audit").click()
    entry = page.get_by_role("row", name=re.compile("stop .*digits-1"))
    expect(entry).to_contain_text("done")
    expect(entry).to_contain_text(HTML)
    expect(page.get_by_role("row", name=re.compile("logs .*digits-1 worker-0"))).to_have_count(1)
    accessible(page)
    page.screenshot(path=shots.with_name(f"{shots.name}-audit.png"))
    page.get_by_role("link", name="Clusters").click()
    page.get_by_label("Filter by owner").fill("no such cluster")
    expect(page.get_by_text("No cluster matches.")).to_be_visible()
    page.get_by_role("button", name="Find leaks").click()
    expect(page.locator("#leaks li").first).to_be_visible()
    page.screenshot(path=shots.with_name(f"{shots.name}-end.png"), full_page=True)

    told = shell(hub, "status", "digits").stdout
    assert f"Stopped by admin {OWNER}: {HTML}" in told


def test_an_administrator_pauses_a_schedule_and_its_owner_cannot_resume_it(
    hub: Hub, admin: Visitor, page: Page, shots: Path
) -> None:
    """The page lists schedules with their last due times; a pause asks for a reason, which the
    owner reads; a command resumes the schedule, and the audit log has the pause and the resumption.
    """
    sign_in_to(page, hub, "schedules")
    expect(page.get_by_text("There are no schedules yet.")).to_be_visible(timeout=90_000)
    accessible(page)
    page.screenshot(path=shots.with_name(f"{shots.name}-none.png"))
    (hub.root / "nightly.py").write_text("print('trained')")
    for name, cron, zone in PLANS:
        words = ("--cron", cron, "--time-zone", zone, "--workers", "1")
        program = str(hub.root / "nightly.py")
        made = shell(hub, "schedule", "create", name, *words, program, TFCLUSTER_NO_CLOCK="1")
        assert made.returncode == 0, made.stderr
    store = LocalSchedules(hub.state, knocks=False)
    store.change("nightly", with_history)
    shell(hub, "schedule", "pause", "hourly", "--reason", "data repair", TFCLUSTER_NO_CLOCK="1")
    page.reload()
    row = page.get_by_role("row", name="nightly")
    expect(row).to_contain_text("Asia/Shanghai", timeout=90_000)
    expect(page.get_by_role("row", name="hourly")).to_contain_text("data repair")
    looked_at(page, shots, row)

    row.get_by_role("checkbox").check()
    page.get_by_role("button", name="Pause 1…").click()
    asking = page.get_by_role("dialog")
    expect(asking).to_contain_text(f"nightly of {OWNER}")
    asking.get_by_role("button", name="Pause", exact=True).click()
    expect(asking).to_contain_text("Give a reason")
    asking.get_by_label("Reason").fill(HTML)
    accessible(page, "#ask")
    page.screenshot(path=shots.with_name(f"{shots.name}-pause.png"))
    asking.get_by_role("button", name="Pause", exact=True).click()
    expect(row).to_contain_text(f"Paused by admin {OWNER}", timeout=90_000)
    expect(row).to_contain_text(HTML)
    looked_at(page, shots.with_name(f"{shots.name}-paused"))
    page.get_by_role("button", name="Active").click()
    expect(page.get_by_text("No schedule matches.")).to_be_visible()
    expect(row).to_have_count(0)

    shown = shell(hub, "schedule", "show", "nightly").stdout
    assert f"nightly is paused by admin {OWNER}: {HTML}" in shown
    refused_to_owner = shell(hub, "schedule", "resume", "nightly")
    assert refused_to_owner.returncode == 5
    assert "only an administrator can resume it" in refused_to_owner.stderr
    listed = shell(hub, "admin", "schedules", "--state", "Paused")
    assert f"paused by admin {OWNER}" in listed.stdout and "data repair" in listed.stdout
    others = shell(hub, "admin", "resume", f"{OWNER}/hourly")
    assert others.returncode == 1 and "not paused by an administrator" in others.stderr
    again = shell(hub, "admin", "pause", f"{OWNER}/nightly", "--reason", "again", "--yes")
    assert again.returncode == 1 and f"already paused by admin {OWNER}" in again.stderr
    resumed = shell(hub, "admin", "resume", f"{OWNER}/nightly", "--reason", "repaired")
    assert f"{OWNER}/nightly is resumed" in resumed.stdout, resumed.stderr
    assert "due next" in shell(hub, "schedule", "show", "nightly").stdout
    audit = shell(hub, "admin", "audit").stdout
    assert "pause schedule" in audit and "resume schedule" in audit and "repaired" in audit
    for name, _cron, _zone in PLANS:
        shell(hub, "schedule", "delete", name, "--yes")


def with_history(schedule: Schedule) -> Schedule:
    """Return the schedule with past due times that ended in different ways."""
    now = time.time()
    states = [OccurrenceState.SUCCEEDED, OccurrenceState.FAILED, OccurrenceState.SKIPPED]
    past = [
        Occurrence(due=now - 86400 * (12 - at), state=states[at % 4 % 3], run=f"nightly-{at}")
        for at in range(12)
    ]
    return with_status(schedule, replace(schedule.status, occurrences=tuple(past)))


def test_rows_of_the_last_look_are_told_as_such(hub: Hub, admin: Visitor, page: Page) -> None:
    """The two pages with clusters mark cached rows as such until fresh rows arrive."""
    note = "from 61 seconds ago; updating…"

    def old(route: Route) -> None:
        known = ("if-none-match", "etag")  # without these headers the answer is never 304
        asked = {k: text for k, text in route.request.headers.items() if k not in known}
        found = route.fetch(headers=asked)
        headers = {k: text for k, text in found.headers.items() if k not in known}
        route.fulfill(response=found, headers=headers, json={**found.json(), "note": note})

    sign_in_to(page, hub, "users")
    for name, api in (("Users", "users"), ("Clusters", "clusters")):
        page.route(f"**/services/admin/api/{api}?*kept=true*", old)
        page.get_by_role("link", name=name, exact=True).click()
        expect(page.locator("#note")).to_have_text(note, timeout=90_000)
        accessible(page)
        page.unroute_all(behavior="wait")
        expect(page.locator("#note")).to_be_hidden(timeout=90_000)


def test_who_has_the_page_open_asks_cheaply(hub: Hub, console: Console) -> None:
    """An open page does not receive unchanged data again."""
    hub.launch(SLEEP, "quiet", workers=1)
    hub.until(lambda: hub.manager.status("quiet").status.phase.value == "Running", "running")
    path = "api/clusters?q=quiet"
    told = console.ask("GET", f"{path}&kept=true").json()
    assert abs(told["seenAt"] - time.time()) < 60 and told["note"] == ""
    assert refused(console.ask("GET", f"{path}&kept=perhaps"), 422)

    def shown() -> list[str]:
        return [row["phase"] for row in console.ask("GET", path).json()["items"]]

    # This may be False at first: runs of other tests may end between the two requests.
    def is_the_same() -> bool:
        first = console.ask("GET", path)
        headers = {"If-None-Match": first.headers["Etag"]}
        again = console.visitor.session.get(console.url + path, headers=headers, timeout=120)
        return again.status_code == 304 and not again.content

    hub.until(lambda: shown() == ["Running"], "seen as running")
    hub.until(is_the_same, "not sent again")
    assert refused(console.ask("GET", "api/clusters?limit=0"), 422)
    assert refused(console.ask("GET", "api/clusters?sort=colour"), 422)


def test_what_cannot_be_stopped_says_why_beside_what_can(hub: Hub, console: Console) -> None:
    """A stop needs a reason, gets one answer for each run, and does not stop a newer run of the
    same name.
    """
    hub.launch(SLEEP, "many", workers=1)
    runs = [
        {"owner": OWNER, "name": "many-1", "uid": "another"},
        {"owner": OWNER, "name": "none-1"},
        {"owner": "nobody", "name": "many-1"},
        {"owner": OWNER, "name": "many-1"},
    ]
    no_reason = console.ask("POST", "api/clusters/stop", json={"runs": runs, "reason": " "})
    answer = console.ask("POST", "api/clusters/stop", json={"runs": runs, "reason": "an exam"})
    told = answer.json()["results"]

    assert refused(no_reason, 422)
    assert [one["ok"] for one in told] == [False, False, False, True]
    assert "another run" in told[0]["detail"]
    hub.until(lambda: not hub.manager.status("many").active, "stopped")
    assert "already" in str(console.stop("many-1", "again")["detail"])


def test_what_nobody_owns_is_found_and_removed(hub: Hub, console: Console) -> None:
    """The console finds and removes a process without a run, and the folder of a killed launch."""
    left = hub.state / "runs" / "half" / "1"
    left.mkdir(parents=True)
    os.utime(left, (1, 1))
    env = {**hub.environment, "TFCLUSTER_RUN_UID": "of-no-run"}
    process = subprocess.Popen(["sleep", "3600"], env=env)
    try:
        found = {one["id"]: one for one in console.ask("GET", "api/leaks").json()["items"]}
        for name in ("processes:of-no-run", "folder:half/1"):
            body = {"owner": found[name]["owner"], "id": name}
            assert console.ask("DELETE", "api/leaks", json=body).status_code == 200
        assert process.wait(90) == -9
        assert not left.exists()
        assert refused(console.ask("DELETE", "api/leaks", json=body), 404)
    finally:
        process.kill()


def test_the_audit_log_is_appended_to_and_exported(hub: Hub, console: Console) -> None:
    """Each change is written to disk before and after it is made; only the hub's account can read
    the log.
    """
    file = hub.state / "hub" / "audit.jsonl"
    before = file.read_bytes() if file.exists() else b""
    console.stop("none-1", "for the log")
    exported = console.ask("GET", "api/audit/export")
    lines = [json.loads(line) for line in exported.text.splitlines()]
    stops = [line for line in lines if line["reason"] == "for the log"]

    assert file.read_bytes().startswith(before)
    assert file.stat().st_mode & 0o777 == 0o600
    assert [line["result"] == "asked" for line in stops] == [True, False]
    assert stops[0]["id"] == stops[1]["id"] and stops[0]["who"] == OWNER
    newest = console.ask("GET", "api/audit?limit=2").json()["items"]
    assert newest[0]["what"] == "export audit log"
    assert newest[1]["target"] == "none-1" and newest[1]["result"] != "asked"


def test_hostile_requests_are_refused_without_a_traceback(hub: Hub, admin: Visitor) -> None:
    """Every route of console and hub answers a stranger without waiting for the 90 MB that the
    request announces, and refuses a body without a clear length; no log has a traceback.
    """
    hub_port, _proxy, port = json.loads((hub.state / "hub" / "ports.json").read_text())
    since = len(said_in_log(hub, 0))
    strangers = []
    for pattern, _handler in ROUTES:
        path = "services/admin/" + pattern.replace("([^/]+)", "x").replace("\\", "")
        allowed = frozenset({401, 403})
        for method in ("GET", "POST", "PUT", "DELETE"):
            strangers.append(Attack("a stranger", method, path, (), b"", allowed, False))
            strangers += huge_bodies(method, path, allowed, signed_in=False)
    credentials = {"Authorization": f"Bearer {token(admin, OWNER)}"}
    known = [
        *unclear_lengths("POST", "services/admin/api/users/import"),
        *huge_bodies("POST", "services/admin/api/users/import", frozenset({413}), signed_in=True),
    ]
    assert all_wrong(("127.0.0.1", port), [*strangers, *known], hub.base_url, credentials) == []
    of_hub = [
        *huge_bodies("POST", "hub/login", frozenset({400}), signed_in=True),
        *huge_bodies("POST", "hub/set-password", frozenset({400}), signed_in=True),
        *unclear_lengths("POST", "hub/login"),
    ]
    assert all_wrong(("127.0.0.1", hub_port), of_hub, hub.base_url) == []
    assert "Traceback" not in said_in_log(hub, since)


def test_a_user_gets_no_page_and_no_answer(hub: Hub, guest: Visitor) -> None:
    """A user gets no link, page or API response of the console; a stranger must sign in."""
    opened = Console(guest)
    nobody = requests.get(f"{hub.url}/services/admin/api/clusters", timeout=120)

    assert "services/admin" not in guest.get("home").text
    assert opened.opened.status_code == 403
    assert "Not allowed" in opened.opened.text and not opened.xsrf
    assert refused(opened.ask("GET", "api/clusters"), 401)
    assert refused(nobody, 401)


def test_the_hubs_check_of_the_console_starts_no_sign_in(hub: Hub, admin: Visitor) -> None:
    """The hub requests the console once a minute to see whether it is up, and collects no cookie of
    a sign-in that nobody completes; a browser is sent to the sign-in.
    """
    url = f"{hub.url}/services/admin/"

    async def twice() -> list[str]:
        return [name for _ in range(2) for name in (await wait_for_http_server(url)).cookies]

    with ThreadPoolExecutor(1) as pool:  # browsers of other tests keep a loop in this thread
        names = pool.submit(lambda: asyncio.run(twice())).result()
    assert [name for name in names if "oauth-state" in name] == []
    opened = hub.visitor().get(url, allow_redirects=False)
    assert opened.status_code == 302
    assert "service-admin-oauth-state" in opened.cookies
    assert admin.get(url).status_code == 200


def test_tokens_of_users_and_notebooks_are_refused(
    hub: Hub, admin: Visitor, guest: Visitor
) -> None:
    """Only an administrator's own token with the right scope is accepted."""
    admins = token(admin, OWNER, ["access:services!service=admin"])
    assert by_token(hub, admins).status_code == 200
    assert refused(by_token(hub, token(guest, "guest")), 403)
    assert refused(by_token(hub, token(admin, OWNER, ["read:users!user"])), 403)
    notebook = token(admin, OWNER, ["users:activity!user", "access:servers!user"])
    assert refused(by_token(hub, notebook), 403)
    assert refused(by_token(hub, "made up"), 401)
    in_address = f"{hub.url}/services/admin/api/clusters?token={admins}"
    assert refused(requests.get(in_address, timeout=120), 401)


def test_a_forged_request_of_a_signed_in_browser_is_refused(hub: Hub, console: Console) -> None:
    """A request without the page's XSRF token, or with a wrong one, changes nothing."""
    hub.launch(SLEEP, "forged", workers=1)
    body = {"runs": [{"owner": OWNER, "name": "forged-1"}], "reason": "forged"}
    for xsrf in ("", "forged", "a" * len(console.xsrf)):
        assert refused(console.ask("POST", "api/clusters/stop", xsrf=xsrf, json=body), 403)
        assert refused(console.ask("GET", "api/clusters", xsrf=xsrf), 403)
    plain = console.visitor.session.post(
        console.url + "api/clusters/stop", data=json.dumps(body), timeout=120
    )

    assert refused(plain, 403)
    assert hub.manager.status("forged").spec.stop is None
    policy = console.opened.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy


def test_a_former_administrator_with_an_open_page_is_out_at_once(
    hub: Hub, admin: Visitor, guest: Visitor
) -> None:
    """The console checks rights with the hub at each request and caches none."""
    hub.visitor().set_password(hub.accounts("invite", "second", "--admin").strip())
    second = Console(hub.visitor("second"))
    theirs = token(second.visitor, "second", ["access:services!service=admin"])
    assert second.ask("GET", "api/clusters").status_code == 200
    assert by_token(hub, theirs).status_code == 200

    assert admin.api("PATCH", "users/second", {"admin": False}).status_code == 200

    assert refused(second.ask("GET", "api/clusters"), 403)
    assert refused(by_token(hub, theirs), 403)
    again = second.visitor.get(second.url)
    assert again.status_code == 403 and "administrators of the hub" in again.text


def test_the_command_line_does_the_same(hub: Hub, admin: Visitor, tmp_path: Path) -> None:
    """With a token, `tfcluster admin` does what the console does; without a token, it says how to
    make one.
    """
    hub.launch(SLEEP, "line", workers=1)
    hub.until(lambda: hub.manager.status("line").status.phase.value == "Running", "running")
    elsewhere = {"TFCLUSTER_STATE_DIR": str(tmp_path), "TFCLUSTER_HUB_URL": hub.url}
    without = shell(hub, "admin", "clusters", **elsewhere)
    made = {"TFCLUSTER_HUB_TOKEN": token(admin, OWNER, ["access:services!service=admin"])}
    words = ("admin", "clusters", "--filter", "line", "--phase", "Running", "-o", "json")
    hub.until(lambda: json.loads(shell(hub, *words, **made).stdout)["items"], "listed")
    listed = shell(hub, *words, **made)
    logs = shell(hub, "admin", "logs", OWNER, "line-1", "worker-0", **made)
    table = shell(hub, "admin", "clusters", "--phase", "Running", **made)
    file = tmp_path / "token"
    file.write_text(made["TFCLUSTER_HUB_TOKEN"] + "\n")
    there = ["--token-file", str(file), "--hub", hub.url]
    unasked = shell(hub, "admin", "stop", f"{OWNER}/line-1", "--reason", "an exam", **made)
    stopped = shell(hub, "admin", "stop", f"{OWNER}/line-1", "--reason", "an exam", "--yes", *there)
    audit = shell(hub, "admin", "audit", **made)
    leaks = shell(hub, "admin", "leaks", **made)
    wrong = shell(hub, "admin", "clusters", TFCLUSTER_HUB_TOKEN="made up")

    assert without.returncode == 2 and "/hub/token" in without.stderr
    assert "access:services!service=admin" in without.stderr
    assert [row["name"] for row in json.loads(listed.stdout)["items"]] == ["line-1"]
    assert "<b>line</b> of" in logs.stdout
    assert "line-1" in table.stdout
    assert unasked.returncode == 2 and "--yes" in unasked.stderr
    assert stopped.returncode == 0, stopped.stderr
    assert "an exam" in audit.stdout
    assert leaks.returncode == 0, leaks.stderr
    assert wrong.returncode == 5 and "token" in wrong.stderr
