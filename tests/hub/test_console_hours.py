"""Hours in the admin console of a real hub, and a budget that the hub's policy gives."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from support.hub.console_clients import (
    SLEEP,
    Console,
    looked_at,
    opened,
    page,
    refused,
    shell,
    sign_in_to,
    token,
)
from support.hub.make_run import OWNER, Hub, Visitor

__all__ = ["page"]  # a fixture, as if written here
SHORT = "print('done', flush=True)\n"


@pytest.fixture(scope="module")
def hub(start_hub: Callable[..., Hub]) -> Hub:
    """A hub below a path of its own, with a policy."""
    hub = start_hub(base_url="/tf/")
    policy = "groups: {ml101: {budget: {cpuHours: 20}}}\n"
    (hub.state / "hub" / "policy.yaml").write_text(policy)
    return hub


@pytest.fixture(scope="module")
def console(admin: Visitor) -> Console:
    """The console, open in the owner's browser."""
    return opened(admin)


def test_hours_of_everyone_are_there_for_administrators_alone(
    hub: Hub, admin: Visitor, console: Console, page: Page, shots: Path
) -> None:
    """On the page, by the API, as CSV and in a shell; of a deleted cluster, too. Who is nobody, and
    who forgets the page's token, gets nothing.
    """
    done = hub.launch(SHORT, "digits", workers=1, worker_cpu=2)
    hub.manager.wait(done.metadata.name)
    hub.manager.delete(done.metadata.name)
    hub.launch(SLEEP, "mnist", workers=1, worker_cpu=2)

    def told(by: str) -> dict[str, dict[str, float]]:
        answer = console.ask("GET", f"api/hours?by={by}")
        assert answer.status_code == 200, answer.text
        return {row["key"]: row for row in answer.json()["items"]}

    both = {f"{OWNER}/digits", f"{OWNER}/mnist"}
    hub.until(lambda: told("cluster").keys() == both, "both clusters have hours")
    assert set(told("user")) == {OWNER}
    assert admin.api("POST", "groups/ml101").status_code == 201
    assert admin.api("POST", "groups/ml101/users", {"users": [OWNER]}).status_code == 200
    hub.until(lambda: set(told("group")) == {"ml101"}, "their group is known")
    assert told("cluster")[f"{OWNER}/mnist"]["used"] is None
    assert refused(console.ask("GET", "api/hours?by=colour"), 422)
    assert refused(console.ask("GET", "api/hours?from=2026-02-30"), 422)
    assert refused(console.ask("GET", "api/hours", xsrf="no"), 403)
    assert refused(hub.visitor().session.get(f"{console.url}api/hours", timeout=120), 401)

    sign_in_to(page, hub, "hours")
    expect(page.get_by_role("row", name=OWNER)).to_be_visible(timeout=90_000)
    page.get_by_label("By").select_option("Cluster")
    expect(page.get_by_role("row", name=f"{OWNER}/mnist")).to_contain_text("not measured")
    looked_at(page, shots)
    with page.expect_download() as download:
        page.get_by_role("link", name="Export as CSV").click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    assert {row["cluster"] for row in rows} == both

    said = {"TFCLUSTER_HUB_URL": hub.url, "TFCLUSTER_HUB_TOKEN": _token(admin)}
    words = ("admin", "hours", "--by", "cluster", "-o")
    told_shell = shell(hub, *words, "json", **said)
    assert {row["key"] for row in json.loads(told_shell.stdout)["items"]} == both, told_shell.stderr
    rows = list(csv.DictReader(io.StringIO(shell(hub, *words, "csv", **said).stdout)))
    assert {row["cluster"] for row in rows} == both


def _token(admin: Visitor) -> str:
    return token(admin, OWNER, ["access:services!service=admin"])
