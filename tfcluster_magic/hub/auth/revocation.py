"""Ends the access of removed users, and the sessions that began before a password reset.

The hub or a command records a removal or a reset in the account file. The hub carries it out within
seconds and then deletes the record. If the hub is down, it carries out resets at its next start,
before it answers requests, and removals soon after. A removal stops the user's notebooks, ends
sessions and rights, and calls the spawners' hooks. A reset ends all sessions and tokens of the
account. After a reset, notebooks keep running and admit only people who sign in again (see
`visitors`).
"""

from __future__ import annotations

import asyncio
from typing import Any

from jupyterhub import orm
from jupyterhub.objects import Server
from jupyterhub.utils import new_token, url_path_join
from tornado.httpclient import AsyncHTTPClient, HTTPClientError

from ...errors import TFClusterError
from ..shared_settings import RECHECK
from .accounts import AccountStore

EVERY = 1.0
"""Poll interval of the account file, in seconds; other processes change it without a signal."""
WITHIN = 5.0
"""Timeout in seconds of the request that makes a notebook check its visitors again. A notebook that
does not get the request asks the hub within a minute anyway.
"""


class Revocation:
    """Carries out the removals and resets that are recorded in the account file."""

    def __init__(self, app: Any, store: AccountStore) -> None:
        self._app, self._store = app, store
        self._turn = asyncio.Lock()  # carrying out a reset twice would end newer sessions
        self._untold: list[str] = []

    def begin(self) -> None:
        """Carry out the recorded resets while the hub starts; notebooks are notified later."""
        try:
            for name, mark in self._store.resets().items():
                end_sessions(self._app.db, name)
                self._untold.append(name)
                self._store.reset_done(name, mark)
        except (TFClusterError, OSError) as problem:  # `follow` tries again
            self._app.log.error("%s", problem)

    async def follow(self) -> None:
        """Carry out recorded removals and resets while the hub runs; retry those that fail."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                # A notified notebook asks the hub, so wait until the hub listens. The hub then has
                # the attribute `http_server`.
                while self._untold and getattr(self._app, "http_server", None):
                    await self._tell(self._untold.pop())
                for name, with_data in (await asyncio.to_thread(self._store.removed)).items():
                    if await delete_user(self._app, name, with_data=with_data):
                        await asyncio.to_thread(self._store.forgotten, name)
                for name in await asyncio.to_thread(self._store.resets):
                    await self.reset(name)
            except Exception:
                # Go on: a retry may succeed after the file is repaired or the proxy is back.
                self._app.log.exception("Removals and resets failed; trying again")

    async def reset(self, name: str) -> None:
        """End all sessions and tokens of this account unless they have been ended already."""
        async with self._turn:
            mark = (await asyncio.to_thread(self._store.resets)).get(name)
            if mark is None:
                return
            end_sessions(self._app.db, name)
            await asyncio.to_thread(self._store.reset_done, name, mark)
        self._app.log.info("Ended all sessions and tokens of %s", name)
        await self._tell(name)

    async def _tell(self, name: str) -> None:
        """Make all notebooks of a user check their visitors again."""
        if (user := orm.User.find(self._app.db, name)) is not None:
            servers = [one.server for one in user.orm_spawners.values() if one.server]
            urls = [Server(orm_server=one).url for one in servers]
            await asyncio.gather(*(self._tell_one(url) for url in urls))

    async def _tell_one(self, url: str) -> None:
        url = url_path_join(url, RECHECK)
        try:
            await AsyncHTTPClient().fetch(
                url,
                method="POST",
                body="",
                request_timeout=WITHIN,
                follow_redirects=False,  # the owner of the notebook could redirect us anywhere
                decompress_response=False,
                streaming_callback=lambda _chunk: None,
            )
        except (HTTPClientError, OSError) as error:
            self._app.log.warning("%s does not know of a reset yet: %s", url, error)


def end_sessions(db: Any, name: str) -> None:
    """End every session and token of a user. A notebook's token keeps only the scope to report
    activity, because an intruder may have read it from the notebook's environment.
    """
    user = orm.User.find(db, name)
    if user is None:
        return
    user.cookie_id = new_token()
    own = {_own_token(user, spawner) for spawner in user.orm_spawners.values()}
    for token in list(user.api_tokens):
        if token.id in own:
            token.scopes = [f"users:activity!user={name}"]
        else:
            db.delete(token)
    for code in list(user.oauth_codes):
        db.delete(code)
    db.commit()


def _own_token(user: Any, spawner: Any) -> int | None:
    """Return the id of the token that a notebook was started with.

    Only the note of a token says that the hub created it for a notebook. Users can give their own
    tokens the same note, but those tokens are newer than the notebook's start.
    """
    if spawner.server is None or spawner.started is None:
        return None
    note = f"Server at {spawner.server.base_url}"
    made = [one for one in user.api_tokens if one.note == note and one.created <= spawner.started]
    return max((one.id for one in made), default=None)


async def delete_user(app: Any, name: str, *, with_data: bool) -> bool:
    """Delete a hub user. Return False, and delete nothing, while one of the user's notebooks is
    starting or stopping. With `with_data`, the user's spawners delete the user's data, too
    (`loses_data`).
    """
    user = app.users.get(name)
    if user is None:
        return True
    names = list(user.orm_user.orm_spawners)
    if any(user.spawners[each].pending for each in names):
        return False
    for each in names:
        if user.spawners[each].active:
            await app.proxy.delete_user(user, each)
            await user.stop(each)
        user.spawners[each].loses_data = with_data  # after `stop`, which may replace the spawner
    await user.delete_spawners()
    app.users.delete(user)
    app.log.info("Deleted the user %s, who was removed in a shell", name)
    return True
