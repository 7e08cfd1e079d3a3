"""Settings of sign-in by the hub's own accounts or an OpenID Connect provider.

Missing or contradictory settings stop the hub with one error that lists all of them. An account at
the provider is not enough to sign in: the user must be in an allowed group or on the list of
imported users. This module reads the environment and the provider's discovery document, and never
handles passwords.
"""

from __future__ import annotations

import ipaddress
import json
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, build_opener

import msgspec
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.scopes import needs_scope
from tornado import web
from traitlets.config import Config

from ... import state_files
from ...errors import BackendUnavailable, InvalidRequest, Problem, TFClusterError
from ...i18n import _, mark
from .. import auth
from ..shared_settings import SIGN_IN
from .accounts import allowed_name

DISCOVERY_PATH = "/.well-known/openid-configuration"
DISCOVERY_SECONDS = 10.0
DISCOVERY_LARGEST = 1 << 20
REQUIRED_ENDPOINTS = ("authorization_endpoint", "token_endpoint")


@dataclass(frozen=True)
class Endpoints:
    """Endpoints and capabilities of a provider; `userinfo` is empty if it has none."""

    authorize: str
    token: str
    userinfo: str
    scopes: frozenset[str]
    basic_auth: bool
    """Whether to send the hub's secret in a header, because the provider refuses it in the body."""


def url_problem(url: str, allow_http: bool) -> str:
    """Return why an address cannot be used for sign-in; empty if it can be used."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return _("use an https://… address")
    if parts.scheme == "http" and not allow_http and not _is_loopback(parts.hostname):
        return _("use https://…: others on the network could read passwords and tokens")
    if parts.query or parts.fragment:
        return _("use an address without ? and #")
    return ""


def discover(issuer: str, *, ca_file: str = "", allow_http: bool = False) -> Endpoints:
    """Return the endpoints of the provider at `issuer`, from its discovery document.

    `ca_file` holds CA certificates (PEM) to use instead of the system's. Proxy settings of the
    environment are ignored, as they are for sign-ins.

    Raises:
        BackendUnavailable: `issuer` does not answer, is no provider, or names another issuer.
    """
    url = issuer.rstrip("/") + DISCOVERY_PATH
    try:
        found = json.loads(_fetch(url, ca_file))
    except HTTPError as error:
        raise _provider_problem(
            issuer, _("{url} answers {code}").format(url=url, code=error.code)
        ) from error
    except (URLError, HTTPException, OSError) as error:
        why = getattr(error, "reason", error)
        raise _provider_problem(
            issuer, _("{url} cannot be reached: {why}").format(url=url, why=why)
        ) from error
    except ValueError as error:
        raise _provider_problem(
            issuer, _("{url} does not answer with JSON").format(url=url)
        ) from error
    return _endpoints(issuer, url, found, allow_http)


def _endpoints(issuer: str, url: str, found: Any, allow_http: bool) -> Endpoints:
    said = found.get("issuer") if isinstance(found, dict) else None
    if said != issuer:  # OpenID Connect Discovery 4.3: refuse another issuer
        text = _("{url} has the issuer {said}: set OIDC_ISSUER to exactly this")
        raise _provider_problem(issuer, text.format(url=url, said=said))
    for name in (*REQUIRED_ENDPOINTS, "userinfo_endpoint"):
        address = found.get(name)
        if not address and name in REQUIRED_ENDPOINTS:
            raise _provider_problem(issuer, _("{url} has no {what}").format(url=url, what=name))
        if address and (why := url_problem(str(address).partition("?")[0], allow_http)):
            raise _provider_problem(issuer, f"{name} {address}: {why}")
    ways = found.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
    return Endpoints(
        authorize=str(found["authorization_endpoint"]),
        token=str(found["token_endpoint"]),
        userinfo=str(found.get("userinfo_endpoint") or ""),
        scopes=frozenset(found.get("scopes_supported") or ("profile", "email")),
        basic_auth="client_secret_post" not in ways,
    )


def _fetch(url: str, ca_file: str) -> bytes:
    context = ssl.create_default_context(cafile=ca_file or None)
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context), _NoRedirect)
    with opener.open(url, timeout=DISCOVERY_SECONDS) as answer:
        return bytes(answer.read(DISCOVERY_LARGEST))


class _NoRedirect(HTTPRedirectHandler):
    """Turns redirects into errors, because they would lead away from the issuer's address."""

    def redirect_request(self, *_args: Any, **_words: Any) -> None:
        return None


def _provider_problem(issuer: str, what: str) -> BackendUnavailable:
    text = _("nobody can sign in at {issuer} (OIDC_ISSUER): {what}")
    return BackendUnavailable(text.format(issuer=issuer, what=what))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# -- imported users, who may sign in at the provider without an allowed group

