"""Access control of every route of the extension."""

from __future__ import annotations

from http.cookies import SimpleCookie
from typing import Any

import pytest
from support.server.calls import Answer, Api, Launch, assert_problem
from support.server.routes import ReadOnly, ways
from traitlets.config import Config


def sent(method: str) -> dict[str, Any]:
    return {"method": method, "body": b"{}" if method in ("POST", "PUT", "PATCH") else None}


def test_every_route_is_found(jp_web_app: Any) -> None:
    """The loop that the tests below use finds the routes of every module of the extension."""
    found = ways(jp_web_app)
    text = [f"{method} {path}" for method, path, _ in found]
    for expected in ("GET /a%40b/tfcluster/api/clusters", "POST /a%40b/tfcluster/api/clusters"):
        assert expected in text
    assert {f.__module__ for _, _, f in found} >= {
        "tfcluster_magic.server.launch",
        "tfcluster_magic.server.app",
        "tfcluster_magic.server.tensorboard_routes",
        "tfcluster_magic.server.runs",
    }


def test_every_method_is_guarded(jp_web_app: Any) -> None:
    """Every method of every route checks authentication and authorization before it answers."""
    for method, path, function in ways(jp_web_app):
        assert getattr(function, "is_guarded", False), f"{method} {path}"


async def test_nobody_comes_in_without_signing_in(jp_web_app: Any, http_server_client: Any) -> None:
    """Every route refuses a client without a token, with a wrong token, or with a forged cookie."""
    wrong = (
        {},
        {"Authorization": "token wrong"},
        {"Cookie": "username-localhost=ada; _xsrf=1", "X-XSRFToken": "1"},
    )
    for method, path, _ in ways(jp_web_app):
        for headers in wrong:
            answer = await http_server_client.fetch(
                path, headers=headers, raise_error=False, follow_redirects=False, **sent(method)
            )
            signs_in = answer.code == 302 and "/login" in answer.headers["Location"]
            assert answer.code in (401, 403) or signs_in, f"{method} {path}: {answer.code}"
            assert signs_in is (answer.code == 302)
            if "/api/" in path:
                assert answer.code != 302, f"{method} {path}"


async def signed_in(client: Any, base_url: str, token: str) -> dict[str, str]:
    """Return the cookies of a browser that has opened a page with the server's token."""
    page = await client.fetch(f"{base_url}tree?token={token}", raise_error=False)
    jar: SimpleCookie = SimpleCookie()
    for header in page.headers.get_list("Set-Cookie"):
        jar.load(header)
    return {name: morsel.coded_value for name, morsel in jar.items()}


async def test_another_site_cannot_use_a_persons_cookies(
    jp_web_app: Any, http_server_client: Any, jp_base_url: str, jp_serverapp: Any
) -> None:
    """A change that is requested with a browser's cookies needs the XSRF token."""
    token = jp_serverapp.identity_provider.token
    cookies = await signed_in(http_server_client, jp_base_url, token)
    assert "_xsrf" in cookies
    cookie = "; ".join(f"{name}={value}" for name, value in cookies.items())
    stop = f"{jp_base_url}tfcluster/api/clusters/digits/stop"

    async def post(path: str, method: str = "POST", **headers: str) -> Any:
        return await http_server_client.fetch(
            path, headers={"Cookie": cookie, **headers}, raise_error=False, **sent(method)
        )

    own = await post(stop, **{"X-XSRFToken": cookies["_xsrf"]})
    assert own.code == 404, "the cookies are good, there is only no such run"
    for method, path, _ in ways(jp_web_app):
        if method not in ("GET", "HEAD"):
            forged = await post(path, method, Origin="https://evil.example")
            assert forged.code in (403, 404), f"{method} {path}"
            assert b"there is no run" not in forged.body
            plain = await post(path, method)
            assert plain.code == 403, f"{method} {path}"
            guessed = await post(path, method, **{"X-XSRFToken": "1"})
            assert guessed.code == 403, f"{method} {path}"


async def test_a_token_in_the_url_opens_as_everywhere_in_jupyter(
    http_server_client: Any, jp_base_url: str, jp_serverapp: Any
) -> None:
    """A program may send the server's token in a header or in the URL."""
    token = jp_serverapp.identity_provider.token
    path = f"{jp_base_url}tfcluster/api/clusters"
    for headers, query in (
        ({"Authorization": f"token {token}"}, ""),
        ({"Authorization": f"Bearer {token}"}, ""),
        ({}, f"?token={token}"),
    ):
        answer = await http_server_client.fetch(path + query, headers=headers)
        assert answer.code == 200


class TestSomebodyWhoMayOnlyLook:
    """The server's Authorizer allows `read` on `tfcluster` and nothing else."""

    @pytest.fixture
    def jp_server_config(self) -> Config:
        return Config(
            {
                "ServerApp": {
                    "jpserver_extensions": {"tfcluster_magic.server": True},
                    "authorizer_class": ReadOnly,
                }
            }
        )

    async def test_looking_is_allowed(self, api: Api, ended: Launch) -> None:
        """Lists, records and logs are allowed."""
        await ended()
        for path in ("clusters", "clusters/digits", "clusters/digits/logs", "options"):
            assert (await api("GET", path)).status == 200

    async def test_doing_is_not(self, api: Api, ended: Launch) -> None:
        """Stopping, deleting and launching are refused and have no effect."""
        await ended()
        for method, path in (
            ("POST", "clusters/digits/stop"),
            ("DELETE", "clusters/digits"),
            ("POST", "clusters"),
            ("POST", "clusters/digits/rerun"),
        ):
            answer: Answer = await api(method, path)
            assert_problem(answer, 403, "not authorized to write on resource: tfcluster")
            assert answer.json["title"] == "NotAllowed", "signing in again would not help"
        assert (await api("GET", "clusters/digits")).status == 200
