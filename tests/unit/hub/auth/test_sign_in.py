"""Settings of sign-in and idle notebooks, and an OpenID Connect provider's description."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

from tfcluster_magic.errors import BackendUnavailable, InvalidRequest
from tfcluster_magic.hub import idle_culler
from tfcluster_magic.hub.auth import sign_in
from tfcluster_magic.hub.idle_by_policy import over, user_of
from tfcluster_magic.hub.tenancy.entitlements import Idle, entitlement_for_groups
from tfcluster_magic.hub.tenancy.policy import parse_policy

WHOLE = {
    "TFCLUSTER_HUB_SIGN_IN": "oidc",
    "OIDC_ISSUER": "https://login.example.org",
    "OIDC_CLIENT_ID": "hub",
    "OIDC_CLIENT_SECRET": "secret",
    "OIDC_ALLOWED_GROUPS": "ml, research",
}


class Described(ThreadingHTTPServer):
    """A web server whose answers a test sets: `says` maps a path to a status and a body."""

    def __init__(self) -> None:
        self.says: dict[str, tuple[int, bytes]] = {}
        super().__init__(("127.0.0.1", 0), _Answer)

    @property
    def issuer(self) -> str:
        """The server's own URL."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def describe(self, **changes: Any) -> None:
        """Answer with a provider's description; `changes` replaces fields, and `None` omits a
        field.
        """
        words = {"issuer": self.issuer}
        for name in ("authorization", "token", "userinfo"):
            words[f"{name}_endpoint"] = f"{self.issuer}/{name}"
        kept = {key: value for key, value in {**words, **changes}.items() if value is not None}
        self.says[sign_in.DISCOVERY_PATH] = (200, json.dumps(kept).encode())


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Send the answer that the test set."""
        assert isinstance(self.server, Described)
        status, body = self.server.says.get(self.path, (404, b""))
        self.send_response(status)
        if status == 302:
            self.send_header("Location", body.decode())
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None:
        """Log nothing."""


@pytest.fixture
def described() -> Iterator[Described]:
    """A running server whose answers a test sets."""
    with Described() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_accounts_are_the_default(tmp_path: Path) -> None:
    """Without settings, the hub uses its own accounts with passwords."""
    c = Config()
    sign_in.configure(c, {}, state=tmp_path)
    assert "AccountsAuthenticator" in c.JupyterHub.authenticator_class


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"OIDC_ISSUER": ""}, "OIDC_ISSUER: got nothing"),
        ({"OIDC_CLIENT_SECRET": ""}, "OIDC_CLIENT_SECRET: got nothing"),
        ({"OIDC_ISSUER": "http://login.example.org"}, "use https://…"),
        ({"OIDC_ISSUER": "login.example.org"}, "use an https://… address"),
        ({"OIDC_ISSUER": "https://login.example.org?a=b"}, "without ? and #"),
        ({"OIDC_CALLBACK_URL": "http://hub.example.org/"}, "OIDC_CALLBACK_URL"),
        ({"OIDC_ALLOWED_GROUPS": " , "}, "list the groups whose members may sign in"),
        ({"OIDC_ALLOWED_GROUPS": "*,ml"}, "use group names, or * alone"),
        ({"OIDC_ADMIN_GROUPS": "*"}, "make everybody an administrator"),
        ({"OIDC_CA_FILE": "/no/such/file"}, "OIDC_CA_FILE"),
        ({"OIDC_ALLOW_HTTP": "yes"}, "use 0 or 1"),
        ({"TFCLUSTER_HUB_SIGN_IN": "ldap"}, "use accounts or oidc"),
        ({"TFCLUSTER_HUB_SIGN_IN": "accounts"}, "set it to oidc, or unset OIDC_ISSUER"),
        ({"TFCLUSTER_HUB_SIGN_IN": ""}, "set it to oidc, or unset OIDC_ISSUER"),
    ],
)
def test_wrong_settings(tmp_path: Path, changes: dict[str, str], said: str) -> None:
    """The error names a missing, wrong or contradictory setting and the allowed values."""
    with pytest.raises(InvalidRequest) as caught:
        sign_in.configure(Config(), {**WHOLE, **changes}, state=tmp_path)
    assert said in str(caught.value)


def test_every_problem_at_once() -> None:
    """All wrong settings are reported together."""
    with pytest.raises(InvalidRequest) as caught:
        sign_in.provider_settings({"OIDC_ISSUER": "http://login.example.org"})
    assert [problem.field for problem in caught.value.problems] == [
        "OIDC_CLIENT_ID",
        "OIDC_CLIENT_SECRET",
        "OIDC_ISSUER",
        "OIDC_ALLOWED_GROUPS",
    ]


def test_admins_alone() -> None:
    """A group of administrators is enough: no other setting needs to say who may sign in."""
    found = sign_in.provider_settings(
        {**WHOLE, "OIDC_ALLOWED_GROUPS": "", "OIDC_ADMIN_GROUPS": "ops"}
    )
    assert (found.allowed_groups, found.admin_groups) == (frozenset(), frozenset({"ops"}))


def test_what_the_hub_is_given(tmp_path: Path, described: Described) -> None:
    """The provider's description sets the sign-in URLs and the scopes."""
    described.describe(
        scopes_supported=["openid", "groups", "offline_access"],
        token_endpoint_auth_methods_supported=["client_secret_basic"],
    )
    c = Config()
    settings = {**WHOLE, "OIDC_ISSUER": described.issuer, "OIDC_GROUPS_CLAIM": "teams"}
    sign_in.configure(c, settings, state=tmp_path)
    used = c.OpenIDAuthenticator
    assert used.authorize_url == f"{described.issuer}/authorization"
    assert used.userdata_url == f"{described.issuer}/userinfo"
    assert used.scope == ["openid", "groups"]
    assert used.basic_auth is True
    assert used.auth_state_groups_key == "oauth_user.teams"
    assert used.allowed_groups == {"ml", "research"}
    assert used.allow_all is False


