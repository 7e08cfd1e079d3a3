"""Storage in the admin console of a real hub: who has how much, beside what the policy allows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from support.hub.console_clients import (
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
HTML = "<b>model"


@pytest.fixture(scope="module")
def hub(start_hub: Callable[..., Hub]) -> Hub:
    """A hub below a path of its own, with a policy."""
    hub = start_hub(base_url="/tf/")
    (hub.state / "hub" / "policy.yaml").write_text("default: {storage: {log: 4Mi, data: 1Gi}}\n")
    return hub


@pytest.fixture(scope="module")
def console(admin: Visitor) -> Console:
    """The console, open in the owner's browser."""
    return opened(admin)


def test_a_full_folder_is_seen_by_administrators_alone(
    hub: Hub, admin: Visitor, console: Console, page: Page, shots: Path
) -> None:
    """On the page, by the API and in a shell, with what is the largest, as text. Who is nobody, and
    who forgets the page's token, gets nothing.
    """
    run = hub.root / "log" / HTML / "1"
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
    expect(full).to_contain_text(f"{HTML}-1 5 MiB", timeout=90_000)
    expect(full).to_contain_text("4 MiB")
    looked_at(page, shots)
    page.get_by_label("Only from 80 % on (1)").check()
    expect(page.get_by_role("row", name="data")).to_have_count(0)

    made = {"TFCLUSTER_HUB_TOKEN": token(admin, OWNER, ["access:services!service=admin"])}
    listed = shell(hub, "admin", "storage", "--full", "-o", "json", **made)
    assert [one["name"] for one in json.loads(listed.stdout)["items"]] == ["log"]
    table = shell(hub, "admin", "storage", **made).stdout
    assert "4Mi" in table
    assert f"{HTML}-1 5" in table
