"""The admin console's API for the command line: where the hub is, with which token, one request.

Promises that the token goes to the hub that was named and nowhere else (no redirect is followed),
that it is never printed, and that who has none is told how to make one.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from ... import paths, state_files
from ...errors import (
    BackendUnavailable,
    Conflict,
    NotAllowed,
    NotFound,
    TFClusterError,
    TooLarge,
    UsageError,
)
from ...i18n import _

HUB, TOKEN = "TFCLUSTER_HUB_URL", "TFCLUSTER_HUB_TOKEN"
SCOPE = "access:services!service=admin"
WITHIN = 60.0
_BLOCK = 1024 * 1024
_BY_STATUS: dict[int, type[TFClusterError]] = {
    400: UsageError,
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    422: UsageError,
    503: BackendUnavailable,
}


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: Any, **_words: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


@dataclass(frozen=True)
class HubAPI:
    """The console of one hub. `url` is the hub's address without a slash at the end."""

    url: str
    token: str

    @classmethod
    def of(
        cls, url: str | None, token_file: str | None, environ: Mapping[str, str] | None = None
    ) -> HubAPI:
        """What was said, else the environment, else the hub that runs on this machine.

        Raises:
            UsageError: nothing says where the hub is, or there is no token.
        """
        env = os.environ if environ is None else environ
        where = (url or env.get(HUB) or _here()).rstrip("/").removesuffix("/hub")
        if urlsplit(where).scheme not in ("http", "https"):
            text = _("say where the hub is: --hub https://… or {variable}; none runs here")
            raise UsageError(text.format(variable=HUB))
        token = env.get(TOKEN, "")
        if token_file:
            try:
                token = Path(token_file).read_text(encoding="utf-8")
            except OSError as error:
                text = _("the token cannot be read from {file}: {why}")
                raise UsageError(text.format(file=token_file, why=error.strerror)) from None
        if not token.strip():
            raise UsageError(no_token(where))
        return cls(where, token.strip())

    def ask(
        self, method: str, path: str, words: Any = (), body: dict[str, Any] | None = None
    ) -> Any:
        """What the console answers, from JSON. Raises what it refuses with."""
        return json.loads(self.raw(method, path, words, body))

    def raw(
        self, method: str, path: str, words: Any = (), body: dict[str, Any] | None = None
    ) -> bytes:
        """What the console answers, as it is."""
        return b"".join(self.blocks(method, path, words, body))

    def blocks(
        self, method: str, path: str, words: Any = (), body: dict[str, Any] | None = None
    ) -> Iterator[bytes]:
        """The same in pieces, as they come."""
        query = "?" + urlencode(words, doseq=True) if words else ""
        base, host = _reached(self.url)
        request = urllib.request.Request(  # noqa: S310 - http and https, see `of`
            f"{base}/services/admin/api/{path}{query}",
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={
                "Authorization": f"Bearer {self.token}",
                "Accept": "application/json",
                "Host": host,
            },
        )
        try:
            with _OPENER.open(request, timeout=WITHIN) as answer:
                while block := answer.read(_BLOCK):
                    yield block
        except urllib.error.HTTPError as error:
            raise self._refused(error) from None
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", error)
            text = _("the hub at {url} does not answer: {why}")
            raise BackendUnavailable(text.format(url=self.url, why=why)) from None

    def _refused(self, error: urllib.error.HTTPError) -> TFClusterError:
        try:
            detail = str(json.loads(error.read())["detail"])
        except (OSError, ValueError, KeyError, TypeError):
            text = _("there is no admin console at {url} ({status} {reason})")
            status = {"status": error.code, "reason": error.reason}
            return BackendUnavailable(text.format(url=self.url, **status))
        if error.code == 401:
            text = _("the hub does not know this token, or it has expired. {how}")
            return NotAllowed(text.format(how=no_token(self.url)))
        return _BY_STATUS.get(error.code, TFClusterError)(detail)


def no_token(url: str) -> str:
    """How an administrator gets a token."""
    return _(
        "A token of yours is needed: make one at {page} with the scope {scope}, and set {variable} "
        "or --token-file"
    ).format(page=f"{url}/hub/token", scope=SCOPE, variable=TOKEN)


def _reached(url: str) -> tuple[str, str]:
    """Return where to connect for an address, and the host to ask for. Names below localhost are
    this machine, as in browsers; not every resolver knows that.
    """
    parts = urlsplit(url)
    if not (parts.hostname or "").endswith(".localhost"):
        return url, parts.netloc
    port = "" if parts.port is None else f":{parts.port}"
    return parts._replace(netloc=f"127.0.0.1{port}").geturl(), parts.netloc


def _here() -> str:
    """Where the hub of this machine is, as it told its own folder; nothing when it told nothing."""
    try:
        return state_files.content(paths.state_dir() / "hub" / "url", most=4096).decode().strip()
    except (FileNotFoundError, state_files.Unreadable, UnicodeDecodeError):
        return ""
