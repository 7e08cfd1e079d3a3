"""Sign-in at an OpenID Connect provider, with oauthenticator and our own error messages.

After a refusal, an error or a missing claim, the user sees the reason and is not signed in.
oauthenticator handles the protocol, its `state` parameter and PKCE.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oauthenticator.generic import GenericOAuthenticator
from tornado.httpclient import HTTPClientError
from tornado.web import HTTPError
from traitlets import Unicode, default

from ...errors import TFClusterError
from ...i18n import _
from .sign_in import ALLOW_LIST_HANDLERS, AllowList


class OpenIDAuthenticator(GenericOAuthenticator):
    """An authenticator that gets user names and groups from an OpenID Connect provider."""

    allowed_file = Unicode(help="File of the users who may sign in without an allowed group.").tag(
        config=True
    )

    @property
    def imported(self) -> AllowList:
        """The list of imported users, who may sign in although they are in no allowed group."""
        return AllowList(Path(self.allowed_file))

    async def check_allowed(self, username: str, auth_model: Any) -> bool:
        """Return whether a user is in an allowed group or on the list of imported users."""
        if await super().check_allowed(username, auth_model):
            return True
        try:
            return username in self.imported.names()
        except TFClusterError as problem:
            self.log.error("%s", problem)
            return False

    def delete_user(self, user: Any) -> None:
        """Remove a user from the list of imported users when the hub deletes the user."""
        self.imported.remove(user.name)
        super().delete_user(user)

    def get_handlers(self, app: Any) -> list[tuple[str, type]]:
        """Return the handlers of oauthenticator and of the allow list."""
        return [*super().get_handlers(app), *ALLOW_LIST_HANDLERS]

    @default("login_service")
    def _login_service_name(self) -> str:
        return _("your organisation's account")

    @default("custom_403_message")
    def _not_allowed(self) -> str:
        return _("You may not use this hub. Ask an administrator to add you to one of its groups.")

    async def get_token_info(self, handler: Any, params: dict[str, str]) -> Any:
        """Exchange the code for tokens; turn errors of the provider into pages with the reason."""
        try:
            return await super().get_token_info(handler, params)
        except (HTTPClientError, OSError) as error:
            raise self._told(error) from error

    async def token_to_user(self, token_info: dict[str, Any]) -> Any:
        """Return the provider's description of the user; turn errors into pages with the reason."""
        try:
            return await super().token_to_user(token_info)
        except (HTTPClientError, OSError) as error:
            raise self._told(error) from error

    def user_info_to_username(self, user_info: dict[str, Any]) -> str:
        """Return the user name from the configured claim; refuse an unverified e-mail address."""
        claim = self.username_claim
        name = user_info.get(claim)
        if not isinstance(name, str) or not name:
            text = _(
                "The sign-in provider did not send your {claim}, which is the user name"
                " here. Tell an administrator of this hub."
            )
            self.log.error(
                "OIDC_USERNAME_CLAIM is none of the claims that the provider sent: %s",
                sorted(user_info),
            )
            raise HTTPError(403, text.format(claim=claim))
        if claim == "email" and user_info.get("email_verified") is not True:
            raise HTTPError(
                403,
                _(
                    "The sign-in provider has not verified your e-mail address. Verify it "
                    "there, then sign in again."
                ),
            )
        return name

    def _told(self, error: Exception) -> HTTPError:
        code = error.code if isinstance(error, HTTPClientError) else 599
        if 400 <= code < 500:
            return HTTPError(
                403,
                _(
                    "The sign-in provider refused this sign-in; it may have taken too "
                    "long. Try again."
                ),
            )
        self.log.error("The sign-in provider does not answer: %s", error)
        return HTTPError(503, _("The sign-in provider does not answer. Try again later."))
