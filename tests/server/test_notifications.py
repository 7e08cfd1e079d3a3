"""The routes of notifications, with valid and invalid requests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from jsonschema import Draft202012Validator
from support.message_receiver import Receiver, receiver
from support.polling import wait_until
from support.server.calls import Api, assert_problem

from tfcluster_magic.backends.local import schedule_store
from tfcluster_magic.server import app
from tfcluster_magic.server.service import Service

__all__ = ["receiver"]  # a fixture used by the tests below
RULES = "notifications/rules"
TOKEN = "tok-1234567"


@pytest.fixture
def verbs(service: Service) -> Iterator[None]:
    """Allow notifications to loopback; afterwards, remove all rules, which ends the clock
    process.
    """
    state_dir = service.manager.backend.notifications().state_dir  # type: ignore[attr-defined]
    folder = state_dir / "notifications"
    folder.mkdir(mode=0o700, parents=True)
    (folder / "policy.yaml").write_text("privateNetworks: [127.0.0.0/8]\n")
    yield
    for each in service.manager.notifications.list():
        service.manager.notifications.remove(each.name)

    def is_free() -> bool:
        fd = schedule_store.take_clock_lock(state_dir)
        if fd is not None:
            os.close(fd)
        return fd is not None

    wait_until(lambda: not (state_dir / "schedules").is_dir() or is_free())


async def test_a_rule_is_added_tried_and_removed(api: Api, verbs: None, receiver: Receiver) -> None:
    """Each verb has a route, and no response contains the secret part of a URL."""
    body = {"name": "team", "webhook": receiver.url, "on": ["failed", "budget"], "lab": ""}
    made = await api("POST", RULES, body)
    assert made.status == 201, made.text
    described = app.openapi_document()
    schema = {"$ref": "#/components/schemas/PublicRule", "components": described["components"]}
    Draft202012Validator(schema).validate(made.json)
    assert made.json["on"] == ["failed", "budget"]
    listed = await api("GET", RULES)
    assert listed.json == {"rules": [made.json]}
    tried = await api("POST", f"{RULES}/team/test")
    assert (tried.status, tried.json) == (200, made.json)
    assert len(receiver.bodies) == 1
    assert (await api("GET", "notifications/history")).json == {"deliveries": []}
    assert_problem(await api("GET", "notifications/history?run=none"), 404)
    assert_problem(await api("POST", RULES, body), 409, "team")
    receiver.status = 500
    failed = await api("POST", f"{RULES}/team/test")
    assert_problem(failed, 502)
    assert TOKEN not in made.text + listed.text + tried.text + failed.text
    assert (await api("DELETE", f"{RULES}/team")).status == 204
    assert_problem(await api("DELETE", f"{RULES}/team"), 404)
    assert_problem(await api("POST", f"{RULES}/team/test"), 404)


async def test_what_is_wrong_is_told_without_secrets(api: Api, verbs: None) -> None:
    """For an invalid body, the response names the mistake and repeats no secret."""
    secret = f"https://example.com/{TOKEN}"
    for more in (
        {"webhok": secret},
        {"webhook": [secret]},
        {"webhook": f"ftp://example.com/{TOKEN}"},
        {"webhook": secret, "secret": TOKEN},
        {"webhook": secret, "mail": "me@example.com"},
        {"webhook": secret + "x" * 3000},
        {"mail": "me@example.com", "secret": 5},
    ):
        refused = await api("POST", RULES, {"name": "team", **more})
        assert_problem(refused, 422)
        assert TOKEN not in refused.text, refused.text
    assert (await api("GET", RULES)).json == {"rules": []}
