"""A hub whose notebooks have their own host names, and the rights of each browser origin."""

from __future__ import annotations

from collections.abc import Iterator
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
import requests
import websocket
from requests.adapters import HTTPAdapter
from support.hub.console_clients import shell
from support.hub.make_run import OWNER, PASSWORD, Hub
from support.hub.real_hub import RealHub, password
from support.hub.visitor import BROWSER_ACCEPT, Visitor

NAME = "hub.localhost"


class Loopback(HTTPAdapter):
    """An adapter that connects to this machine for every host name, as browsers do for
    *.localhost.
    """

    def send(self, request: requests.PreparedRequest, **words: Any) -> requests.Response:  # type: ignore[override]
        parts = urlsplit(str(request.url))
        sent = request.copy()
        sent.headers["Host"] = parts.netloc
        sent.url = urlunsplit(parts._replace(netloc=f"127.0.0.1:{parts.port}"))
        answer = super().send(sent, **words)
        answer.url, answer.request = str(request.url), request
        return answer


class Strict(requests.Session):
    """A session that sends cookies as a browser does: a cookie without a domain only to the host
    that set it.
    """

    def prepare_request(self, request: requests.Request) -> requests.PreparedRequest:
        made = super().prepare_request(request)
        if "Cookie" not in (request.headers or {}):
            made.headers.pop("Cookie", None)
            only = DefaultCookiePolicy.DomainStrictNonDomain
            made._cookies.set_policy(DefaultCookiePolicy(strict_ns_domain=only))
            made.prepare_cookies(made._cookies)
        return made


class Browser(Visitor):
    """A visitor for whom every *.localhost is this machine."""

    def __init__(self, url: str, session: requests.Session | None = None) -> None:
        super().__init__(url)
        self.session = session or Strict()
        self.session.headers["Accept"] = BROWSER_ACCEPT
        self.session.mount("http://", Loopback())

    def at(self, host: str) -> Browser:
        """Return the same browser at another host."""
        parts = urlsplit(self.url)
        made = Browser(parts._replace(netloc=f"{host}:{parts.port}").geturl(), self.session)
        made.name = self.name
        return made

    def xsrf(self, path: str) -> str:
        """Return the XSRF token of this host, which no other host's cookies contain."""
        asked = urlsplit(self.url + path)
        found = [
            one
            for one in self.session.cookies
            if one.name == "_xsrf" and one.domain == asked.hostname
        ]
        fits = [one for one in found if asked.path.startswith(one.path)]
        return str(max(fits, key=lambda one: len(one.path)).value) if fits else ""

    def sends(self, path: str) -> dict[str, str]:
        """Return the cookies that the browser sends with a request."""
        asked = self.session.prepare_request(requests.Request("GET", self.url + path))
        said = asked.headers.get("Cookie", "")
        return dict(pair.split("=", 1) for pair in said.split("; ") if pair)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealHub]:
    """Start a hub for two users with notebooks at ada.hub.localhost and bob.hub.localhost."""
    made = RealHub(tmp_path_factory.mktemp("hub"), ["ada", "bob"])
    made.environ["TFCLUSTER_HUB_SUBDOMAIN_HOST"] = f"http://{NAME}:{made.port}"
    try:
        made.start()
        yield made
    finally:
        made.close()


def signed_in(hub: RealHub, name: str) -> tuple[Browser, Browser]:
    """Return a user's browser at the hub's host, and at the host of their running notebook."""
    browser = Browser(f"http://{NAME}:{hub.port}{hub.base_url}")
    browser.sign_in(name, password(name))
    browser.spawn()
    return browser, browser.at(f"{name}.{NAME}")


@pytest.fixture(scope="module")
def ada(hub: RealHub) -> tuple[Browser, Browser]:
    return signed_in(hub, "ada")


@pytest.fixture(scope="module")
def bob(hub: RealHub) -> tuple[Browser, Browser]:
    return signed_in(hub, "bob")


def test_a_notebook_opens_at_a_host_of_its_own(ada: tuple[Browser, Browser]) -> None:
    """The hub redirects to the notebook's host, and the page's requests to TFCluster work there."""
    at_hub, own = ada
    opened = at_hub.get("user/ada/lab")
    assert opened.status_code == 200
    assert urlsplit(opened.url).hostname == f"ada.{NAME}"
    assert own.get("user/ada/tfcluster/api/clusters").json()["runs"] == []
    plan = "user/ada/tfcluster/api/clusters/plan"
    assert own.ask("POST", plan, json={"cell": "x = 1"}).status_code == 200
    assert own.ask("POST", plan, json={}, headers={"X-XSRFToken": "1"}).status_code == 403
    board = own.ask("POST", "user/ada/tfcluster/api/tensorboards", json={"folder": "."}).json()
    page = own.get(f"user/ada/{board['path']}", headers={"Sec-Fetch-Site": "same-origin"})
    assert page.status_code in (200, 202)
    assert "frame-ancestors 'self'" in page.headers["Content-Security-Policy"]
    # Requests from a page of bob's host (the same site) and from another site are refused.
    for site in ("same-site", "cross-site"):
        asked = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "cors"}
        assert own.get(f"user/ada/{board['path']}", headers=asked).status_code == 403
    ended = own.ask("DELETE", f"user/ada/tfcluster/api/tensorboards/{board['id']}")
    assert ended.status_code == 204


