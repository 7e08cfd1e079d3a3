"""Access control of a real hub, tried with the real notebooks of two users."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests
import websocket
from support.hub.real_hub import RealHub, password
from support.hub.visitor import Visitor

SHOW_TOKEN = "import os; print(os.environ['JUPYTERHUB_API_TOKEN'])"


@pytest.fixture(scope="module")
def both(hub_of_two: RealHub) -> tuple[Visitor, Visitor]:
    """Ada and Bob, signed in, each with a running notebook."""
    people = hub_of_two.visitor("ada"), hub_of_two.visitor("bob")
    for one in people:
        one.spawn()
    return people


def stranger(hub: RealHub) -> Visitor:
    """Return a visitor who has not signed in."""
    made = Visitor(hub.url)
    made.get("hub/login")
    return made


def by_token(hub: RealHub, token: str, method: str, path: str) -> requests.Response:
    """Send a request with a token instead of a browser's cookies."""
    headers = {"Authorization": f"token {token}"}
    url = f"{hub.url}{path}"
    return requests.request(method, url, headers=headers, allow_redirects=False, timeout=120)


def cookie(visitor: Visitor, name: str) -> str:
    """Return the value of a browser's cookie."""
    (value,) = [one.value for one in visitor.session.cookies if one.name == name]
    return str(value)


OURS = [
    "user/ada/lab",
    "user/ada/api/contents",
    "user/ada/files/x",
    "user/ada/tfcluster/api/clusters",
]


@pytest.mark.parametrize("path", ["hub/home", "hub/admin", "hub/token", "hub/spawn", *OURS])
def test_without_sign_in(hub_of_two: RealHub, both: tuple[Visitor, Visitor], path: str) -> None:
    """A visitor without sign-in is sent to the sign-in page or refused, and sees nothing."""
    answer = stranger(hub_of_two).get(path)
    assert is_sign_in(answer) or answer.status_code == 403


def is_sign_in(answer: requests.Response) -> bool:
    """Return whether the response is the sign-in page."""
    return urlsplit(answer.url).path.endswith("/hub/login") and "Sign in" in answer.text


@pytest.mark.parametrize(
    "path", ["user", "users", "users/ada", "groups", "proxy", "services", "shutdown"]
)
def test_api_without_sign_in(hub_of_two: RealHub, path: str) -> None:
    """The hub's API refuses a visitor who has not signed in."""
    made = stranger(hub_of_two)
    for method in ("GET", "POST", "DELETE"):
        answer = made.ask(method, f"hub/api/{path}")
        assert answer.status_code in {403, 405}, f"{method} {answer.status_code}"


@pytest.mark.parametrize("path", OURS)
def test_notebook_of_another(both: tuple[Visitor, Visitor], path: str) -> None:
    """A signed-in user cannot open another user's notebook, files or clusters."""
    answer = both[1].get(path)
    assert answer.status_code in {403, 404}, answer.url
    assert both[0].get("user/ada/tfcluster/api/clusters").status_code == 200


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize("what", ["clusters", "clusters/digits", "tensorboards", "api/kernels"])
def test_change_at_another(both: tuple[Visitor, Visitor], method: str, what: str) -> None:
    """No user can launch, stop or start anything in another user's notebook."""
    path = f"user/ada/{what}" if what.startswith("api") else f"user/ada/tfcluster/api/{what}"
    answer = both[1].ask(method, path, json={})
    assert answer.status_code == 403, answer.text


def test_server_of_another(both: tuple[Visitor, Visitor]) -> None:
    """No user can start, stop or see another user's notebook through the hub's API."""
    for method in ("POST", "DELETE"):
        assert both[1].ask(method, "hub/api/users/ada/server").status_code in {403, 404}
    assert both[1].ask("GET", "hub/api/users/ada").status_code == 404
    assert both[1].ask("GET", "hub/api/users").status_code == 403
    assert both[1].get("hub/admin").status_code == 403
    assert both[0].servers()[""]["ready"]


def test_second_notebook_is_off(both: tuple[Visitor, Visitor]) -> None:
    """A user cannot start a second (named) notebook, because the hub's settings do not allow it."""
    answer = both[1].ask("POST", "hub/api/users/bob/servers/second")
    assert answer.status_code == 400
    assert "Named servers are not enabled" in answer.text


def test_tensorboard_of_another(both: tuple[Visitor, Visitor]) -> None:
    """Another user's TensorBoard is refused on every path, while its owner sees it."""
    ada, bob = both
    ada.run("user/ada", "import os; os.makedirs(os.path.expanduser('~/tfcluster/logs'))")
    asked = ada.ask("POST", "user/ada/tfcluster/api/tensorboards", json={"folder": "logs"})
    assert asked.status_code in {200, 201}, asked.text
    page = f"user/ada/{asked.json()['path']}"
    assert "<html" in ada.get(page).text
    assert bob.get(page).status_code == 403
    assert bob.get(f"{page}data/environment").status_code == 403
    assert bob.ask("POST", f"{page}data/plugin/scalars/scalars").status_code == 403
    nobody = requests.get(bob.url + page, timeout=120)
    assert is_sign_in(nobody), f"{nobody.status_code} {nobody.url}: {nobody.text[:2000]}"
    assert bob.get("user/ada/tfcluster/api/tensorboards").status_code == 403
    ada.ask("DELETE", f"user/ada/tfcluster/api/tensorboards/{asked.json()['id']}")