ALLOW_LIST_FILE = "allowed.json"


class AllowList:
    """The names of imported users, in a file that is written atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> set[str]:
        """Return the names of all imported users. Raises TFClusterError if the file cannot be
        read.
        """
        try:
            return state_files.load(self.path, set[str], exact=True)
        except FileNotFoundError:
            return set()
        except state_files.Unreadable as error:
            text = _("the list of users who may sign in cannot be read from {file}: {why}")
            raise TFClusterError(text.format(file=self.path, why=error)) from None

    def add(self, *names: str) -> None:
        """Add names to the file. Raises TFClusterError or OSError."""
        with self._change() as found:
            found.update(names)

    def remove(self, name: str) -> None:
        """Remove a name from the file. Raises TFClusterError or OSError."""
        if name in self.names():
            with self._change() as found:
                found.discard(name)

    @contextmanager
    def _change(self) -> Iterator[set[str]]:
        with state_files.locked(self.path):
            found = self.names()
            yield found
            state_files.write(self.path, msgspec.json.encode(sorted(found)), durable=True)


class AllowedAPI(APIHandler):
    """The allow list over HTTP, for callers that may create users."""

    @needs_scope("admin:users")
    def get(self) -> None:
        """Answer with {"allowed": [NAME]}."""
        self.write({"allowed": sorted(self._list.names())})

    @needs_scope("admin:users")
    def post(self) -> None:
        """Add the names in {"names": [NAME]} to the list: all of them or none."""
        said = self.get_json_body() or {}
        names = said.get("names") if isinstance(said, dict) else None
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise web.HTTPError(400, "names must be a list of names")
        self._add(*names)

    def _add(self, *names: str) -> None:
        normal = self.authenticator.normalize_username
        try:
            self._list.add(*(normal(allowed_name(name)) for name in names))
        except InvalidRequest as problem:
            raise web.HTTPError(400, "%s", problem) from None
        self.set_status(204)

    @property
    def _list(self) -> AllowList:
        found: AllowList = self.authenticator.imported
        return found


class OneAllowedAPI(AllowedAPI):
    """One name of the allow list."""

    @needs_scope("admin:users")
    def put(self, name: str) -> None:
        """Add the name."""
        self._add(name)


ALLOW_LIST_HANDLERS = [(r"/api/allowed", AllowedAPI), (r"/api/allowed/([^/]+)", OneAllowedAPI)]


# -- settings of sign-in

KINDS = ("accounts", "oidc")
EVERYBODY = "*"
COOKIE_DAYS = 1
"""Maximum length of a session, in days. A user's groups are read only at sign-in, so a changed
group takes effect within this time.
"""
SCOPES = ("profile", "email", "groups")
"""Scopes requested besides `openid`, if the provider has them."""
REQUIRED = {
    "OIDC_ISSUER": mark("the provider's address, https://…"),
    "OIDC_CLIENT_ID": mark("the client ID of the hub at the provider"),
    "OIDC_CLIENT_SECRET": mark("the client secret that the provider gave to the hub"),
}


@dataclass(frozen=True)
class Provider:
    """Checked settings of sign-in at a provider."""

    issuer: str
    client_id: str
    client_secret: str
    username_claim: str
    groups_claim: str
    allowed_groups: frozenset[str]
    admin_groups: frozenset[str]
    callback_url: str
    ca_file: str
    allow_http: bool


def configure(c: Config, environ: Mapping[str, str] | None = None, *, state: Path) -> None:
    """Configure sign-in by TFCLUSTER_HUB_SIGN_IN: `accounts` or `oidc`.

    `state` is the hub's own folder. docs/how-to/hub-sign-in.md describes the OIDC_* variables.

    Raises:
        InvalidRequest: settings are missing or contradictory; the message lists all of them.
        BackendUnavailable: the provider does not answer, or does not match the settings.
    """
    env = os.environ if environ is None else environ
    if _kind(env) == "accounts":
        auth.configure(c, state=state)
        return
    settings = provider_settings(env)
    known = discover(settings.issuer, ca_file=settings.ca_file, allow_http=settings.allow_http)
    _use(c, settings, known)
    c.OpenIDAuthenticator.allowed_file = str(state / ALLOW_LIST_FILE)


def provider_settings(env: Mapping[str, str]) -> Provider:
    """Return the provider's settings from the environment.

    Raises:
        InvalidRequest: lists every problem.
    """
    problems = [
        Problem(name, None, _("set it to {what}").format(what=_(what)))
        for name, what in REQUIRED.items()
        if not env.get(name)
    ]
    allow_http = env.get("OIDC_ALLOW_HTTP", "")
    if allow_http not in {"", "0", "1"}:
        problems.append(Problem("OIDC_ALLOW_HTTP", allow_http, _("use 0 or 1")))
    problems += [
        Problem(name, url, wrong)
        for name in ("OIDC_ISSUER", "OIDC_CALLBACK_URL")
        if (url := env.get(name)) and (wrong := url_problem(url, allow_http == "1"))
    ]
    if (file := env.get("OIDC_CA_FILE")) and not Path(file).is_file():
        problems.append(Problem("OIDC_CA_FILE", file, _("set it to a PEM file of certificates")))
    allowed, admins = _names(env, "OIDC_ALLOWED_GROUPS"), _names(env, "OIDC_ADMIN_GROUPS")
    problems += _group_problems(allowed, admins, env.get("OIDC_GROUPS_CLAIM", "groups"))
    if problems:
        raise InvalidRequest(problems, _("the hub's sign-in cannot be set up"))
    return Provider(
        issuer=env["OIDC_ISSUER"],
        client_id=env["OIDC_CLIENT_ID"],
        client_secret=env["OIDC_CLIENT_SECRET"],
        username_claim=env.get("OIDC_USERNAME_CLAIM") or "preferred_username",
        groups_claim=env.get("OIDC_GROUPS_CLAIM") or "groups",
        allowed_groups=allowed,
        admin_groups=admins,
        callback_url=env.get("OIDC_CALLBACK_URL", ""),
        ca_file=file or "",
        allow_http=allow_http == "1",
    )


def _kind(env: Mapping[str, str]) -> str:
    kind = env.get(SIGN_IN) or "accounts"
    headline = _("the hub's sign-in cannot be set up")
    if kind not in KINDS:
        one = Problem(SIGN_IN, kind, _("use accounts or oidc"))
        raise InvalidRequest([one], headline)
    given = [name for name in REQUIRED if env.get(name)]
    if kind == "accounts" and given:
        one = Problem(
            SIGN_IN,
            kind,
            _("set it to oidc, or unset {names}").format(names=", ".join(given)),
        )
        raise InvalidRequest([one], headline)
    return kind


def _group_problems(allowed: frozenset[str], admins: frozenset[str], claim: str) -> list[Problem]:
    if not allowed and not admins:
        text = _(
            "list the groups whose members may sign in, separated by commas; * stands "
            "for everybody with an account"
        )
        return [Problem("OIDC_ALLOWED_GROUPS", None, text)]
    if EVERYBODY in allowed and len(allowed) > 1:
        shown = ",".join(sorted(allowed))
        return [Problem("OIDC_ALLOWED_GROUPS", shown, _("use group names, or * alone"))]
    if EVERYBODY in admins:
        return [
            Problem(
                "OIDC_ADMIN_GROUPS",
                "*",
                _("use group names: * would make everybody an administrator"),
            )
        ]
    if not claim:
        return [
            Problem("OIDC_GROUPS_CLAIM", claim, _("set it to the claim that contains the groups"))
        ]
    return []


def _names(env: Mapping[str, str], name: str) -> frozenset[str]:
    return frozenset(word for part in env.get(name, "").split(",") if (word := part.strip()))


def _use(c: Config, settings: Provider, known: Endpoints) -> None:
    c.JupyterHub.authenticator_class = (
        "tfcluster_magic.hub.auth.openid_authenticator.OpenIDAuthenticator"
    )
    c.JupyterHub.cookie_max_age_days = COOKIE_DAYS
    use = c.OpenIDAuthenticator
    use.client_id, use.client_secret = settings.client_id, settings.client_secret
    use.authorize_url, use.token_url = known.authorize, known.token
    if known.userinfo:
        use.userdata_url = known.userinfo
    else:
        use.userdata_from_id_token = True  # safe: the token endpoint sends the ID token over TLS
    offered = known.scopes
    use.scope = ["openid", *(one for one in SCOPES if one in offered)]
    use.basic_auth = known.basic_auth
    use.enable_pkce = True
    use.username_claim = settings.username_claim
    use.manage_groups = True
    use.auth_state_groups_key = f"oauth_user.{settings.groups_claim}"
    use.allow_all = EVERYBODY in settings.allowed_groups
    use.allowed_groups = set(settings.allowed_groups - {EVERYBODY})
    use.admin_groups = set(settings.admin_groups)
    if settings.callback_url:
        use.oauth_callback_url = settings.callback_url
    if settings.ca_file:
        use.http_request_kwargs = {"ca_certs": settings.ca_file}
