"""Hostile requests, which the server extension refuses without logging a traceback."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.hostile_requests import (
    NUMBERS,
    Attack,
    all_wrong,
    huge_bodies,
    send,
    unclear_lengths,
    wrong_bodies,
)
from support.server.recorder_page import Page, recorder
from support.server.routes import ways

__all__ = ["recorder"]  # a fixture, re-exported
CLUSTERS = "tfcluster/api/clusters"


@pytest.fixture
def where(http_server: Any, http_server_port: Any) -> tuple[str, int]:
    return "127.0.0.1", http_server_port[-1]


@pytest.fixture
def no_traceback(caplog: pytest.LogCaptureFixture, jp_serverapp: Any) -> Iterator[None]:
    """Fail if the server's log has a traceback or an error."""
    jp_serverapp.log.propagate = True
    yield
    bad = [one for one in caplog.records if one.exc_info or one.levelno >= logging.ERROR]
    assert not bad, [one.getMessage() for one in bad]


@pytest.fixture
def attacked(
    where: tuple[str, int], jp_base_url: str, jp_auth_header: dict[str, str], no_traceback: None
) -> Callable[[list[Attack]], Any]:
    """Return a function that sends attacks to the running server, and returns the answers that were
    wrong.
    """

    async def attack(attacks: list[Attack]) -> list[str]:
        assert attacks
        return await asyncio.to_thread(all_wrong, where, attacks, jp_base_url, jp_auth_header)

    return attack


async def test_without_sign_in_no_route_reads_a_body_or_logs_a_traceback(
    jp_web_app: Any, jp_base_url: str, attacked: Any
) -> None:
    """Each route, including TensorBoard's page, answers a client who has not signed in at once with
    403; a page redirects to the login. No route waits for a body of 90 MB.
    """
    attacks = []
    for method, full_path, _function in ways(jp_web_app):
        path = full_path.removeprefix(jp_base_url)
        loads = "/api/" not in path and method in ("GET", "HEAD")
        allowed = frozenset({302} if loads else {403})
        attacks.append(Attack("no body", method, path, allowed=allowed, signed_in=False))
        attacks += huge_bodies(method, path, frozenset({403}), signed_in=False)
    assert await attacked(attacks) == []


async def test_tensorboards_page_leads_strangers_to_the_login(
    attacked: Any, recorder: Page
) -> None:
    """A client who has not signed in gets a redirect, and the log has no traceback."""
    page = f"tfcluster/tensorboard/{recorder.id}"
    pages = (f"{page}/", page, f"{page}/data/runs")
    attacks = [
        Attack("a stranger", "GET", path, allowed=frozenset({302}), signed_in=False)
        for path in pages
    ]
    assert await attacked(attacks) == []


async def test_an_address_that_is_no_text_is_refused(
    where: tuple[str, int], recorder: Page, jp_auth_header: dict[str, str]
) -> None:
    """An address that is not valid UTF-8, below a TensorBoard's page, gets 400."""
    attack = Attack("no text", "GET", "/%ff%fe")
    reply = await asyncio.to_thread(send, where, attack, recorder.base, jp_auth_header)
    assert reply.status == 400
    assert reply.headers["content-type"].startswith("text/html") and reply.body


async def test_a_body_of_no_clear_length_is_refused(attacked: Any, recorder: Page) -> None:
    """A request whose body has no clear length gets 400, even if the request is for TensorBoard."""
    page = f"tfcluster/tensorboard/{recorder.id}/take"
    attacks = [*unclear_lengths("POST", CLUSTERS), *unclear_lengths("POST", page)]
    assert await attacked(attacks) == []


async def test_a_length_that_is_said_twice_is_passed_on_once(
    where: tuple[str, int], recorder: Page, jp_auth_header: dict[str, str]
) -> None:
    """If a request states its length twice, TensorBoard receives the body with one length."""
    headers = (("Content-Length", "5"), ("Content-Length", "5"))
    attack = Attack("twice", "POST", "/take", headers, b"12345", frozenset({200}))
    reply = await asyncio.to_thread(send, where, attack, recorder.base, jp_auth_header)
    assert (reply.status, reply.headers["content-length"]) == (200, "1")


async def test_a_body_that_is_too_large_is_refused_before_it_is_here(attacked: Any) -> None:
    """If the body is too large, a signed-in client gets 413 with the limit."""
    attacks = list(huge_bodies("POST", CLUSTERS, frozenset({413}), signed_in=True))
    assert await attacked(attacks) == []


async def test_who_goes_on_sending_hears_the_refusal(http_server_client: Any, api: Any) -> None:
    """A client that sends all of 5 MB before it reads gets 413 instead of a broken connection."""
    answer = await api("POST", "clusters", raw=b" " * (5 << 20))
    assert answer.status == 413
    assert "at most 4 MiB" in answer.json["detail"]
    assert (await api("GET", "clusters")).status == 200


async def test_numbers_that_are_none_are_refused_at_their_field(
    attacked: Any, where: tuple[str, int], jp_base_url: str, jp_auth_header: dict[str, str]
) -> None:
    """If a request has an infinite number, the answer names the number's field and is valid
    JSON.
    """
    for path in (CLUSTERS, f"{CLUSTERS}/plan"):
        assert await attacked(list(wrong_bodies("POST", path))) == []
    for attack in wrong_bodies("POST", CLUSTERS):
        if attack.name in NUMBERS:
            reply = await asyncio.to_thread(send, where, attack, jp_base_url, jp_auth_header)
            fields = [problem["field"] for problem in json.loads(reply.body)["problems"]]
            assert any(NUMBERS[attack.name][1] in each for each in fields), attack.name