def test_everybody(tmp_path: Path, described: Described) -> None:
    """All users of the provider are admitted only if the setting says so."""
    described.describe()
    c = Config()
    settings = {**WHOLE, "OIDC_ISSUER": described.issuer, "OIDC_ALLOWED_GROUPS": "*"}
    sign_in.configure(c, settings, state=tmp_path)
    assert c.OpenIDAuthenticator.allow_all is True
    assert c.OpenIDAuthenticator.allowed_groups == set()


def test_other_issuer(described: Described) -> None:
    """A description of another issuer is refused, even if only a slash differs."""
    described.describe(issuer=f"{described.issuer}/")
    with pytest.raises(BackendUnavailable, match="has the issuer"):
        sign_in.discover(described.issuer)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"token_endpoint": None}, "has no token_endpoint"),
        ({"token_endpoint": "http://other.example.org/t"}, "others on the network"),
        ({"userinfo_endpoint": "ftp://other.example.org/"}, "use an https://… address"),
    ],
)
def test_endpoints(described: Described, changes: dict[str, Any], said: str) -> None:
    """Missing or insecure endpoints are refused."""
    described.describe(**changes)
    with pytest.raises(BackendUnavailable, match=said):
        sign_in.discover(described.issuer)


def test_no_provider(described: Described) -> None:
    """If the server is not a provider, the error quotes the server's answer."""
    with pytest.raises(BackendUnavailable, match="answers 404"):
        sign_in.discover(described.issuer)
    for body in (b"<html>", b"\xff", b"[]"):
        described.says[sign_in.DISCOVERY_PATH] = (200, body)
        with pytest.raises(BackendUnavailable):
            sign_in.discover(described.issuer)


def test_no_redirect(described: Described) -> None:
    """If the URL of the provider's description redirects to another URL, the hub does not follow
    it.
    """
    described.describe()
    described.says["/elsewhere"] = described.says[sign_in.DISCOVERY_PATH]
    described.says[sign_in.DISCOVERY_PATH] = (302, b"/elsewhere")
    with pytest.raises(BackendUnavailable, match="answers 302"):
        sign_in.discover(described.issuer)


