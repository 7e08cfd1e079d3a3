"""Hours, archives and storage in the admin console of a real hub with a policy. All tests share one
hub; the last one fills its storage.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import tarfile
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
from support.hub.markup import HTML
from support.hub.pages import accessible

__all__ = ["page"]  # a fixture used by the tests below
SHORT = "print('done', flush=True)\n"
LARGEST = "<b>model"
POLICY = """
default: {storage: {log: 4Mi, data: 1Gi}}
groups: {ml101: {budget: {cpuHours: 20}}}
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
    return opened(admin)


def test_hours_of_everyone_are_there_for_administrators_alone(
    hub: Hub, admin: Visitor, console: Console, page: Page, shots: Path
) -> None:
    """The used hours are on the page, in the API, as CSV and in a shell, including the hours of
    deleted clusters. A request for them without sign-in or XSRF token is refused.
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
    assert refused(console.ask("GET", "api/hours?sort=colour"), 422)
    assert refused(console.ask("GET", "api/hours?from=2026-02-30"), 422)
    assert refused(console.ask("GET", "api/hours", xsrf="no"), 403)
    assert refused(hub.visitor().session.get(f"{console.url}api/hours", timeout=120), 401)

    sign_in_to(page, hub, "hours")
    first = page.get_by_role("row", name=OWNER)
    expect(first).to_be_visible(timeout=90_000)
    looked_at(page, shots, first)
    page.get_by_label("By", exact=True).select_option("Cluster")
    expect(page.get_by_role("row", name=f"{OWNER}/mnist")).to_contain_text("not measured")
    page.get_by_label("Sort by").select_option("Requested but not used")
    ended = page.get_by_role("row", name=f"{OWNER}/digits")
    expect(ended.locator("meter")).to_have_count(1)
    with page.expect_download() as download:
        page.get_by_role("link", name="Export as CSV").click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    assert {row["cluster"] for row in rows} == both

    said = {
        "TFCLUSTER_HUB_URL": hub.url,
        "TFCLUSTER_HUB_TOKEN": token(admin, OWNER, ["access:services!service=admin"]),
    }
    words = ("admin", "hours", "--by", "cluster", "-o")
    told_shell = shell(hub, *words, "json", **said)
    assert {row["key"] for row in json.loads(told_shell.stdout)["items"]} == both, told_shell.stderr
    rows = list(csv.DictReader(io.StringIO(shell(hub, *words, "csv", **said).stdout)))
    assert {row["cluster"] for row in rows} == both
    unused = shell(hub, "admin", "usage", "--by", "cluster", **said).stdout.splitlines()
    assert "UNUSED" in unused[0]
    assert unused[1].startswith(f"{OWNER}/digits") and unused[1].rstrip().endswith("%")
    assert unused[2].startswith(f"{OWNER}/mnist") and "not measured" in unused[2]


def test_the_data_of_a_user_is_archived(hub: Hub, admin: Visitor, tmp_path: Path) -> None:
    """Archiving ends the user's runs with the given reason; the archive has each file with its
    checksum.
    """
    env = {"TFCLUSTER_HUB_TOKEN": token(admin, OWNER, ["access:services!service=admin"])}
    assert admin.api("POST", "users/kim").status_code == 201
    (hub.folder / "sleep.py").write_text(SLEEP)
    (hub.root / "results.txt").write_text("accuracy 0.98\n")
    (hub.root / "linked").symlink_to("/etc/passwd")
    os.mkfifo(hub.root / "pipe")
    launched = shell(hub, "launch", str(hub.folder / "sleep.py"), "--name", "last")
    target = tmp_path / "archive.tar.gz"
    words = ("admin", "users", "archive", OWNER, "--reason", "the term is over", "--yes")
    done = shell(hub, *words, "--to", str(target), **env)
    again = shell(hub, *words, "--to", str(target), **env)
    nobody = shell(hub, "admin", "users", "archive", "kim", "--yes", **env)
    listed = shell(hub, "admin", "users", "archives", "-o", "json", **env)

    assert launched.returncode == 0, launched.stderr
    assert done.returncode == 0, done.stderr
    assert "could not be packed" in done.stderr
    assert again.returncode == 2 and "name another" in again.stderr
    assert nobody.returncode == 4 and "with runs here" in nobody.stderr, nobody.stderr
    assert "the term is over" in hub.manager.status("last").status.message
    with tarfile.open(target) as tar:
        told = json.loads(tar.extractfile("MANIFEST.json").read())  # type: ignore[union-attr]
        linked = tar.getmember("workspace/linked")
    packed = {one["path"]: one for one in told["files"]}
    assert packed["workspace/results.txt"]["size"] == 14
    assert any(path.startswith("runs/last/1/") for path in packed)
    assert linked.issym() and not any("hub.log" in path for path in packed)
    missed = [one["path"] for one in told["missed"]]
    assert "workspace/pipe" in missed and all(
        path.startswith(("workspace/pipe", "runs/")) for path in missed
    )
    (one,) = [one for one in json.loads(listed.stdout)["items"] if one["user"] == OWNER]
    kept = hub.state / "hub" / "archives" / one["file"]
    assert kept.read_bytes() == target.read_bytes()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == one["sha256"]
    gone = shell(hub, "admin", "users", "delete-archives", one["file"], "--yes", **env)
    assert gone.returncode == 0 and not list(kept.parent.iterdir()), gone.stderr
    twice = shell(hub, "admin", "users", "delete-archives", one["file"], "--yes", **env)
    assert twice.returncode == 5 and "there is no archive" in twice.stderr


def test_archives_are_listed_and_deleted_on_their_page(
    hub: Hub, console: Console, page: Page, shots: Path
) -> None:
    """Archives are listed with size and date; deleting asks first and is in the audit log."""
    begun = console.ask("POST", "api/archives", json={"user": OWNER, "reason": HTML})
    file = str(begun.json()["file"])
    sign_in_to(page, hub, "archives")
    row = page.get_by_role("row", name=file)
    expect(row.get_by_role("link", name=file)).to_be_visible(timeout=90_000)
    page.get_by_label("Filter by user or file").fill(file)
    expect(page.locator("#count")).to_contain_text("1 of ")
    looked_at(page, shots, row)
    row.get_by_role("button", name=f"Delete {file}").click()
    accessible(page, "#ask-delete")
    page.get_by_role("button", name="Cancel").click()
    expect(row).to_be_visible()
    row.get_by_role("button", name=f"Delete {file}").click()
    page.get_by_role("button", name="Delete permanently").click()
    expect(row).to_have_count(0)
    noted = console.ask("GET", "api/audit?q=delete+archive").json()["items"]
    assert {one["target"] for one in noted} >= {file}


def test_a_full_folder_is_seen_by_administrators_alone(
    hub: Hub, admin: Visitor, console: Console, page: Page, shots: Path
) -> None:
    """The use of storage is on the page, in the API and in a shell. The names of the largest
    folders are shown as text, not as HTML. A request without sign-in or XSRF token is refused.
    """
    run = hub.root / "log" / LARGEST / "1"
    run.mkdir(parents=True)
    (run / "model.ckpt-1.data").write_bytes(bytes(range(256)) * (5 << 12))
    answer = console.ask("GET", "api/storage?sort=-share")
    assert answer.status_code == 200, answer.text
    told = answer.json()
    row = told["items"][0]
    assert (row["owner"], row["name"], row["allowed"]) == (OWNER, "log", 4 << 20)
    assert row["used"] >= 5 << 20
    assert row["share"] >= 1.25
    assert (told["total"], told["full"]) == (3, 1)
    assert refused(console.ask("GET", "api/storage?sort=colour"), 422)
    assert refused(console.ask("GET", "api/storage", xsrf="no"), 403)
    assert refused(hub.visitor().session.get(f"{console.url}api/storage", timeout=120), 401)

    sign_in_to(page, hub, "storage")
    full = page.get_by_role("row", name="log")
    expect(full).to_contain_text(f"{LARGEST}-1 5 MiB", timeout=90_000)
    expect(full).to_contain_text("4 MiB")
    looked_at(page, shots, full)
    page.get_by_label("Only 80 % full or more (1)").check()
    expect(page.get_by_role("row", name="data")).to_have_count(0)

    made = {"TFCLUSTER_HUB_TOKEN": token(admin, OWNER, ["access:services!service=admin"])}
    listed = shell(hub, "admin", "storage", "--full", "-o", "json", **made)
    assert [one["name"] for one in json.loads(listed.stdout)["items"]] == ["log"]
    table = shell(hub, "admin", "storage", **made).stdout
    assert "4Mi" in table
    assert f"{LARGEST}-1 5" in table
