"""How people sign in: with an account of the hub's own, or at an OpenID Connect provider.

It promises that a setting that is missing, or that contradicts another, stops the hub with all that
is wrong at once, and that a provider alone lets nobody in: somebody has to say whom. It reads the
environment and the provider's description of itself, and never asks for a password.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from traitlets.config import Config

from ...errors import InvalidRequest, Problem
from ...i18n import _, mark
from .. import auth
from . import discovery
from .allow_list import FILE

KINDS = ("accounts", "oidc")
EVERYBODY = "*"
COOKIE_DAYS = 1
"""Groups are read when somebody signs in; so who left one is out a day later at the latest."""
SCOPES = ("profile", "email", "groups")
"""What is asked for beside `openid`, of that which the provider has."""
REQUIRED = {
    "OIDC_ISSUER": mark("the provider's address, https://…"),
    "OIDC_CLIENT_ID": mark("the name under which the hub is registered at the provider"),
    "OIDC_CLIENT_SECRET": mark("the secret that the provider gave to the hub"),
}


@dataclass(frozen=True)
class Provider:
    """The settings of sign-in at a provider, checked."""

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
    """Set who asks people who they are, by TFCLUSTER_HUB_SIGN_IN: `accounts` or `oidc`.

    `state` is the hub's own folder. OIDC_* are in docs/hub-sign-in.md.

    Raises:
        InvalidRequest: settings are missing or contradict each other; all of them.
        BackendUnavailable: the provider does not answer, or is not what the settings say.
    """
    env = os.environ if environ is None else environ
    if _kind(env) == "accounts":
        auth.configure(c, state=state)
        return
    settings = read(env)
    known = discovery.read(
        settings.issuer, ca_file=settings.ca_file, allow_http=settings.allow_http
    )
    _use(c, settings, known)
    c.OpenIDAuthenticator.allowed_file = str(state / FILE)


def read(env: Mapping[str, str]) -> Provider:
    """The settings of the provider.

    Raises:
        InvalidRequest: with every problem.
    """
    problems = [
        Problem(name, None, _("set it to {what}").format(what=_(what)))
        for name, what in REQUIRED.items()
        if not env.get(name)
    ]
    allow_http = env.get("OIDC_ALLOW_HTTP", "")
    if allow_http not in {"", "0", "1"}:
        problems.append(Problem("OIDC_ALLOW_HTTP", allow_http, _("0 or 1 is allowed")))
    problems += [
        Problem(name, url, wrong)
        for name in ("OIDC_ISSUER", "OIDC_CALLBACK_URL")
        if (url := env.get(name)) and (wrong := discovery.refused(url, allow_http == "1"))
    ]
    if (file := env.get("OIDC_CA_FILE")) and not Path(file).is_file():
        problems.append(Problem("OIDC_CA_FILE", file, _("set it to a file of certificates (PEM)")))
    allowed, admins = _names(env, "OIDC_ALLOWED_GROUPS"), _names(env, "OIDC_ADMIN_GROUPS")
    problems += _whom(allowed, admins, env.get("OIDC_GROUPS_CLAIM", "groups"))
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
    kind = env.get("TFCLUSTER_HUB_SIGN_IN") or "accounts"
    headline = _("the hub's sign-in cannot be set up")
    if kind not in KINDS:
        one = Problem("TFCLUSTER_HUB_SIGN_IN", kind, _("accounts or oidc is allowed"))
        raise InvalidRequest([one], headline)
    given = [name for name in REQUIRED if env.get(name)]
    if kind == "accounts" and given:
        one = Problem(
            "TFCLUSTER_HUB_SIGN_IN",
            kind,
            _("set it to oidc, or do not set {names}").format(names=", ".join(given)),
        )
        raise InvalidRequest([one], headline)
    return kind


def _whom(allowed: frozenset[str], admins: frozenset[str], claim: str) -> list[Problem]:
    if not allowed and not admins:
        text = _("name groups whose members may sign in, with commas; * is whoever has an account")
        return [Problem("OIDC_ALLOWED_GROUPS", None, text)]
    if EVERYBODY in allowed and len(allowed) > 1:
        shown = ",".join(sorted(allowed))
        return [Problem("OIDC_ALLOWED_GROUPS", shown, _("name groups, or * alone"))]
    if EVERYBODY in admins:
        return [Problem("OIDC_ADMIN_GROUPS", "*", _("name groups: not everybody is an admin"))]
    if not claim:
        return [Problem("OIDC_GROUPS_CLAIM", claim, _("name the claim that holds the groups"))]
    return []


def _names(env: Mapping[str, str], name: str) -> frozenset[str]:
    return frozenset(word for part in env.get(name, "").split(",") if (word := part.strip()))


def _use(c: Config, settings: Provider, known: discovery.Endpoints) -> None:
    c.JupyterHub.authenticator_class = "tfcluster_magic.hub.auth.openid.OpenIDAuthenticator"
    c.JupyterHub.cookie_max_age_days = COOKIE_DAYS
    use = c.OpenIDAuthenticator
    use.client_id, use.client_secret = settings.client_id, settings.client_secret
    use.authorize_url, use.token_url = known.authorize, known.token
    if known.userinfo:
        use.userdata_url = known.userinfo
    else:
        use.userdata_from_id_token = True  # it comes from the token endpoint, over TLS
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