def test_unreachable() -> None:
    """The error has the reason why the provider is unreachable."""
    with pytest.raises(BackendUnavailable, match=r"cannot be reached: .*refused"):
        sign_in.discover("http://127.0.0.1:9")


def test_idle_settings() -> None:
    """Without settings, no notebook is culled, and there are no named servers."""
    c = Config()
    idle_culler.configure(c, {})
    assert "services" not in c.JupyterHub
    assert "allow_named_servers" not in c.JupyterHub


def test_idle_numbers() -> None:
    """Values that are not numbers are refused, each with its setting."""
    wrong = {"TFCLUSTER_HUB_IDLE": "1h", "TFCLUSTER_HUB_NAMED_SERVERS": "-1"}
    with pytest.raises(InvalidRequest) as caught:
        idle_culler.configure(Config(), wrong)
    assert [problem.field for problem in caught.value.problems] == list(wrong)


def test_idle_by_environment() -> None:
    """Settings in the environment take precedence over the policy."""
    c = Config(JupyterHub={"services": [], "load_roles": []}, Spawner={"environment": {}})
    said = {"TFCLUSTER_HUB_IDLE": "120", "TFCLUSTER_HUB_MAX_AGE": "7200"}
    idle_culler.configure(c, {**said, "TFCLUSTER_HUB_NAMED_SERVERS": "2"}, by_policy=True)
    (service,) = c.JupyterHub.services
    assert service["command"][3:] == ["--timeout=120", "--max-age=7200", "--cull-every=60"]
    assert c.JupyterHub.named_server_limit_per_user == 2
    assert c.Spawner.environment == {"JUPYTERHUB_ACTIVITY_INTERVAL": "30"}


def test_idle_by_policy() -> None:
    """On Kubernetes, the culler follows the policy, unless the environment disables the culler."""
    c = Config(JupyterHub={"services": [], "load_roles": []}, Spawner={"environment": {}})
    idle_culler.configure(c, {"TFCLUSTER_HUB_IDLE": "0"}, by_policy=True)
    assert not c.JupyterHub.services
    given = {"TFCLUSTER_HUB_NAMESPACE": "tfcluster-hub"}
    api = "http://127.0.0.1:8081/tf/hub/api"
    idle_culler.configure(c, {**given, "HOME": "/x"}, by_policy=True, api=api)
    (service,) = c.JupyterHub.services
    assert service["environment"] == {**given, "TFCLUSTER_HUB_API": api}
    assert f"--url={api}" in service["command"]
    (config,) = [word for word in service["command"] if word.startswith("--config=")]
    assert Path(config.removeprefix("--config=")).is_file()


@pytest.mark.parametrize(
    ("idle_for", "age", "ended"),
    [(10, 20, False), (3600, 4000, True), (10, 90_000, True)],
)
def test_times_of_a_group(idle_for: int, age: int, ended: bool) -> None:
    """A notebook is culled according to the idle time and the maximum age of its user's group."""
    policy = parse_policy("groups:\n  night: {idle: {cull: 3600, maxAge: 86400}}\n")
    times = entitlement_for_groups(policy, ["night"]).grant.idle
    assert over(times, timedelta(seconds=idle_for), timedelta(seconds=age)) is ended
    assert not over(Idle(cull=None), timedelta(days=9), timedelta(days=9))


@pytest.mark.parametrize(
    ("url", "base", "name"),
    [
        ("/user/ada/", "/", "ada"),
        ("/tf/user/a%40b.example/second/", "/tf/", "a@b.example"),
        ("/user/user/user/", "/user/", "user"),
    ],
)
def test_whose_notebook(url: str, base: str, name: str) -> None:
    """The user's name is read from a notebook's URL, with any base_url."""
    assert user_of(url, base) == name
