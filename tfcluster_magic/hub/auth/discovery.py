"""What an OpenID Connect provider says about itself: one request, when the hub starts.

It promises that every address comes from the issuer that was named, over TLS, or says why not. It
never retries: the hub is started again by whoever started it.

https://openid.net/specs/openid-connect-discovery-1_0.html
"""

from __future__ import annotations

import ipaddress
import json
import ssl
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, build_opener

from ...errors import BackendUnavailable
from ...i18n import _

PATH = "/.well-known/openid-configuration"
PATIENCE = 10.0
LARGEST = 1 << 20
NEEDED = ("authorization_endpoint", "token_endpoint")


@dataclass(frozen=True)
class Endpoints:
    """Where the provider answers, and what it has; `userinfo` is empty where it has none."""

    authorize: str
    token: str
    userinfo: str
    scopes: frozenset[str]
    basic_auth: bool
    """Whether the hub's secret goes into a header: the form in the body is not accepted."""


def refused(url: str, allow_http: bool) -> str:
    """Why sign-in cannot be at this address; empty when it can."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        return _("an address https://… is allowed")
    if parts.scheme == "http" and not allow_http and not _is_loopback(parts.hostname):
        return _("https://… is allowed: everybody on the way could read passwords and tokens")
    if parts.query or parts.fragment:
        return _("an address without ? and # is allowed")
    return ""


def read(issuer: str, *, ca_file: str = "", allow_http: bool = False) -> Endpoints:
    """What the provider at `issuer` says about itself.

    `ca_file` has the certificates (PEM) that may have signed the provider's, instead of the
    system's. No proxy is used, whatever the environment says: sign-ins use none either.

    Raises:
        BackendUnavailable: it does not answer, is no provider, or is another one.
    """
    url = issuer.rstrip("/") + PATH
    try:
        found = json.loads(_fetch(url, ca_file))
    except HTTPError as error:
        raise _wrong(issuer, _("{url} answers {code}").format(url=url, code=error.code)) from error
    except (URLError, HTTPException, OSError) as error:
        why = getattr(error, "reason", error)
        raise _wrong(
            issuer, _("{url} cannot be reached: {why}").format(url=url, why=why)
        ) from error
    except ValueError as error:
        raise _wrong(issuer, _("{url} does not answer with JSON").format(url=url)) from error
    return _endpoints(issuer, url, found, allow_http)


def _endpoints(issuer: str, url: str, found: Any, allow_http: bool) -> Endpoints:
    said = found.get("issuer") if isinstance(found, dict) else None
    if said != issuer:  # section 4.3: else another provider could speak for it
        text = _("{url} speaks for the issuer {said}: write it exactly so")
        raise _wrong(issuer, text.format(url=url, said=said))
    for name in (*NEEDED, "userinfo_endpoint"):
        address = found.get(name)
        if not address and name in NEEDED:
            raise _wrong(issuer, _("{url} names no {what}").format(url=url, what=name))
        if address and (why := refused(str(address).partition("?")[0], allow_http)):
            raise _wrong(issuer, f"{name} {address}: {why}")
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
    with opener.open(url, timeout=PATIENCE) as answer:
        return bytes(answer.read(LARGEST))


class _NoRedirect(HTTPRedirectHandler):
    """Another address would not be the issuer's: the redirect becomes the error that it is."""

    def redirect_request(self, *_args: Any, **_words: Any) -> None:
        return None


def _wrong(issuer: str, what: str) -> BackendUnavailable:
    text = _("nobody can sign in at {issuer} (OIDC_ISSUER): {what}")
    return BackendUnavailable(text.format(issuer=issuer, what=what))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
