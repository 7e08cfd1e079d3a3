"""Sign-in at a real OpenID Connect provider, and the sign-ins that are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit, urlunsplit

import pytest
import requests
from playwright.sync_api import BrowserContext, expect
from support.hub import openid_provider as provider
from support.hub import ports
from support.hub.openid_provider import Provider, fill_in
from support.hub.real_hub import RealHub
from support.hub.visitor import Visitor
from support.polling import wait_until

PATIENCE = 90_000
"""Timeout in milliseconds, for a busy machine."""
USERS = "services/admin/users"
PEOPLE = {
    "mia": ["ml", "staff"],
    "eve": ["sales"],
    "ops": ["admins"],
    "zoe": ["ml"],
    "joe": ["guests"],
    "kim": ["guests"],
    "lee": ["guests"],
}


@pytest.fixture(scope="module")
def dex(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Provider, RealHub]]:
    """A provider, and a hub that uses it."""
    provider.needs_dex()
    folder = tmp_path_factory.mktemp("openid")
    hub = RealHub(folder / "hub")
    asked = Provider(folder, PEOPLE, f"{hub.url}hub/oauth_callback")
    groups = {"OIDC_ALLOWED_GROUPS": "ml, research", "OIDC_ADMIN_GROUPS": "admins"}
    (port,) = ports.free(1)
    console = {"TFCLUSTER_HUB_CONSOLE_PORT": str(port)}
    hub.environ = {**asked.environ, **groups, **console}
    try:
        asked.start()
        hub.start()
        yield asked, hub
    finally:
        hub.close()
        asked.stop()


def to_provider(visitor: Visitor) -> requests.Response:
    """Open the provider's page through the hub's button."""
    page = visitor.get("hub/login")
    assert "hub/oauth_login" in page.text
    answer = visitor.get(
        "hub/oauth_login", params={"next": urlsplit(visitor.url).path + "hub/home"}
    )
    assert "/dex/auth" in answer.url, answer.url
    return answer


def code_of(visitor: Visitor, name: str) -> str:
    """Return the hub's address with a code, to which the provider redirects a user."""
    page = to_provider(visitor)
    return fill_in(visitor.session, page, name, provider.password(name))


def signed_in(hub: RealHub, name: str) -> tuple[Visitor, requests.Response]:
    """Return a browser that completed the sign-in, and the hub's last response."""
    visitor = Visitor(hub.url)
    answer = visitor.session.get(code_of(visitor, name), timeout=120)
    visitor.name = name
    return visitor, answer


def is_signed_in(visitor: Visitor) -> bool:
    """Return whether the hub knows this visitor."""
    return visitor.ask("GET", "hub/api/user").status_code == 200


def changed(url: str, **words: str) -> str:
    """Return the URL with these query parameters, which replace its own of the same names."""
    parts = urlsplit(url)
    query = {key: values[0] for key, values in parse_qs(parts.query).items()}
    return urlunsplit(parts._replace(query=urlencode({**query, **words})))


def test_member_has_a_notebook(dex: tuple[Provider, RealHub]) -> None:
    """A member of an allowed group signs in, is in the hub group of that name, and gets a
    notebook.
    """
    visitor, answer = signed_in(dex[1], "mia")
    assert answer.status_code == 200
    assert urlsplit(answer.url).path.endswith("/hub/home")
    known = visitor.ask("GET", "hub/api/user").json()
    assert (known["name"], sorted(known["groups"]), known["admin"]) == (
        "mia",
        ["ml", "staff"],
        False,
    )
    assert visitor.run(visitor.spawn(), "print(6 * 7)") == "42\n"


def test_in_a_browser(dex: tuple[Provider, RealHub], context: BrowserContext, shots: Path) -> None:
    """In a real browser sign-in takes one button and the provider's page, and opens the
    notebook.
    """
    page = context.new_page()
    page.goto(f"{dex[1].url}hub/login")
    page.get_by_role("button", name="Sign in with your organisation's account").click()
    expect(page).to_have_url(re.compile(re.escape(dex[0].issuer)))
    page.locator("input[name=login]").fill("zoe")
    page.locator("input[name=password]").fill(provider.password("zoe"))
    page.screenshot(path=shots.with_name(f"{shots.name}-provider.png"))
    page.locator("button[type=submit]").click()
    expect(page).to_have_url(re.compile("/tf/(user|hub/spawn-pending)/zoe"), timeout=PATIENCE)
    page.screenshot(path=shots.with_name(f"{shots.name}-end.png"))


