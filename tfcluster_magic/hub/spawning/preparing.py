"""`POST /hub/api/prepare/USER`: a user's namespace is made before their first notebook.

Promises what the first notebook would do, and no more: the hub makes the namespace, tenancy
furnishes it. For programs that may create users, such as the admin console when a class comes.
"""

from __future__ import annotations

from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.scopes import needs_scope
from tornado import web

from .tenants import NotFurnished


class PrepareAPI(APIHandler):
    """One user."""

    @needs_scope("admin:users")
    async def post(self, name: str) -> None:
        """Answer with {"name"} when the namespace is there."""
        user = self.find_user(name)
        if user is None:
            raise web.HTTPError(404)
        try:
            await user.spawners[""].prepare()
        except NotFurnished as why:
            raise web.HTTPError(409, "%s", why) from None
        self.write({"name": user.name})


HANDLERS = [(r"/api/prepare/([^/]+)", PrepareAPI)]
