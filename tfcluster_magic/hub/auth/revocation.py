"""Ends the access of removed users, and of anybody who had a password before its reset.

The hub or a command notes a removal or a reset in the file of accounts. It is carried out within
seconds, or before a starting hub answers anybody, and the note stays until it is done. A removal
ends the user's notebooks, sessions and rights, and tells the spawners. A reset ends the account's
sessions, its tokens and all tokens made with them; notebooks go on and admit only people who sign
in again (see `visitors`).
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
"""Seconds between two looks at the file: another process writes it, and nothing announces that."""
WITHIN = 5.0
"""Seconds to tell a notebook; one that does not answer asks the hub by itself soon."""


class Revocation:
    """The notes in the file of accounts, and the hub that carries them out."""

    def __init__(self, app: Any, store: AccountStore) -> None:
        self._app, self._store = app, store
        self._turn = asyncio.Lock()  # doing a note twice would end newer sessions
        self._untold: list[str] = []

    def begin(self) -> None:
        """End the access that resets name, while the hub starts; notebooks hear of it later."""
        try:
            for name, mark in self._store.resets().items():
                end_sessions(self._app.db, name)
                self._untold.append(name)
                self._store.reset_done(name, mark)
        except (TFClusterError, OSError) as problem:  # `follow` tries again
            self._app.log.error("%s", problem)

    async def follow(self) -> None:
        """Carry out notes as long as the hub runs, and try again what fails."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                while self._untold and getattr(self._app, "http_server", None):  # the hub answers
                    await self._tell(self._untold.pop())
                for name, with_data in (await asyncio.to_thread(self._store.removed)).items():
                    if await delete_user(self._app, name, with_data=with_data):
                        await asyncio.to_thread(self._store.forgotten, name)
                for name in await asyncio.to_thread(self._store.resets):
                    await self.reset(name)
            except Exception:
                # An unreadable file and a missing proxy both heal without a restart.
                self._app.log.exception("Noted removals and resets are not done; trying again")

    async def reset(self, name: str) -> None:
        """End all sessions and tokens of this account, unless that is done."""
        async with self._turn:
            mark = (await asyncio.to_thread(self._store.resets)).get(name)
            if mark is None:
                return
            end_sessions(self._app.db, name)
            await asyncio.to_thread(self._store.reset_done, name, mark)
        self._app.log.info("%s: sessions and tokens are ended", name)
        await self._tell(name)

    async def _tell(self, name: str) -> None:
        """Have the user's notebooks ask the hub again about everybody they admit."""
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
                follow_redirects=False,  # a notebook's owner decides what it answers
                decompress_response=False,
                streaming_callback=lambda _chunk: None,
            )
        except (HTTPClientError, OSError) as error:
            self._app.log.warning("%s was not told of a reset: %s", url, error)


def end_sessions(db: Any, name: str) -> None:
    """End every session and token of a user, except what a notebook reports activity with.

    A notebook's own token is in its environment, where an intruder may have read it. From then on
    it may only report that the notebook is in use.
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
    """Return the id of the token that a notebook was started with. The hub marks it only by its
    note, which users can copy to a token of theirs; but such a token is newer than the start.
    """
    if spawner.server is None or spawner.started is None:
        return None
    note = f"Server at {spawner.server.base_url}"
    made = [one for one in user.api_tokens if one.note == note and one.created <= spawner.started]
    return max((one.id for one in made), default=None)


async def delete_user(app: Any, name: str, *, with_data: bool) -> bool:
    """Delete a user of the hub; return False if it has to wait for a notebook to start or stop.

    `with_data` is for spawners that keep data of a user: it sets their trait `loses_data`.
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
        user.spawners[each].loses_data = with_data  # another than before: one that ends is dropped
    await user.delete_spawners()
    app.users.delete(user)
    app.log.info("%s was removed from a shell: deleted", name)
    return True