def test_who_is_imported_may_sign_in(dex: tuple[Provider, RealHub]) -> None:
    """Administrators' programs can add users to the hub's list of allowed users. A user on this
    list can sign in without a group, until an administrator deletes the user.
    """
    refused, _ = signed_in(dex[1], "joe")
    ops, _ = signed_in(dex[1], "ops")
    assert not is_signed_in(refused)
    assert refused.ask("PUT", "hub/api/allowed/joe").status_code == 403
    assert ops.ask("PUT", "hub/api/allowed/Joe").status_code == 204
    several = {"names": ["joe", "ida"]}
    assert refused.ask("POST", "hub/api/allowed", json=several).status_code == 403
    assert ops.ask("POST", "hub/api/allowed", json={"names": ["ida", "a/b"]}).status_code == 400
    assert ops.ask("GET", "hub/api/allowed").json() == {"allowed": ["joe"]}
    joe, _ = signed_in(dex[1], "joe")
    assert joe.ask("GET", "hub/api/user").json()["groups"] == ["guests"]
    assert ops.ask("DELETE", "hub/api/users/joe").status_code == 204
    assert ops.ask("GET", "hub/api/allowed").json() == {"allowed": []}
    again, _ = signed_in(dex[1], "joe")
    assert not is_signed_in(again)


def console(visitor: Visitor, method: str, path: str, **words: Any) -> requests.Response:
    """Send a request as a page of the console does; first wait until the console has started."""
    found = wait_until(
        lambda: re.search(r'data-xsrf="([^"]*)"', visitor.get(USERS).text),
        "the console's page",
        PATIENCE / 1000,
        every=0.1,
    )
    assert found is not None
    headers = {"X-XSRFToken": found[1], "Sec-Fetch-Mode": "cors"}
    url = f"{visitor.url}services/admin/api/{path}"
    return visitor.session.request(method, url, headers=headers, timeout=120, **words)


def test_a_class_that_the_console_imports_may_sign_in(dex: tuple[Provider, RealHub]) -> None:
    """Users of an imported list can sign in without account or link; others, and everyone after a
    dry run, cannot. Groups come from the provider.
    """
    ops, _ = signed_in(dex[1], "ops")
    asked = {"csv": "name,full name\nKim,Kim\na/b,Nobody\n", "withoutNotebook": True}
    named = console(ops, "POST", "users/import", json={**asked, "group": "ml101"})
    assert named.status_code == 422
    assert "decides who is in which group" in named.text
    tried = console(ops, "POST", "users/import", json={**asked, "dryRun": True}).json()
    too_early, answer = signed_in(dex[1], "kim")
    assert answer.status_code == 403
    done = console(ops, "POST", "users/import", json=asked).json()
    again = console(ops, "POST", "users/import", json=asked).json()
    assert [one["steps"] for one in tried["lines"]] == [["user", "allowed"], []]
    assert [one["steps"] for one in done["lines"]] == [["user", "allowed"], []]
    assert [(one["ok"], one["link"]) for one in done["lines"]] == [(True, ""), (False, "")]
    assert (done["changed"], again["changed"], again["wrong"]) == (1, 0, 1)

    kim, answer = signed_in(dex[1], "kim")
    assert answer.status_code == 200
    assert kim.ask("GET", "hub/api/user").json()["groups"] == ["guests"]
    lee, answer = signed_in(dex[1], "lee")
    assert answer.status_code == 403
    assert "Ask an administrator to add you" in answer.text
    assert not is_signed_in(lee) and not is_signed_in(too_early)
    assert kim.get(USERS).status_code == 403

    listed = {one["name"]: one for one in console(ops, "GET", "users").json()["items"]}
    assert "kim" in listed and "lee" not in listed
    log = console(ops, "GET", "audit?limit=50").json()["items"]
    assert [(one["who"], one["owner"]) for one in log if one["what"] == "import"] == [
        ("ops", "kim")
    ]
    assert ops.ask("DELETE", "hub/api/users/kim").status_code == 204


def test_admin_group(dex: tuple[Provider, RealHub]) -> None:
    """A member of an admin group administers the hub without being in another group."""
    visitor, _ = signed_in(dex[1], "ops")
    assert visitor.ask("GET", "hub/api/user").json()["admin"] is True
    assert visitor.ask("GET", "hub/api/users").status_code == 200


def test_outsider(dex: tuple[Provider, RealHub]) -> None:
    """A user of the provider who is in no allowed group is refused with that reason, and does not
    become a hub user.
    """
    visitor, answer = signed_in(dex[1], "eve")
    assert answer.status_code == 403
    assert "Ask an administrator to add you" in answer.text
    assert not is_signed_in(visitor)
    admin, _ = signed_in(dex[1], "ops")
    assert admin.ask("GET", "hub/api/users/eve").status_code == 404