def test_the_hubs_cookie_stays_at_the_hub(ada: tuple[Browser, Browser]) -> None:
    """A browser sends the hub's cookie to no notebook, so a page there cannot act at the hub."""
    at_hub, own = ada
    hubs = at_hub.sends("hub/home")
    assert "jupyterhub-hub-login" in hubs
    assert "jupyterhub-hub-login" not in own.sends("user/ada/lab")
    assert "jupyterhub-hub-login" not in own.sends("hub/api/user")
    assert own.get("hub/api/user").status_code in (401, 403)
    assert at_hub.ask("GET", "hub/api/user").json()["name"] == "ada"
    shared = own.sends("user/ada/lab").items() & hubs.items()
    # this cookie alone gives access to nothing
    assert {name for name, _value in shared} <= {"jupyterhub-session-id"}


def test_a_notebooks_cookie_stays_at_the_notebook(
    ada: tuple[Browser, Browser], bob: tuple[Browser, Browser]
) -> None:
    """A notebook's cookie is sent neither to the hub nor to bob's host, and bob's host does not
    accept it.
    """
    own, (_at_hub, bobs) = ada[1], bob
    name = "jupyterhub-user-ada"
    cookie = own.sends("user/ada/lab")[name]
    assert name not in ada[0].sends("hub/home")
    assert name not in ada[0].at(f"bob.{NAME}").sends("user/bob/lab")
    stranger = Browser(bobs.url)
    for stolen in (name, "jupyterhub-user-bob"):
        answer = stranger.get(
            "user/bob/tfcluster/api/clusters",
            headers={"Cookie": f"{stolen}={cookie}"},
            allow_redirects=False,
        )
        assert answer.status_code in (302, 403), stolen
    assert bobs.get("user/bob/tfcluster/api/clusters").status_code == 200
    seen = ada[0].get("user/bob/lab")  # ada is signed in at the hub, but she is not bob
    assert seen.status_code == 404  # the hub does not say whether bob has a notebook


def test_a_page_of_another_host_uses_nobodys_cookies(
    hub: RealHub, ada: tuple[Browser, Browser]
) -> None:
    """Scripts of bob's host can neither post to ada's notebook nor open a socket there."""
    _at_hub, own = ada
    theirs = f"http://bob.{NAME}:{hub.port}"
    forged = {"Origin": theirs, "X-XSRFToken": ""}
    stop = "user/ada/tfcluster/api/clusters/digits/stop"
    assert own.ask("POST", stop, json={}, headers=forged).status_code in (403, 404)
    assert own.ask("POST", stop, json={}).json()["detail"].startswith("there is no run")
    cookies = "; ".join(f"{name}={value}" for name, value in own.sends("user/ada/lab").items())
    where = f"ws://127.0.0.1:{hub.port}{hub.base_url}user/ada/api/events/subscribe"
    words = {"cookie": cookies, "host": f"ada.{NAME}:{hub.port}", "timeout": 120}
    mine = f"http://ada.{NAME}:{hub.port}"
    websocket.create_connection(where, origin=mine, **words).close()
    with pytest.raises(websocket.WebSocketBadStatusException, match="403"):
        websocket.create_connection(where, origin=theirs, **words)


def test_a_path_of_the_hub_leads_to_no_notebook(hub: RealHub, ada: tuple[Browser, Browser]) -> None:
    """A notebook's path on the hub's own host redirects to the notebook's host."""
    answer = ada[0].get("user/ada/lab", allow_redirects=False)
    assert answer.status_code == 302
    assert answer.headers["Location"].startswith(f"http://{NAME}:{hub.port}/tf/hub/user/ada")


class Subdomains(Hub):
    """A hub of `make run SUBDOMAIN_HOST=hub.localhost`."""

    def _words(self) -> list[str]:
        return [*super()._words(), "--subdomain-host", NAME]


def test_make_run_prints_the_name_and_the_console_is_at_the_hub(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The printed link has the host's name, and the console's sign-in is at that host."""
    hub = Subdomains(tmp_path_factory.mktemp("hub"), "/tf/")
    try:
        hub.start()
        url = f"http://{NAME}:{hub.port}/tf/"
        assert hub.link.startswith(f"{url}hub/set-password?code=")
        browser = Browser(url)
        assert browser.session.get(hub.link, timeout=120).status_code == 200
        typed = {"password": PASSWORD, "again": PASSWORD, "code": hub.link.partition("code=")[2]}
        typed["_xsrf"] = browser.xsrf("hub/set-password")
        set_now = browser.session.post(
            f"{url}hub/set-password", data=typed, timeout=120, allow_redirects=False
        )
        assert set_now.status_code == 302, set_now.text
        found: list[requests.Response] = []

        def is_open() -> bool:
            found.append(browser.get("services/admin/"))
            return "data-xsrf" in found[-1].text

        hub.until(is_open, "the console is open")
        assert found[-1].url.startswith(f"{url}services/admin/")
        by_shell = shell(hub, "admin", "clusters", TFCLUSTER_HUB_TOKEN="no such token")
        assert "does not know this token" in by_shell.stderr
        elsewhere = browser.at(f"{OWNER}.{NAME}").get("services/admin/api/clusters")
        assert elsewhere.status_code != 200 or "items" not in elsewhere.text
    finally:
        hub.close()
