"""The identity provider of a notebook. When the hub requests a check, the notebook asks the hub
again who the notebook's visitors are.

JupyterHub's own class caches the hub's answers for five minutes and does not check open websockets.
With this class, an answer is cached for a minute, and websockets of visitors whom the hub no longer
knows are closed. A request by the hub (`shared_settings.RECHECK`) clears the cache and checks the
websockets at once. Kernels keep running. If anybody else sends this request, the notebook only asks
the hub once more.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any
from weakref import WeakSet

from jupyterhub.services.auth import HubOAuth
from jupyterhub.singleuser.extension import JupyterHubIdentityProvider, allow_unauthenticated
from tornado.web import HTTPError, RequestHandler
from tornado.websocket import WebSocketHandler
from traitlets import default

from ..shared_settings import RECHECK

REMEMBERED = 60
"""Seconds for which an answer of the hub is cached, unless the hub requests a check earlier."""
PAUSE = 1.0
"""Minimum interval between two rounds of checks in seconds, because anybody may request a round."""
POLICY_VIOLATION = 1008
"""Code with which a websocket is closed. ref: https://www.rfc-editor.org/rfc/rfc6455#section-7.4"""


class Visitors(JupyterHubIdentityProvider):
    """JupyterHub's identity provider, which also checks open websockets."""

    def __init__(self, **words: Any) -> None:
        super().__init__(**words)
        self._open: WeakSet[WebSocketHandler] = WeakSet()
        self._turn = asyncio.Lock()
        self._asked_at = time.monotonic() - PAUSE
        self._watching: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    @default("hub_auth")
    def _asks_again_soon(self) -> HubOAuth:
        return HubOAuth(parent=self, cache_max_age=REMEMBERED)

    def get_handlers(self) -> list[tuple[str, object]]:
        """Return JupyterHub's own handlers, and the one that the hub calls."""
        return [*super().get_handlers(), (f"/{RECHECK}", Recheck, {"visitors": self})]

    async def get_user(self, handler: Any) -> Any:
        """Return the user of a request. If the request opens a websocket, remember it."""
        user = await super().get_user(handler)
        if user is not None and isinstance(handler, WebSocketHandler):
            self._open.add(handler)
            if self._watching is None:
                self._watching = asyncio.create_task(self._watch())
        return user

    async def recheck(self) -> None:
        """Ask the hub about all current visitors; concurrent calls share one round."""
        if self._next is None:
            self._next = asyncio.create_task(self._ask())
        await asyncio.shield(self._next)

    async def _ask(self) -> None:
        async with self._turn:
            await asyncio.sleep(self._asked_at + PAUSE - time.monotonic())
            self._next, self._asked_at = None, time.monotonic()
            self.hub_auth.cache.clear()
            for handler in list(self._open):
                if handler.ws_connection is not None and not await self._known(handler):
                    handler.close(POLICY_VIOLATION, "signed out")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(REMEMBERED)
            await self.recheck()

    async def _known(self, handler: WebSocketHandler) -> bool:
        token = self.hub_auth.get_token(handler)
        session = self.hub_auth.get_session_id(handler)
        try:
            found = token and await self.hub_auth.user_for_token(
                token, session_id=session, sync=False
            )
        except HTTPError:  # the hub is down: keep known visitors; new ones cannot get in
            return True
        return bool(found and self.hub_auth.check_scopes(self.hub_auth.access_scopes, found))


class Recheck(RequestHandler):
    """The route that the hub calls after ending sessions."""

    def initialize(self, visitors: Visitors) -> None:
        """Store the identity provider."""
        self._visitors = visitors

    @allow_unauthenticated
    async def post(self) -> None:
        """Check all visitors, then answer."""
        await self._visitors.recheck()
        self.set_status(204)