def test_wrong_password(dex: tuple[Provider, RealHub]) -> None:
    """After a wrong password the provider asks again and redirects nobody."""
    visitor = Visitor(dex[1].url)
    assert fill_in(visitor.session, to_provider(visitor), "mia", "a guess") == ""
    assert not is_signed_in(visitor)


def test_proof_of_who_asked(dex: tuple[Provider, RealHub]) -> None:
    """The hub sends a challenge (PKCE, S256) with each sign-in."""
    visitor = Visitor(dex[1].url)
    answer = visitor.get("hub/oauth_login", allow_redirects=False)
    asked = parse_qs(urlsplit(answer.headers["Location"]).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert len(asked["code_challenge"][0]) == 43


def test_changed_state(dex: tuple[Provider, RealHub]) -> None:
    """A response whose state does not match this browser's request signs nobody in."""
    visitor = Visitor(dex[1].url)
    other = Visitor(dex[1].url)
    states = [parse_qs(urlsplit(code_of(one, "zoe")).query)["state"][0] for one in (visitor, other)]
    back = code_of(visitor, "zoe")
    for state in (states[1], "", "nonsense", states[0][:-4]):
        answer = visitor.session.get(changed(back, state=state), timeout=120)
        assert answer.status_code == 400, state
        assert not is_signed_in(visitor)


def test_code_of_another_browser(dex: tuple[Provider, RealHub]) -> None:
    """A code for another browser is refused, even if this browser has asked for a code too."""
    victim, thief = Visitor(dex[1].url), Visitor(dex[1].url)
    stolen = parse_qs(urlsplit(code_of(victim, "mia")).query)["code"][0]
    answer = thief.session.get(changed(code_of(thief, "zoe"), code=stolen), timeout=120)
    assert answer.status_code == 403
    assert "refused this sign-in; it may have taken too long" in answer.text
    assert not is_signed_in(thief)


def test_old_code(dex: tuple[Provider, RealHub]) -> None:
    """An expired code signs nobody in, and the page says what to do."""
    visitor = Visitor(dex[1].url)
    back = code_of(visitor, "zoe")
    dex[0].put_forward("40m")
    try:
        answer = visitor.session.get(back, timeout=120)
    finally:
        dex[0].put_forward("0s")
    # 503: dex may answer 500 to an expired code, and the hub treats that as an outage
    assert answer.status_code in {403, 503}
    assert "try again" in answer.text.lower()
    assert not is_signed_in(visitor)


def test_another_address_of_the_hub(dex: tuple[Provider, RealHub]) -> None:
    """The provider redirects only to the registered address, so no other address gets a code."""
    elsewhere = Visitor(dex[1].url.replace("127.0.0.1", "localhost"))
    answer = elsewhere.get("hub/oauth_login")
    assert answer.status_code == 400
    assert urlsplit(answer.url).netloc == dex[0].address
    assert "redirect_uri" in answer.text


def test_next_stays_here(dex: tuple[Provider, RealHub]) -> None:
    """No `next` parameter of a sign-in link leads to another site."""
    visitor = Visitor(dex[1].url)
    page = visitor.get("hub/oauth_login", params={"next": "//evil.example/\\evil.example"})
    back = fill_in(visitor.session, page, "zoe", provider.password("zoe"))
    answer = visitor.session.get(back, allow_redirects=False, timeout=120)
    assert urlsplit(answer.headers["Location"]).netloc == ""
    assert answer.headers["Location"].startswith("/%5Cevil.example")


def test_provider_away(dex: tuple[Provider, RealHub]) -> None:
    """While the provider is away nobody can sign in, and signed-in users stay signed in."""
    known, _ = signed_in(dex[1], "zoe")
    visitor = Visitor(dex[1].url)
    back = code_of(visitor, "mia")
    dex[0].stop()
    try:
        answer = visitor.session.get(back, timeout=120)
        assert answer.status_code == 503
        assert "does not answer. Try again later" in answer.text
        assert is_signed_in(known)
    finally:
        dex[0].start()
    assert not is_signed_in(visitor)


def test_hub_that_cannot_ask(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A hub that lacks required settings does not start; the message names all of them, without a
    traceback.
    """
    hub = RealHub(tmp_path_factory.mktemp("hub"), environ={"TFCLUSTER_HUB_SIGN_IN": "oidc"})
    with pytest.raises(AssertionError, match="the hub ended"):
        hub.start()
    hub.close()
    lacks = ["OIDC_ISSUER", "OIDC_CLIENT_ID", "OIDC_CLIENT_SECRET", "OIDC_ALLOWED_GROUPS"]
    assert all(name in hub.tail() for name in lacks)
    assert "Traceback" not in hub.tail()