@pytest.mark.parametrize("token", [None, "", "forged", "2|1:0|10:1700000000|5:_xsrf|4:eA==|0"])
def test_forged_xsrf(both: tuple[Visitor, Visitor], token: str | None) -> None:
    """Hub and notebook refuse changes without the page's XSRF token."""
    ada = both[0]
    headers = {} if token is None else {"X-XSRFToken": token}
    for path in ("hub/api/users/ada/server", "hub/api/users/ada/tokens", "hub/change-password"):
        answer = ada.session.post(ada.url + path, headers=headers, json={}, timeout=120)
        assert answer.status_code == 403, f"{path} {answer.status_code}"
    for path in ("user/ada/tfcluster/api/clusters", "user/ada/api/kernels"):
        answer = ada.session.post(ada.url + path, headers=headers, json={}, timeout=120)
        assert answer.status_code == 403, f"{path} {answer.status_code}"


def test_xsrf_of_another(both: tuple[Visitor, Visitor]) -> None:
    """The XSRF token of one browser is not valid in another."""
    ada, bob = both
    for path in ("hub/api/users/ada/server", "user/ada/tfcluster/api/clusters"):
        where = path if path.startswith("hub") else path.replace("ada", "bob")
        headers = {"X-XSRFToken": bob.xsrf(where)}
        answer = ada.session.post(ada.url + path, headers=headers, json={}, timeout=120)
        assert answer.status_code == 403


def test_sign_in_form_of_another_site(hub_of_two: RealHub) -> None:
    """A sign-in form on another site signs nobody in, because it does not know the XSRF token."""
    made = stranger(hub_of_two)
    typed = {"username": "ada", "password": password("ada")}
    for token in ({}, {"_xsrf": "forged"}):
        answer = made.session.post(f"{made.url}hub/login", data={**typed, **token}, timeout=120)
        assert answer.status_code == 403
    assert made.ask("GET", "hub/api/user").status_code == 403


def test_cookie_for_another_server(both: tuple[Visitor, Visitor]) -> None:
    """The cookie of a user's notebook opens no other notebook, whatever name it is sent under."""
    ada, bob = both
    stolen = cookie(bob, "jupyterhub-user-bob")
    for name in ("jupyterhub-user-ada", "jupyterhub-user-bob", "jupyterhub-session-id"):
        answer = requests.get(
            f"{ada.url}user/ada/tfcluster/api/clusters",
            headers={"Cookie": f"{name}={stolen}"},
            allow_redirects=False,
            timeout=120,
        )
        assert answer.status_code in {302, 403}
    at_hub = requests.get(
        f"{ada.url}hub/api/user", headers={"Cookie": f"jupyterhub-hub-login={stolen}"}, timeout=120
    )
    assert at_hub.status_code == 403


def test_cookie_is_for_one_path(both: tuple[Visitor, Visitor]) -> None:
    """A browser sends a notebook's cookies only to that notebook, and scripts cannot read them."""
    for visitor in both:
        name = f"jupyterhub-user-{visitor.name}"
        own = [one for one in visitor.session.cookies if one.name == name]
        assert [one.path for one in own] == [f"/tf/user/{visitor.name}/"]
        assert all(one.has_nonstandard_attr("HttpOnly") for one in own)
        hub = [one for one in visitor.session.cookies if one.name == "jupyterhub-hub-login"]
        assert [one.path for one in hub] == ["/tf/hub/"]


@pytest.mark.parametrize("path", ["api/events/subscribe", "api/kernels"])
def test_page_of_another_site(both: tuple[Visitor, Visitor], path: str) -> None:
    """A page of another site cannot open a websocket or change anything with a
    visitor's cookies.
    """
    ada = both[0]
    if path.endswith("subscribe"):
        with pytest.raises(websocket.WebSocketBadStatusException) as caught:
            ada.socket(f"user/ada/{path}", origin="https://evil.example")
        assert caught.value.status_code == 403
        ada.socket(f"user/ada/{path}").close()
        return
    foreign = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
    foreign |= {"Sec-Fetch-Mode": "cors", "Content-Type": "text/plain"}
    answer = ada.session.post(f"{ada.url}user/ada/{path}", headers=foreign, timeout=120)
    assert answer.status_code == 403
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_token_beyond_its_scopes(hub_of_two: RealHub, both: tuple[Visitor, Visitor]) -> None:
    """A token is limited to its scopes, and nobody can make a token with more rights than their
    own.
    """
    ada = both[0]
    for scopes in (
        ["admin:users"],
        ["list:users"],
        ["access:servers!user=bob"],
        ["servers!user=bob"],
    ):
        asked = ada.ask("POST", "hub/api/users/ada/tokens", json={"scopes": scopes})
        assert asked.status_code == 400, scopes
    assert ada.ask("POST", "hub/api/users/bob/tokens", json={}).status_code in {403, 404}
    narrow = {"scopes": ["read:users:name!user"], "expires_in": 60}
    token = ada.ask("POST", "hub/api/users/ada/tokens", json=narrow).json()["token"]
    assert by_token(hub_of_two, token, "GET", "hub/api/users/ada").json()["name"] == "ada"
    assert "servers" not in by_token(hub_of_two, token, "GET", "hub/api/users/ada").json()
    for method, path in (
        ("GET", "hub/api/users"),
        ("DELETE", "hub/api/users/ada/server"),
        ("GET", "user/ada/tfcluster/api/clusters"),
        ("POST", "hub/api/users/ada/tokens"),
    ):
        answer = by_token(hub_of_two, token, method, path)
        assert answer.status_code in {302, 403}, f"{method} {path} {answer.status_code}"


