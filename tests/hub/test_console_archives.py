"""Archives of users' data at a real hub: packed, listed, brought and deleted, by page and shell."""

from __future__ import annotations

import hashlib
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
    shell,
    sign_in_to,
    token,
)
from support.hub.make_run import OWNER, Hub, Visitor
from support.hub.markup import HTML
from support.hub.pages import accessible

__all__ = ["page"]  # a fixture, as if written here


@pytest.fixture(scope="module")
def hub(start_hub: Callable[..., Hub]) -> Hub:
    """A hub below a path of its own."""
    return start_hub(base_url="/tf/")


@pytest.fixture(scope="module")
def console(admin: Visitor) -> Console:
    """The console, open in the owner's browser."""
    return opened(admin)


def test_the_data_of_a_user_is_archived(hub: Hub, admin: Visitor, tmp_path: Path) -> None:
    """What they run is ended with the reason; each file is packed with its checksum."""
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
    assert nobody.returncode == 4 and "has runs here" in nobody.stderr, nobody.stderr
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
    """With size and date; what is deleted is asked for, and noted."""
    begun = console.ask("POST", "api/archives", json={"user": OWNER, "reason": HTML})
    file = str(begun.json()["file"])
    sign_in_to(page, hub, "archives")
    row = page.get_by_role("row", name=file)
    expect(row.get_by_role("link", name=file)).to_be_visible(timeout=90_000)
    page.get_by_label("Filter by user or file").fill(file)
    expect(page.locator("#count")).to_contain_text("1 of ")
    looked_at(page, shots)
    row.get_by_role("button", name=f"Delete {file}").click()
    accessible(page, "#ask-delete")
    page.get_by_role("button", name="Cancel").click()
    expect(row).to_be_visible()
    row.get_by_role("button", name=f"Delete {file}").click()
    page.get_by_role("button", name="Delete for good").click()
    expect(row).to_have_count(0)
    noted = console.ask("GET", "api/audit?q=delete+archive").json()["items"]
    assert {one["target"] for one in noted} >= {file}