def test_notebooks_own_token(hub_of_two: RealHub, both: tuple[Visitor, Visitor]) -> None:
    """The token in a notebook opens only that notebook, and is invalid once the notebook ends."""
    token = both[1].run("user/bob", SHOW_TOKEN).strip()
    assert by_token(hub_of_two, token, "GET", "user/bob/tfcluster/api/clusters").status_code == 200
    for method, path in (
        ("GET", "hub/api/users"),
        ("GET", "hub/api/users/ada"),
        ("GET", "hub/api/groups"),
        ("DELETE", "hub/api/users/bob/server"),
        ("POST", "hub/api/users/bob/tokens"),
        ("GET", "user/ada/tfcluster/api/clusters"),
    ):
        answer = by_token(hub_of_two, token, method, path)
        assert answer.status_code in {302, 403, 404}, f"{method} {path} {answer.status_code}"

    assert both[1].ask("DELETE", "hub/api/users/bob/server").status_code in {202, 204}
    assert by_token(hub_of_two, token, "GET", "hub/api/user").status_code == 403
    both[1].spawn()
    again = by_token(hub_of_two, token, "GET", "user/bob/tfcluster/api/clusters")
    assert again.status_code in {302, 403}


@pytest.mark.parametrize(
    "following",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example/",
        "\\\\evil.example/",
        "///evil.example",
        "http:evil.example",
        "/tf/../..//evil.example",
        "javascript:alert(1)",
        "/%09/evil.example",
    ],
)
def test_next_stays_here(hub_of_two: RealHub, following: str) -> None:
    """No `next` parameter of a sign-in link leads to another site."""
    made = stranger(hub_of_two)
    typed = {"username": "ada", "password": password("ada"), "_xsrf": made.xsrf("hub/login")}
    answer = made.session.post(
        f"{made.url}hub/login",
        params={"next": following},
        data=typed,
        allow_redirects=False,
        timeout=120,
    )
    assert answer.status_code == 302
    target = urlsplit(answer.headers["Location"])
    assert (target.scheme, target.netloc) == ("", "")
    assert target.path.startswith("/") and target.path[1:2] not in {"/", "\\"}


def test_frame_of_another_site(both: tuple[Visitor, Visitor]) -> None:
    """No other site can show the hub or a notebook in a frame."""
    for path in ("hub/home", "hub/login", "user/ada/lab"):
        policy = both[0].get(path).headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in policy or "frame-ancestors 'self'" in policy


def test_report_is_no_window(both: tuple[Visitor, Visitor]) -> None:
    """The start progress of a notebook is visible only to its user."""
    answer = both[1].get("hub/api/users/ada/server/progress")
    assert answer.status_code in {403, 404}
    assert "ready" not in json.dumps(answer.text)


def test_an_administrator_can_open_a_notebook(tmp_path: Path) -> None:
    """An administrator of the hub has the rights of each user in that user's notebook, as
    docs/explanation/security-kubernetes.md says.
    """
    chosen = 'c.Authenticator.admin_users = {"chief"}'
    hub = RealHub(tmp_path / "hub", ["ada", "chief"], more=chosen)
    try:
        hub.start()
        hub.visitor("ada").spawn()
        chief = hub.visitor("chief")
        assert chief.get("hub/admin").status_code == 200
        asked = chief.get("user/ada/lab")  # JupyterHub asks whether the notebook may know who comes
        inputs = re.findall(r"<input[^>]*>", asked.text)
        typed = {
            re.findall(r'name="([^"]*)"', each)[0]: re.findall(r'value="([^"]*)"', each)[0]
            for each in inputs
            if "value=" in each and "name=" in each
        }
        origin = {"Referer": asked.url}
        answer = chief.session.post(asked.url, data=typed, headers=origin, timeout=120)
        assert urlsplit(answer.url).path == "/tf/user/ada/lab"
        assert chief.get("user/ada/api/contents").status_code == 200
    finally:
        hub.close()
